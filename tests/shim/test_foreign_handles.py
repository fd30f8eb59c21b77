"""Each function gets handles of every wrong kind for each of its handle parameters, and must return an error.

The functions and the kinds of their parameters come from the specification (protocol/spec).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from protocol.gen.load import load
from protocol.gen.model import Role
from tests.daemon.running import Running, vgpud_with_real_workers
from tests.shim.client import environment
from tests.shim.faults import Host, finish, hear

# Creates one handle of each kind; parameters of further kinds are skipped, their functions' other parameters tried.
PROGRAM = """
import json
stream, event = new(cuda.cuStreamCreate, 1), new(cuda.cuEventCreate, 2)
function = kernel("add_one")
library = new(cuda.cuLibraryLoadData, PTX, None, None, 0, None, None, 0)
entry = new(cuda.cuLibraryGetKernel, library, b"add_one")
graph = new(cuda.cuGraphCreate, 0)
node = new(lambda out: cuda.cuGraphAddEmptyNode(out, graph, None, c_size_t(0)))
executable = new(cuda.cuGraphInstantiateWithFlags, graph, c_uint64(0))
pool = new(cuda.cuDeviceGetDefaultMemPool, 0)
gone = new(cuda.cuStreamCreate, 1)
ok(cuda.cuStreamDestroy_v2(gone))
handles = {"CONTEXT": ctx, "STREAM": stream, "EVENT": event, "MODULE": module, "FUNCTION": function, "LIBRARY": library,
           "KERNEL": entry, "GRAPH": graph, "GRAPH_NODE": node, "GRAPH_EXEC": executable, "MEMPOOL": pool}
foreign = {"a destroyed stream": gone, "a small number": c_void_p(77), "the program's": c_void_p(id(matrix))}
room = (ctypes.c_char * 65536)()
pointer = ctypes.cast(room, c_void_p)
tried, taken = 0, []
for name, parameters in matrix:
    function = getattr(cuda, name)
    for place, (kind, _) in enumerate(parameters):
        if kind is None or kind not in handles:
            continue
        others = {other: handle for other, handle in handles.items() if other not in (kind, *same.get(kind, ()))}
        for other, handle in {**others, **foreign}.items():
            ctypes.memset(room, 0, 4096)
            arguments = [handle if i == place else handles.get(k, pointer if is_pointer else c_uint64(0))
                         for i, (k, is_pointer) in enumerate(parameters)]
            tried += 1
            if function(*arguments) == 0:
                taken.append([name, place, kind, other])
assert value() == 0 and (computes() or True)  # the session is as it was
print(json.dumps({"tried": tried, "taken": taken}), flush=True)
said("done")
"""
# CUfunction and CUkernel may stand for each other, as with NVIDIA's driver.
SAME = {"FUNCTION": ["KERNEL"], "KERNEL": ["FUNCTION"]}
# These functions destroy objects that later calls need, whatever their other arguments are.
LEFT_OUT = ("Destroy", "Unload", "Reset", "Release", "cuCtxPopCurrent", "cuProfiler")


@pytest.fixture
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(tmp_path_factory.mktemp("foreign"))


def matrix() -> list[tuple[str, list[tuple[str | None, bool]]]]:
    rows = []
    for function in load().functions:
        kinds = [each.kind.name if each.role is Role.HANDLE and each.kind else None for each in function.args]
        if not function.exported or not any(kinds):
            continue
        rows.append((function.name, [(k, "*" in each.c) for k, each in zip(kinds, function.args, strict=True)]))
    return rows


def test_a_handle_of_another_kind_is_refused_by_each_function(running: Running) -> None:
    rows = [row for row in matrix() if not any(word in row[0] for word in LEFT_OUT)]
    assert len(rows) > 100
    client = Host(environment(str(running.endpoint))).start(f"same, matrix = {SAME!r}, {rows!r}\n{PROGRAM}")
    found = json.loads(client.stdout.readline()) if client.stdout else {}
    hear(client, "done")
    finish(client)
    assert found["tried"] > 1000
    assert found["taken"] == []
