"""NVML's answers for real devices: those of the host's own NVML, as far as a tenant may see them. Functions are called
by the description from which the guest's library is generated, so every answer has the guest's layout. Identity comes
from the inventory. Process lists hold the guest's own processes only; facts about the host (its virtualisation) are not
forwarded.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import struct
import time
from typing import TYPE_CHECKING, Any

from ..devices.selection import name_of
from ..log import get_logger
from ..proto import Answer
from .call import CALLS, Call, NvmlResult, Param
from .event import HostEvents
from .identity import NOT_SUPPORTED, Given, Known, identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .guest import GuestProcess

_HIDDEN = {"nvmlDeviceGetVirtualizationMode"}
_CACHED_S = 0.05  # clients that ask the same question within this time cause one call of the host's NVML
_CACHE_CAP = 1024
_TIMEOUT_S = 4.0  # less than the guest's library waits for an answer
_TEXT_NBYTES = 256
_ITEMS_CAP = 4096  # more than the greatest list, the 4,000 processes of accounting
_STRUCT_NBYTES_MASK = 0xFFFFFF
_PID_NBYTES = 4
# Lists that hold every process of the device: where an item has its pid, in bytes.
_OF_PROCESSES = {
    **{
        f"nvmlDeviceGet{kind}RunningProcesses{version}": 0
        for kind in ("Compute", "Graphics", "MPSCompute")
        for version in ("", "_v2", "_v3")
    },
    "nvmlDeviceGetAccountingPids": 0,
    "nvmlDeviceGetProcessUtilization": 0,
    "nvmlDeviceGetEncoderSessions": 4,
    "nvmlDeviceGetFBCSessions": 4,
}
_FIELD = struct.Struct("<II")  # nvmlFieldValue_t begins with the field and its scope


class HostNvml:
    """The host's NVML for the devices of `inventory`. Where it is missing, only identity is answered."""

    def __init__(self, inventory: dict[str, Any], library: str = "libnvidia-ml.so.1") -> None:
        self._library = _open(library)
        self._handles = [self._find(device) for device in inventory["devices"]]
        self._static = [self._ask_static(i, device) for i, device in enumerate(inventory["devices"])]
        self._events = HostEvents(self._library, self._handles)
        self._recent: dict[tuple[int, str, tuple[int, ...]], tuple[float, Answer]] = {}

    def snapshot(self, index: int, call: Call) -> list[tuple[Given, Answer]]:
        """Answers that never change, collected when vgpud started."""
        known = self._static[index].get(call.name)
        if known is not None:
            return list(known.items())
        unanswered = call.name in _HIDDEN or self._handles[index] is None
        return [(None, NOT_SUPPORTED)] if unanswered else []

    async def live(self, index: int, call: Call, given: tuple[int, ...], guest: Sequence[GuestProcess]) -> Answer:
        """The current answer, or one at most 50 ms old. The host's NVML may be slow, so a thread calls it."""
        if call.name == "nvmlDeviceGetAccountingStats":
            worker = next((process.worker_pid for process in guest if process.pid == given[0]), None)
            if worker is None:
                return Answer(NvmlResult.NOT_FOUND)
            given = (worker,)
        key = (index, call.name, given)
        then, answer = self._recent.get(key, (0.0, NOT_SUPPORTED))
        if time.monotonic() - then > _CACHED_S:
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    answer = await asyncio.to_thread(self._ask, index, call, given)
            except TimeoutError:
                return Answer(NvmlResult.TIMEOUT)
            if len(self._recent) >= _CACHE_CAP:
                self._recent.clear()
            self._recent[key] = (time.monotonic(), answer)
        if call.name not in _OF_PROCESSES or answer.result != NvmlResult.SUCCESS:
            return answer
        own = _only_own(answer, guest, _OF_PROCESSES[call.name])
        if call.name == "nvmlDeviceGetProcessUtilization" and not own.value[0]:
            return Answer(NvmlResult.NOT_FOUND)  # as of a device that no process has used
        return own

    def events(self, after: int) -> Answer:
        """The devices' events after number `after`; a negative one: their last number alone."""
        return self._events.after(after)

    def _find(self, device: dict[str, Any]) -> ctypes.c_void_p | None:
        """The host's handle of a device, by UUID, as NVML may order devices differently."""
        handle = ctypes.c_void_p()
        text = name_of(device).encode()
        if self._library is None or self._library.nvmlDeviceGetHandleByUUID(text, ctypes.byref(handle)):
            return None
        return handle

    def _ask_static(self, index: int, device: dict[str, Any]) -> Known:
        known = identity(device)
        for call in CALLS.values():
            if call.in_snapshot and call.of_device and call.name not in known and call.name not in _HIDDEN:
                known[call.name] = {given: self._ask(index, call, given) for given in _questions(call)}
        return known

    def _ask(self, index: int, call: Call, given: tuple[int, ...]) -> Answer:
        handle = self._handles[index]
        if self._library is None or handle is None or call.name in _HIDDEN:
            return NOT_SUPPORTED
        try:
            function = self._library[call.name]
        except AttributeError:
            return NOT_SUPPORTED  # an older host driver
        arguments: list[Any] = []
        results: list[Callable[[], Any]] = []
        numbers = iter(given)
        for param in call.params:
            if param.role == "DEVICE":
                arguments.append(handle)
            elif param.role == "GIVEN":
                arguments.append((ctypes.c_uint64 if param.nbytes == 8 else ctypes.c_uint32)(next(numbers)))
            else:
                _prepare(param, numbers, arguments, results)
        reshape = _RESHAPED.get(call.name)
        if reshape is not None and not reshape(arguments, self._handles):
            return Answer(NvmlResult.INVALID_ARGUMENT)
        code = int(function(*arguments))
        return Answer(code, [result() for result in results]) if code == NvmlResult.SUCCESS else Answer(code)


def _prepare(param: Param, numbers: Iterator[int], arguments: list[Any], results: list[Callable[[], Any]]) -> None:
    """A buffer for the result that the function writes through one parameter, and how to read it."""
    if param.role == "WRITTEN":
        number = (ctypes.c_uint64 if param.nbytes == 8 else ctypes.c_uint32)()
        arguments.append(ctypes.byref(number))
        results.append(lambda: number.value)
    elif param.role in ("TEXT", "FIXED_TEXT"):
        text = ctypes.create_string_buffer(_TEXT_NBYTES)
        arguments.append(text)
        results.append(lambda: text.value.decode(errors="replace"))
    elif param.role == "LENGTH":
        arguments.append(ctypes.c_uint32(_TEXT_NBYTES))
    elif param.role == "COUNT":
        arguments.append(ctypes.byref(ctypes.c_uint32(_ITEMS_CAP)))
    elif param.role == "ITEMS":
        count = arguments[-1]._obj
        items = ctypes.create_string_buffer(_ITEMS_CAP * param.nbytes)
        arguments.append(items)
        results.append(lambda: [items.raw[i * param.nbytes : (i + 1) * param.nbytes] for i in range(count.value)])
    else:
        words = list(itertools.islice(numbers, 1 + param.inputs)) if param.role == "VERSIONED" else []
        nbytes = words[0] & _STRUCT_NBYTES_MASK if words else param.nbytes
        memory = ctypes.create_string_buffer(max(nbytes, 4 * len(words), 4))
        ctypes.memmove(memory, (ctypes.c_uint32 * len(words))(*words), 4 * len(words))
        arguments.append(memory)
        results.append(lambda: memory.raw[:nbytes])


def _pair(arguments: list[Any], handles: Sequence[Any]) -> bool:
    """(device, index of another, ...): the other's handle."""
    index = arguments[1].value
    if index >= len(handles) or handles[index] is None:
        return False
    arguments[1] = handles[index]
    return True


def _one_field(arguments: list[Any], _handles: Sequence[Any]) -> bool:
    """(device, field, scope, value): an array of one value that names both."""
    device, field, scope, value = arguments
    _FIELD.pack_into(value, 0, field.value, scope.value)
    arguments[:] = [device, ctypes.c_int(1), value]
    return True


def _array_before_count(arguments: list[Any], _handles: Sequence[Any]) -> bool:
    """(device, since, count, items): the order of nvmlDeviceGetProcessUtilization."""
    device, since, count, items = arguments
    arguments[:] = [device, items, count, since]
    return True


def _with_size(arguments: list[Any], _handles: Sequence[Any]) -> bool:
    """(device, array): the array's bytes follow."""
    arguments.append(ctypes.c_uint32(len(arguments[1])))
    return True


# Functions whose parameters differ from those of the question (`asks` in the description).
_RESHAPED: dict[str, Callable[[list[Any], Sequence[Any]], bool]] = {
    "nvmlDeviceGetFieldValues": _one_field,
    "nvmlDeviceGetP2PStatus": _pair,
    "nvmlDeviceGetProcessUtilization": _array_before_count,
    "nvmlDeviceGetSupportedPerformanceStates": _with_size,
    "nvmlDeviceGetTopologyCommonAncestor": _pair,
    "nvmlDeviceOnSameBoard": _pair,
}


def _open(name: str) -> ctypes.CDLL | None:
    """The host's NVML, initialised for the daemon's life; None, and a line in the log, where there is none."""
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        get_logger().warning("no NVML on this host: guests get identity only", error=str(error))
        return None
    code = int(library.nvmlInit_v2())
    if code != NvmlResult.SUCCESS:
        get_logger().warning("the host's NVML cannot be initialised: guests get identity only", code=code)
        return None
    return library


def _questions(call: Call) -> list[tuple[int, ...]]:
    """Every combination of integers that the snapshot of a call holds."""
    versions = [param.versions[0] for param in call.params if param.versions]
    given = call.argument_count - len(versions)
    return [tuple(versions) + tail for tail in itertools.product(range(call.domain), repeat=given)]


def _only_own(answer: Answer, guest: Sequence[GuestProcess], offset: int) -> Answer:
    """The host's list with the guest's workers only, each under the pid of the process it works for.

    `offset`: where an item has its pid, in bytes.
    """
    pids = {process.worker_pid: process.pid for process in guest}
    own = []
    for item in answer.value[0]:
        pid = pids.get(int.from_bytes(item[offset : offset + _PID_NBYTES], "little"))
        if pid is not None:
            own.append(item[:offset] + pid.to_bytes(_PID_NBYTES, "little") + item[offset + _PID_NBYTES :])
    return Answer(NvmlResult.SUCCESS, [*answer.value[:-1], own])
