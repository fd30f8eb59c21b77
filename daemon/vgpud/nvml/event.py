"""Events of the host's devices (Xid errors, ECC errors, ...), kept by number for every guest that waits for some.

One thread waits for all devices from the first question on. Xids that a program causes are left out: they tell of
whichever tenant's program it was, and a guest hears of its own by its calls' errors.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from ..log import get_logger
from ..proto import Answer
from .call import NvmlResult, pack_struct

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEPT = 1024
_MOST_AT_ONCE = 64  # the capacity of a guest's question
_WAIT_MS = 1000
_DATA = struct.Struct("<QQQII")  # nvmlEventData_t: device, type, data, GPU instance, compute instance
_XID = 8  # nvmlEventTypeXidCriticalError
# NVIDIA's "XID Errors": 13 and 31 faults of a kernel, 43 and 45 channels reset after them, 68 and 109 likewise.
_OF_PROGRAMS = {13, 31, 43, 45, 68, 109}


class HostEvents:
    """The events of the devices `handles` of the host's NVML."""

    def __init__(self, library: ctypes.CDLL | None, handles: Sequence[ctypes.c_void_p | None]) -> None:
        self._library = library
        self._handles = handles
        self._lock = threading.Lock()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=_KEPT)
        self._last = 0
        self._started = False

    def after(self, number: int) -> Answer:
        """[the last number seen, structs of at most 64 events after `number`]; a negative number: no events."""
        if self._library is None:
            return Answer(NvmlResult.NOT_SUPPORTED)
        if not self._started:
            self._started = True
            if not self._start():
                self._library = None
                return Answer(NvmlResult.NOT_SUPPORTED)
        with self._lock:
            if number < 0:
                return Answer(NvmlResult.SUCCESS, [self._last, []])
            found = [event for event in self._kept if event[0] > number][:_MOST_AT_ONCE]
        return Answer(NvmlResult.SUCCESS, [found[-1][0] if found else number, [data for _, data in found]])

    def put(self, device: int, kind: int, data: int, gpu_instance: int, compute_instance: int) -> None:
        """Keep one event, unless it is an error of a program."""
        if kind == _XID and data in _OF_PROGRAMS:
            return
        with self._lock:
            self._last += 1
            packed = pack_struct(
                "vgpuDeviceEvent_t",
                sequence=self._last,
                eventType=kind,
                eventData=data,
                device=device,
                gpuInstanceId=gpu_instance,
                computeInstanceId=compute_instance,
            )
            self._kept.append((self._last, packed))

    def _start(self) -> bool:
        """Register every type that each device reports, and start the thread that waits."""
        library: Any = self._library
        events = ctypes.c_void_p()
        if library.nvmlEventSetCreate(ctypes.byref(events)):
            return False
        for handle in self._handles:
            types = ctypes.c_uint64()
            if handle is not None and not library.nvmlDeviceGetSupportedEventTypes(handle, ctypes.byref(types)):
                library.nvmlDeviceRegisterEvents(handle, types, events)
        threading.Thread(target=self._wait, args=(library, events), name="nvml-events", daemon=True).start()
        return True

    def _wait(self, library: Any, events: ctypes.c_void_p) -> None:
        by_handle = {handle.value: index for index, handle in enumerate(self._handles) if handle is not None}
        memory = ctypes.create_string_buffer(_DATA.size)
        while True:
            code = int(library.nvmlEventSetWait_v2(events, memory, ctypes.c_uint32(_WAIT_MS)))
            if code == NvmlResult.SUCCESS:
                handle, *event = _DATA.unpack(memory.raw)
                if handle in by_handle:
                    self.put(by_handle[handle], *event)
            elif code != NvmlResult.TIMEOUT:
                get_logger().warning("the host's NVML no longer reports events", code=code)
                return
