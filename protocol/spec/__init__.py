"""One entry per driver function. `load()` in protocol.gen.load reads these modules in this order."""

MODULES = (
    "device",
    "context",
    "memory",
    "copy",
    "pool",
    "module",
    "launch",
    "stream",
    "event",
    "ipc",
    "graph",
    "graph_node",
    "graph_query",
    "virtual",
    "array",
    "tensor",
    "occupancy",
    "session",
    "hints",
)
