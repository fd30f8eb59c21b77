"""What a driver answers about graph nodes that signal, or wait for, no external semaphores:
`python3 tests/gpu/semaphore_nodes.py [LIBCUDA]`, natively or under `vgpu run`. Prints each call with its result."""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_void_p

CUDA = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libcuda.so.1")


class Params(ctypes.Structure):
    """CUDA_EXT_SEM_NODE_PARAMS of cuda.h."""

    _fields_ = [("semaphores", c_void_p), ("params", c_void_p), ("count", c_uint)]


def ask(name: str, *arguments: object) -> int:
    print(name, end="", flush=True)  # a call may crash
    result: int = getattr(CUDA, name)(*arguments)
    print(f" => {result}", flush=True)
    return result


def node_of(kind: str) -> None:
    graph, clone, execution, node, copy = (c_void_p() for _ in range(5))
    kept, none = c_int(-1), Params()
    ask("cuGraphCreate", byref(graph), 0)
    if ask(f"cuGraphAddExternalSemaphores{kind}Node", byref(node), graph, None, c_size_t(0), byref(none)):
        return
    ask("cuGraphNodeGetType", node, byref(kept))
    print("    type", kept.value)
    for each in "Signal", "Wait":
        read = Params(1, 1, 7)
        ask(f"cuGraphExternalSemaphores{each}NodeGetParams", node, byref(read))
        print("   ", read.semaphores, read.params, read.count)
        ask(f"cuGraphExternalSemaphores{each}NodeSetParams", node, byref(none))
    ask("cuGraphClone", byref(clone), graph)
    ask("cuGraphNodeFindInClone", byref(copy), node, clone)
    ask("cuGraphNodeGetType", copy, byref(kept))
    print("    type", kept.value)
    ask("cuGraphInstantiateWithFlags", byref(execution), graph, ctypes.c_uint64(0))
    for each in "Signal", "Wait":
        ask(f"cuGraphExecExternalSemaphores{each}NodeSetParams", execution, node, byref(none))
    ask("cuGraphLaunch", execution, None)
    ask("cuCtxSynchronize")
    ask("cuGraphDestroyNode", node)


def main() -> None:
    context = c_void_p()
    ask("cuInit", 0)
    ask("cuDevicePrimaryCtxRetain", byref(context), 0)
    ask("cuCtxSetCurrent", context)
    for kind in "Signal", "Wait":
        node_of(kind)


if __name__ == "__main__":
    main()
