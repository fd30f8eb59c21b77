"""AT10: two rings that use one object. Each scene returns a description of the fault, or an empty string."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vgpud._gen.api import KINDS

from tests.protocol.records import INVALID_VALUE, Case, Dispatcher, fill, travelling

BY_NAME = {record.name: record for record in travelling()}
UNKNOWN = 999


@dataclass(frozen=True)
class Scene:
    name: str
    play: Callable[[Dispatcher], str]

    def fault(self, dispatcher: Dispatcher) -> str:
        return self.play(dispatcher)


def _record(dispatcher: Dispatcher, name: str, context: int = 1, **changes: int) -> bytes:
    given = fill(BY_NAME[name], dispatcher)
    return Case(BY_NAME[name], "", given["fields"] | changes, given["parts"], context=context).encode()


def _overlap(dispatcher: Dispatcher, user: bytes, destroyer: bytes, kind: str, number: int) -> str:
    found = dispatcher.lib.vgt_overlap(user, destroyer, KINDS[kind], number)
    return {0: "", 1: "it was destroyed while it was used"}.get(found, f"error {found}")


def _user_of(kind: str) -> tuple[str, str]:
    """A function that uses an object of this kind, and the field that names it."""
    return next(
        (record.name, field)
        for record in BY_NAME.values()
        for field, meaning in record.meanings.items()
        if meaning == ("uses", kind)
    )


def _destroyed_while_used(name: str, field: str, kind: str) -> Scene:
    def play(dispatcher: Dispatcher) -> str:
        target = dispatcher.new_object(kind)
        function, used = _user_of(kind)
        user = _record(dispatcher, function, **{used: target})
        return _overlap(dispatcher, user, _record(dispatcher, name, **{field: target}), kind, target)

    return Scene(f"{name} waits for who uses the object", play)


def _unloaded_while_launched(name: str, field: str, kind: str, below: str) -> Scene:
    """The launch names only the kernel, not the module or library that owns the kernel."""

    def play(dispatcher: Dispatcher) -> str:
        owner, kernel = dispatcher.new_object(kind), dispatcher.new_id()
        assert dispatcher.lib.vgt_make_owned(KINDS[below], kernel, KINDS[kind], owner)
        user = _record(dispatcher, "cuLaunchKernel", kind=KINDS[below], object=kernel)
        wrong = _overlap(dispatcher, user, _record(dispatcher, name, **{field: owner}), kind, owner)
        return wrong or "the kernel stayed" * dispatcher.lib.vgt_is_live(KINDS[below], kernel)

    return Scene(f"{name} waits for a launch of its kernel", play)


def _context(dispatcher: Dispatcher) -> str:
    context = dispatcher.new_object("CONTEXT")
    user = _record(dispatcher, "cuCtxSynchronize", context)
    return _overlap(dispatcher, user, _record(dispatcher, "cuCtxDestroy_v2", 0, ctx=context), "CONTEXT", context)


def _array(dispatcher: Dispatcher) -> str:
    """The record holds, in an array of dependencies, a node of a graph that the record does not name."""
    graph, node = dispatcher.new_object("GRAPH"), dispatcher.new_id()
    assert dispatcher.lib.vgt_make_owned(KINDS["GRAPH_NODE"], node, KINDS["GRAPH"], graph)
    given = fill(BY_NAME["cuGraphAddEmptyNode"], dispatcher)
    part = {"dependencies": node.to_bytes(4, "little") * 4}
    user = Case(BY_NAME["cuGraphAddEmptyNode"], "", given["fields"], part).encode()
    return _overlap(dispatcher, user, _record(dispatcher, "cuGraphDestroy", hGraph=graph), "GRAPH", graph)


def _turns(dispatcher: Dispatcher) -> str:
    """The node is found through its graph, so no reference keeps it."""
    graph, node = dispatcher.new_object("GRAPH"), dispatcher.new_id()
    assert dispatcher.lib.vgt_make_owned(KINDS["GRAPH_NODE"], node, KINDS["GRAPH"], graph)
    user = _record(dispatcher, "cuGraphClone", originalGraph=graph)
    return _overlap(dispatcher, user, _record(dispatcher, "cuGraphDestroyNode", hNode=node), "GRAPH_NODE", node)


def _graph(dispatcher: Dispatcher) -> str:
    """Destroying a graph destroys its nodes and the graphs inside them; a graph inside a node is destroyed only with
    its owner."""
    lib = dispatcher.lib
    graph, node, inside, below = (dispatcher.new_id() for _ in range(4))
    assert lib.vgt_make(KINDS["GRAPH"], graph, 0)
    assert lib.vgt_make_owned(KINDS["GRAPH_NODE"], node, KINDS["GRAPH"], graph)
    assert lib.vgt_make_owned(KINDS["GRAPH"], inside, KINDS["GRAPH_NODE"], node)
    assert lib.vgt_make_owned(KINDS["GRAPH_NODE"], below, KINDS["GRAPH"], inside)
    destroy = BY_NAME["cuGraphDestroy"]
    wrong = Case(destroy, "inside a node", {"hGraph": inside}, {}, expected=(INVALID_VALUE,)).fault(dispatcher)
    if wrong or not lib.vgt_is_live(KINDS["GRAPH_NODE"], below):
        return wrong or "a node went with a graph that stayed"
    if wrong := Case(destroy, "with nodes", {"hGraph": graph}, {}).fault(dispatcher):
        return wrong
    left = [("GRAPH", graph), ("GRAPH", inside), ("GRAPH_NODE", node), ("GRAPH_NODE", below)]
    return "something stayed" * any(lib.vgt_is_live(KINDS[kind], number) for kind, number in left)


def _refused(dispatcher: Dispatcher) -> str:
    """What the driver refuses to destroy stays, with all that it owns."""
    module, function = dispatcher.new_object("MODULE"), dispatcher.new_id()
    assert dispatcher.lib.vgt_make_owned(KINDS["FUNCTION"], function, KINDS["MODULE"], module)
    first = Case(BY_NAME["cuCtxSynchronize"], "first", {}, {})
    if wrong := first.fault(dispatcher):  # enters the context, which the driver must not refuse
        return wrong
    dispatcher.lib.vgt_set_result(UNKNOWN)
    case = Case(BY_NAME["cuModuleUnload"], "refused", {"hmod": module}, {}, expected=(UNKNOWN, 0))
    wrong = case.fault(dispatcher)
    dispatcher.lib.vgt_set_result(0)
    live = [dispatcher.lib.vgt_is_live(KINDS[k], i) for k, i in (("MODULE", module), ("FUNCTION", function))]
    return wrong or "it is gone" * (live != [1, 1])


SCENES = [
    *(
        _destroyed_while_used(record.name, field, kind)
        for record in BY_NAME.values()
        for field, (meaning, kind) in record.meanings.items()
        if meaning == "destroys"
    ),
    _unloaded_while_launched("cuModuleUnload", "hmod", "MODULE", "FUNCTION"),
    _unloaded_while_launched("cuLibraryUnload", "library", "LIBRARY", "KERNEL"),
    Scene("cuCtxDestroy waits for the context's records", _context),
    Scene("cuGraphDestroy waits for a node among dependencies", _array),
    Scene("cuGraphDestroyNode waits for who looks at the graph", _turns),
    Scene("a graph takes its nodes with it", _graph),
    Scene("what the driver refuses to destroy stays", _refused),
]
