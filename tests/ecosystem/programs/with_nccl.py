"""NCCL's collectives on simulated devices, through ctypes, compared with numpy.

`with_nccl.py RANKS` drives RANKS devices from one process; `with_nccl.py RANKS processes` starts a process for each.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import sys
from ctypes import byref, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np
from report import check, finish

SITE = Path(np.__file__).parents[1] / "nvidia"
rt = ctypes.CDLL(str(next(SITE.glob("cu*/lib/libcudart.so.*"))), mode=ctypes.RTLD_GLOBAL)
nccl = ctypes.CDLL(str(next(SITE.glob("nccl/lib/libnccl.so.2"))))
nccl.ncclGetErrorString.restype = ctypes.c_char_p

TYPES = {"i4": 2, "f2": 6, "f4": 7, "f8": 8}  # ncclDataType_t
SUM = 0
# The others of ncclRedOp_t. NCCL's kernels have sums inside; these are functions that they call through pointers.
OTHERS = {"product": (1, np.multiply), "max": (2, np.maximum), "min": (3, np.minimum), "average": (4, None)}
SIZES = (1, 1000, 20_011)


class UniqueId(ctypes.Structure):
    _fields_ = (("internal", ctypes.c_char * 128),)


def ok(result: int) -> None:
    assert result == 0, nccl.ncclGetErrorString(result).decode()


def cuda(result: int) -> None:
    assert result == 0, result


class Rank:
    """A device, its communicator and its stream."""

    def __init__(self, number: int, device: int, communicator: c_void_p) -> None:
        self.number, self.device, self.communicator, self.stream = number, device, communicator, c_void_p()
        cuda(rt.cudaSetDevice(device))
        cuda(rt.cudaStreamCreate(byref(self.stream)))

    def put(self, data: np.ndarray) -> c_void_p:
        cuda(rt.cudaSetDevice(self.device))
        place = c_void_p()
        cuda(rt.cudaMalloc(byref(place), c_size_t(max(data.nbytes, 16))))
        cuda(rt.cudaMemcpy(place, data.ctypes.data_as(c_void_p), c_size_t(data.nbytes), 1))
        return place

    def get(self, place: c_void_p, like: np.ndarray) -> np.ndarray:
        cuda(rt.cudaSetDevice(self.device))
        cuda(rt.cudaStreamSynchronize(self.stream))
        data = np.empty_like(like)
        cuda(rt.cudaMemcpy(data.ctypes.data_as(c_void_p), place, c_size_t(data.nbytes), 2))
        cuda(rt.cudaFree(place))
        return data


def collective(ranks: list[Rank], inputs: list[np.ndarray], outputs: list[np.ndarray], call) -> list[np.ndarray]:
    """Run `call(rank, input, output)` for all `ranks` in one NCCL group; return the outputs."""
    places = [(r.put(inputs[r.number]), r.put(outputs[r.number])) for r in ranks]
    ok(nccl.ncclGroupStart())
    for r, (source, target) in zip(ranks, places, strict=True):
        call(r, source, target)
    ok(nccl.ncclGroupEnd())
    found = [r.get(target, outputs[r.number]) for r, (_, target) in zip(ranks, places, strict=True)]
    for r, (source, _) in zip(ranks, places, strict=True):
        r.get(source, inputs[r.number])
    return found


def run(ranks: list[Rank], count: int) -> None:
    def compare(name: str, inputs, expected, call) -> None:
        blank = [np.zeros_like(e) for e in expected]
        found = collective(ranks, inputs, blank, call)
        for r, f in zip(ranks, found, strict=True):
            check(f"{name} rank {r.number} of {count}", lambda f=f: f, expected[r.number], 0)

    for kind, number in TYPES.items():
        for size in SIZES:
            whole = [(np.arange(size * count) * (i + 1) % 97).astype(kind) for i in range(count)]
            mine = [w[:size] for w in whole]
            total = [sum(mine[1:], mine[0].copy())] * count

            def all_reduce(r, s, t, size=size, number=number):
                ok(nccl.ncclAllReduce(s, t, c_size_t(size), number, SUM, r.communicator, r.stream))

            def broadcast(r, s, t, size=size, number=number):
                ok(nccl.ncclBroadcast(s, t, c_size_t(size), number, count - 1, r.communicator, r.stream))

            def all_gather(r, s, t, size=size, number=number):
                ok(nccl.ncclAllGather(s, t, c_size_t(size), number, r.communicator, r.stream))

            def reduce_scatter(r, s, t, size=size, number=number):
                ok(nccl.ncclReduceScatter(s, t, c_size_t(size), number, SUM, r.communicator, r.stream))

            def exchange(r, s, t, size=size, number=number):
                ok(nccl.ncclSend(s, c_size_t(size), number, (r.number + 1) % count, r.communicator, r.stream))
                ok(nccl.ncclRecv(t, c_size_t(size), number, (r.number - 1) % count, r.communicator, r.stream))

            label = f"{kind} {size}"
            compare(f"all-reduce {label}", mine, total, all_reduce)
            compare(f"broadcast {label}", mine, [mine[-1]] * count, broadcast)
            compare(f"all-gather {label}", mine, [np.concatenate(mine)] * count, all_gather)
            scattered = sum(whole[1:], whole[0].copy()).reshape(count, size)
            compare(f"reduce-scatter {label}", whole, list(scattered), reduce_scatter)
            compare(f"send and receive {label}", mine, [mine[i - 1] for i in range(count)], exchange)
    for kind in TYPES:
        for operation, (op, function) in OTHERS.items():
            mine = [((np.arange(5000) * (i + 3)) % 13 * count).astype(kind) for i in range(count)]
            total = functools.reduce(function or np.add, mine)

            def reduce_all(r, s, t, op=op, number=TYPES[kind]):
                ok(nccl.ncclAllReduce(s, t, c_size_t(5000), number, op, r.communicator, r.stream))

            expected = total if function else (total / count).astype(kind)
            compare(f"{operation} {kind}", mine, [expected] * count, reduce_all)
        fused(ranks, count, kind)


def fused(ranks: list[Rank], count: int, kind: str) -> None:
    """Several reductions in one group, which NCCL gives to one launch."""
    size, number = 300, TYPES[kind]
    mine = [((np.arange(size) * (i + 3)) % 13).astype(kind) for i in range(count)]
    places = [(r.put(mine[r.number]), [r.put(np.zeros_like(mine[0])) for _ in OTHERS]) for r in ranks]
    ok(nccl.ncclGroupStart())
    for r, (source, targets) in zip(ranks, places, strict=True):
        for target, (op, _) in zip(targets, OTHERS.values(), strict=True):
            ok(nccl.ncclAllReduce(source, target, c_size_t(size), number, op, r.communicator, r.stream))
    ok(nccl.ncclGroupEnd())
    for r, (source, targets) in zip(ranks, places, strict=True):
        for target, (operation, (_, function)) in zip(targets, OTHERS.items(), strict=True):
            total = functools.reduce(function or np.add, mine)
            expected = total if function else (total / count).astype(kind)
            check(
                f"fused {operation} {kind} rank {r.number} of {count}",
                lambda t=target, r=r: r.get(t, mine[0]),
                expected,
                0,
            )
        r.get(source, mine[r.number])


def main() -> None:
    count, how = int(sys.argv[1]), sys.argv[2:]
    communicators = (c_void_p * count)()
    if how == ["processes"]:
        identity = UniqueId()
        ok(nccl.ncclGetUniqueId(byref(identity)))
        told = bytes(identity).hex()
        others = [subprocess.Popen([sys.executable, __file__, str(count), str(i), told]) for i in range(count)]
        assert [other.wait() for other in others] == [0] * count
    elif how:
        number, identity = int(how[0]), UniqueId.from_buffer_copy(bytes.fromhex(how[1]))
        cuda(rt.cudaSetDevice(number))
        ok(nccl.ncclCommInitRank(communicators, count, identity, number))
        run([Rank(number, number, c_void_p(communicators[0]))], count)
    else:
        ok(nccl.ncclCommInitAll(communicators, count, (c_int * count)(*range(count))))
        run([Rank(i, i, c_void_p(communicators[i])) for i in range(count)], count)
    finish("nccl")


main()
