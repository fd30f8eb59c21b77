"""Short names for the specification modules: types, parameters and `fn`, which registers a function."""

from __future__ import annotations

from protocol.gen.model import Function, Kind, Need, Param, Role, Scalar, SpecError, Travel

I32 = Scalar("int", "int32_t", "i")
U32 = Scalar("unsigned int", "uint32_t", "u")
U8 = Scalar("unsigned char", "uint32_t", "u")
U16 = Scalar("unsigned short", "uint32_t", "u")
U64 = Scalar("uint64_t", "uint64_t", "u")
ULL = Scalar("unsigned long long", "uint64_t", "u")
SIZE = Scalar("size_t", "uint64_t", "u")
F32 = Scalar("float", "float", "f")
DEVICEPTR = Scalar("CUdeviceptr", "uint64_t", "x")
ADDRESS = Scalar("uint64_t", "uint64_t", "x")
DEVICE = Scalar("CUdevice", "int32_t", "i")

CONTEXT = Kind("CONTEXT", 1, "CUcontext")
STREAM = Kind("STREAM", 2, "CUstream")
EVENT = Kind("EVENT", 3, "CUevent")
MODULE = Kind("MODULE", 4, "CUmodule")
LIBRARY = Kind("LIBRARY", 5, "CUlibrary")
FUNCTION = Kind("FUNCTION", 6, "CUfunction")
KERNEL = Kind("KERNEL", 7, "CUkernel")
MEMPOOL = Kind("MEMPOOL", 8, "CUmemoryPool")
GRAPH = Kind("GRAPH", 9, "CUgraph")
LINK = Kind("LINK", 10, "CUlinkState")
ALLOCATION = Kind("ALLOCATION", 11, "CUmemGenericAllocationHandle")
GRAPH_EXEC = Kind("GRAPH_EXEC", 12, "CUgraphExec")
GRAPH_NODE = Kind("GRAPH_NODE", 13, "CUgraphNode")
IPC_EVENT = Kind("IPC_EVENT", 14, "CUevent")
KINDS = (
    CONTEXT, STREAM, EVENT, MODULE, LIBRARY, FUNCTION, KERNEL, MEMPOOL, GRAPH, LINK, ALLOCATION, GRAPH_EXEC, GRAPH_NODE,
    IPC_EVENT,
)  # fmt: skip

LOCAL, QUEUED, WAITING = Travel.LOCAL, Travel.QUEUED, Travel.WAITING
NOTHING, INIT = Need.NOTHING, Need.INIT

# Longer data is sent in pieces; must fit a record (wire.md: 4 MiB) with its fixed part.
PIECE_NBYTES = 1 << 20

functions: list[Function] = []
host_functions: list[Function] = []  # members of the backend table that no message names
_module = ""


def begin_module(name: str) -> None:
    global _module
    _module = name


def val(name: str, scalar: Scalar) -> Param:
    return Param(name, Role.VALUE, scalar.c, scalar=scalar)


def handle(name: str, kind: Kind) -> Param:
    return Param(name, Role.HANDLE, kind.c, kind=kind)


def out(name: str, scalar: Scalar) -> Param:
    """A result; NULL in the program's call means: not wanted."""
    return Param(name, Role.OUT, f"{scalar.c} *", scalar=scalar)


def out_handle(name: str, kind: Kind) -> Param:
    """A new object. The client chooses its id, so that creating needs no answer."""
    return Param(name, Role.OUT_HANDLE, f"{kind.c} *", kind=kind)


def bytes_in(name: str, size: str, cap: int = PIECE_NBYTES) -> Param:
    return Param(name, Role.BYTES_IN, "const void *", size=size, cap=cap)


def bytes_out(name: str, size: str, cap: int = PIECE_NBYTES) -> Param:
    return Param(name, Role.BYTES_OUT, "void *", size=size, cap=cap)


def text_in(name: str, cap: int = 65536) -> Param:
    return Param(name, Role.TEXT_IN, "const char *", cap=cap)


def struct_in(name: str, c: str) -> Param:
    return Param(name, Role.STRUCT_IN, f"const {c} *")


def struct_out(name: str, c: str) -> Param:
    return Param(name, Role.STRUCT_OUT, f"{c} *")


def ptr(name: str, c: str = "void *") -> Param:
    """A pointer into the program's memory that only the client follows."""
    return Param(name, Role.POINTER, c)


def fn(
    name: str,
    args: list[Param],
    travel: Travel = LOCAL,
    *,
    doc: str,
    need: Need = Need.CONTEXT,
    wire: list[Param] | None = None,
    guest: str = "",
    host: str = "",
    backend: bool = True,
    blocks: bool = False,
    aliases: list[str] | None = None,
) -> None:
    """Register one function.

    Args:
        guest: "custom" when `vgs_NAME` is hand-written; local functions always are.
        host: "custom" when `vgx_NAME` is hand-written.
        backend: False when the backend has no function of this name.
        aliases: other exported names with the same signature and meaning (unsuffixed or older ABI versions).
    """
    if any(f.name == name for f in functions):
        raise SpecError(f"{name}: described twice")
    entry = Function(
        name,
        args,
        travel,
        need,
        doc,
        wire,
        guest == "custom" or travel is LOCAL or wire is not None,
        host == "custom" or wire is not None,
        backend and name.startswith("cu") and travel is not LOCAL,
        blocks,
        name.startswith("cu"),
        aliases or [],
        _module,
    )
    entry.check()
    functions.append(entry)


def host_only(name: str, args: list[Param], doc: str) -> None:
    """A driver function that the executor itself calls: a member of the backend table, no message, no export."""
    entry = Function(name, args, LOCAL, NOTHING, doc, guest_custom=True, backend=True, exported=False, module=_module)
    entry.check()
    host_functions.append(entry)
