"""Runs compiled kernels on this thread, through the same structs the pool uses."""

from __future__ import annotations

import ctypes
import functools
import mmap
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from vgpusim.codegen import abi
from vgpusim.codegen.compile import PtxModule, compile_entry
from vgpusim.codegen.loader import Loader
from vgpusim.ptx.module import FUNCTIONS

ROOT = Path(__file__).resolve().parents[3]
U8P = ctypes.c_void_p


class Services(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            *("vprintf", "assertfail", "fail", "malloc", "free", "bad_access", "texture", "outside"),
            *("access", "sync", "another", "device_runtime", "row", "group", "watch", "absent"),
        )
    ] + [("own_begin", ctypes.c_uint64), ("changed", ctypes.c_uint32), ("watches_all", ctypes.c_uint32)]
    _fields_ += [("change", ctypes.c_void_p), ("unset", ctypes.c_void_p)]
    _fields_ += [("unset_read", ctypes.c_uint32 * 32), ("unset_stored", ctypes.c_uint32 * 32)]
    _fields_ += [("stores_unset", ctypes.c_uint64), ("pair", ctypes.c_void_p), ("end_cta", ctypes.c_void_p)]


class Launch(ctypes.Structure):
    _fields_ = [
        ("params", ctypes.c_void_p), ("next_cta", ctypes.c_void_p), ("cta_count", ctypes.c_uint64),
        ("cta_chunk", ctypes.c_uint64), ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
        ("shared_static_nbytes", ctypes.c_uint32), ("shared_dynamic_nbytes", ctypes.c_uint32),
        ("symbols", ctypes.c_void_p), ("stop", ctypes.c_void_p), ("services", ctypes.c_void_p),
        ("launch_id", ctypes.c_uint64), ("workspace", ctypes.c_void_p), ("places", ctypes.c_uint64),
        ("regions", ctypes.c_void_p), ("region_count", ctypes.c_uint32), ("region", ctypes.c_uint32),
    ]  # fmt: skip


class Thread(ctypes.Structure):
    _fields_ = [
        ("shared", ctypes.c_void_p),
        ("frames", ctypes.c_void_p),
        ("sm", ctypes.c_uint32),
        ("number", ctypes.c_uint32),
        ("cta", ctypes.c_uint32 * 3),
        ("warp", ctypes.c_uint32),
        ("local", ctypes.c_void_p),
        ("counters", ctypes.c_void_p),
        ("known", ctypes.c_uint64 * (abi.KNOWN_COUNT * abi.KNOWN_NBYTES // 8)),
        ("known_shared_nbytes", ctypes.c_uint64),
    ]


_VPRINTF = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_PLACE = (ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32)  # CTA, thread in it
_ASSERT = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_char_p, *_PLACE
)
_BAD_ACCESS = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p, ctypes.c_uint64, *_PLACE)
_OUTSIDE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, *_PLACE)
_FAIL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_char_p)
_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)

_ABSENT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, *_PLACE)
_CHANGE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32)
_ANOTHER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)

LOADER = Loader()
_ANYWHERE = ctypes.CDLL(None).labs  # as the `outside` service it refuses nothing: tests' memory lies anywhere
_MAP_NORESERVE = 0x4000
# The shared window is a reservation of 4 GiB, as in the pool: nothing else may lie within reach of a 32-bit offset.
_WINDOW = mmap.mmap(-1, 1 << 32, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
_WINDOW_ADDRESS = ctypes.addressof(ctypes.c_char.from_buffer(_WINDOW))
HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"


class Events:
    """A kernel's calls to the driver's services."""

    def __init__(self) -> None:
        self.printed: list[tuple[bytes, int]] = []
        self.arguments: list[bytes] = []
        self.failed: list[tuple[int, bytes]] = []
        self.asserted: list[tuple[bytes, bytes, int, bytes]] = []
        self.last_warp: tuple[tuple[int, ...], int] = ((), -1)
        self.places: list[tuple[tuple[int, ...], int]] = []
        self.bad_accesses: list[tuple[int, bytes, int, tuple[int, ...], int]] = []
        self.outside: list[tuple[bytes, int, tuple[int, ...], int]] = []
        self.heap: list[ctypes.Array[ctypes.c_char]] = []
        self.freed: list[int] = []
        self.absent: list[tuple[int, bytes, bool]] = []  # offset in FUNCTIONS, message, whether the launch must fail
        self.further: list[int] = []  # places of CTAs beside the first; 0: the call only lets other threads run
        self.argument_nbytes = 64


def _aligned(nbytes: int, align: int) -> tuple[ctypes.Array[ctypes.c_char], int]:
    buffer = ctypes.create_string_buffer(nbytes + align)
    return buffer, (ctypes.addressof(buffer) + align - 1) // align * align


@functools.cache
def _schedule_library() -> Any:
    """vgx_sim_schedule.c and what it calls, compiled without the rest of the simulator."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/schedule.so"
        folders = (f"-I{ROOT / name}" for name in ("daemon/vgpusim/device", "protocol/c", "build/gen"))
        sources = (ROOT / f"daemon/vgpusim/device/vgx_sim_{name}.c" for name in ("schedule", "fault"))
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", *folders, *sources, "-o", library], check=True)
        return ctypes.CDLL(library)


@functools.lru_cache(maxsize=256)
def module_of(text: str | tuple[str, ...]) -> PtxModule:
    return PtxModule.parse(text) if isinstance(text, str) else PtxModule.link(text)


@functools.lru_cache(maxsize=512)
def _compiled(  # type: ignore[no-untyped-def]
    text: str | tuple[str, ...],
    name: str,
    block: tuple[int, int, int],
    cooperative: bool,
    confined: bool,
    cluster: tuple[int, int, int] | None,
):
    compiled = compile_entry(
        module_of(text), name, block, cache=None, cooperative=cooperative, confined=confined, cluster=cluster
    )
    return compiled, LOADER.load(compiled)


def pack(module: PtxModule, name: str, values: Sequence[object]) -> bytes:
    """A parameter block; arrays give their address, numpy scalars their bytes."""
    info = module.entry(name)
    assert len(info.params) == len(values)
    data = bytearray(info.param_nbytes)
    for param, value in zip(info.params, values, strict=True):
        if isinstance(value, np.ndarray):
            raw = int(value.ctypes.data).to_bytes(8, "little")
        elif isinstance(value, bytes):
            raw = value
        elif isinstance(value, np.generic):
            raw = value.tobytes()
        else:
            raw = (int(value) & ((1 << 8 * param.nbytes) - 1)).to_bytes(param.nbytes, "little")  # type: ignore[call-overload]
        assert len(raw) == param.nbytes, (name, param, value)
        data[param.offset : param.offset + param.nbytes] = raw
    return bytes(data)


def run(
    text: str | tuple[str, ...],
    name: str,
    grid: int | tuple[int, int, int],
    block: int | tuple[int, int, int],
    values: Sequence[object],
    *,
    shared: int = 0,
    stop: int = 0,
    chunk: int = 3,
    cooperative: bool = False,
    confined: bool = True,
    refuse: bool = False,
    cluster: tuple[int, int, int] | None = None,
) -> Events:
    """Launch a kernel and wait for it. Module variables get memory of this process, relocated and initialised.

    Args:
        confined: Passed to compile_entry.
        refuse: Record each access outside the worker's range. Arrays lie outside, so every access to them is recorded.
    """
    if isinstance(grid, int):
        grid = (grid, 1, 1)
    if isinstance(block, int):
        block = (block, 1, 1)
    module = module_of(text)
    compiled, address = _compiled(text, name, block, cooperative, confined, cluster)
    events = Events()

    def vprintf(_: int, fmt: bytes, args: int) -> int:
        events.printed.append((fmt, args))
        events.arguments.append(ctypes.string_at(args, events.argument_nbytes) if args else b"")
        return 7

    def fail(_: int, result: int, message: bytes) -> None:
        events.failed.append((result, message))

    def assertfail(_: int, message: bytes, file: bytes, line: int, function: bytes, cta: Any, thread: int) -> None:
        events.asserted.append((message, file, line, function))
        events.places.append((tuple(cta[0:3]), thread))

    def bad_access(_: int, result: int, what: bytes, address: int, cta: Any, thread: int) -> None:
        events.bad_accesses.append((result, what, address, tuple(cta[0:3]), thread))

    def malloc(_: int, nbytes: int) -> int:
        buffer = ctypes.create_string_buffer(nbytes)
        events.heap.append(buffer)
        return ctypes.addressof(buffer)

    def free(_: int, pointer: int) -> None:
        events.freed.append(pointer)

    callbacks = (
        _VPRINTF(vprintf),
        _ASSERT(assertfail),
        _FAIL(fail),
        _MALLOC(malloc),
        _FREE(free),
        _BAD_ACCESS(bad_access),
    )
    services = Services(*(ctypes.cast(c, ctypes.c_void_p) for c in callbacks))

    def outside(_: int, what: bytes, address: int, cta: Any, thread: int) -> None:
        events.outside.append((what, address, tuple(cta[0:3]), thread))

    refusing = _OUTSIDE(outside)
    services.outside = ctypes.cast(refusing if refuse else _ANYWHERE, ctypes.c_void_p)
    count = grid[0] * grid[1] * grid[2]
    more = ctypes.create_string_buffer(compiled.frame_nbytes * count + 64 if compiled.interleaved else 1)

    def another(_: int, _thread: int, place: int) -> int:
        events.further.append(place)
        return (ctypes.addressof(more) + 63) // 64 * 64

    def absent(_: int, pointer: int, message: bytes, _cta: Any, _thread: int) -> None:
        events.absent.append((pointer - keep[FUNCTIONS][1], message, bool(services.changed)))

    def change(_: int, _may_skip: int) -> int:
        services.changed = abi.CHANGED
        return 1

    asking, changing = _ABSENT(absent), _CHANGE(change)
    services.absent = ctypes.cast(asking, ctypes.c_void_p)
    services.change = ctypes.cast(changing, ctypes.c_void_p)
    making_room = _ANOTHER(another)
    services.another = ctypes.cast(making_room, ctypes.c_void_p)
    data = pack(module, name, values)
    params = ctypes.create_string_buffer(data, len(data) + 16)
    counter, stop_word = ctypes.c_uint64(0), ctypes.c_uint32(stop)
    keep = {v.name: _aligned(max(1, v.nbytes), max(64, v.align)) for v in module.variables}
    for variable in module.variables:
        initial = bytearray(variable.initial.ljust(variable.nbytes, b"\0"))
        for offset, symbol, addend in variable.relocations:
            initial[offset : offset + 8] = (keep[symbol][1] + addend).to_bytes(8, "little")
        ctypes.memmove(keep[variable.name][1], bytes(initial), len(initial))
    symbols = (ctypes.c_uint64 * max(1, len(compiled.symbols)))(*(keep[s][1] for s in compiled.symbols))
    together = cluster or module.entry(name).cluster or (1, 1, 1)
    at_once = int(np.prod(grid if compiled.resident else together))
    frame_nbytes = compiled.frame_nbytes * at_once
    frames, frames_address = _aligned(frame_nbytes + 64, 64)
    ctypes.memset(frames_address, 0xA5, frame_nbytes)
    local_nbytes = compiled.local_nbytes * (count if compiled.interleaved else at_once)
    local, local_address = _aligned(local_nbytes + 64, 64)
    ctypes.memset(local_address, 0xA5, local_nbytes)
    workspace, workspace_address = _aligned(64, 64)
    launch = Launch(
        ctypes.addressof(params), ctypes.addressof(counter), count, chunk,
        (ctypes.c_uint32 * 3)(*grid), (ctypes.c_uint32 * 3)(*block), compiled.shared_nbytes, shared,
        ctypes.addressof(symbols), ctypes.addressof(stop_word), ctypes.addressof(services), 5, workspace_address, count,
    )  # fmt: skip
    thread = Thread(_WINDOW_ADDRESS, frames_address, 3, 0, local=local_address)
    _schedule_library().vgx_sim_schedule(ctypes.c_void_p(address), ctypes.byref(launch), ctypes.byref(thread))
    del frames, local, workspace
    events.last_warp = (tuple(thread.cta), thread.warp)
    events.variables = {n: (b, a) for n, (b, a) in keep.items()}  # type: ignore[attr-defined]
    return events
