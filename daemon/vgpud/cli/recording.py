"""A recording of a session (tenancy/recordings.py), and the same calls once more."""

from __future__ import annotations

import json
import socket
import struct
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from vgpud._gen.api import HEADER, RECORDS, WANT_REPLY
from vgpud.tenancy.recordings import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ENTRY = struct.Struct("<IIQ")  # struct vgx_recorded_entry
_CALL, _ANSWER = 1, 2  # VGX_RECORDED_*; the third says that the limit was reached

# Their answers depend on when they are asked, or are new each time.
_UNSTEADY = {"cuEventElapsedTime", "cuEventElapsedTime_v2", "cuEventQuery", "cuStreamQuery", "vgpuIpcEventQuery"}
_UNSTEADY |= {"vgpuActivityClock", "vgpuActivityTake", "cuIpcGetMemHandle", "cuIpcGetEventHandle"}
_UNSTEADY |= {"cuMemExportToShareableHandle", "cuMemPoolExportToShareableHandle", "cuMemPoolExportPointer"}

_NAMES = {record.opcode: record.name for record in RECORDS}


class RecordingError(Exception):
    """The file is no recording; the text says why."""


class Entry(NamedTuple):
    """A call that began (`is_call`), or its answer."""

    is_call: bool
    call: int
    data: bytes


@dataclass(slots=True)
class Difference:
    """The first call whose answer differs."""

    call: int
    name: str
    recorded: str
    replayed: str


@dataclass(slots=True)
class Outcome:
    """What a replay found."""

    calls: int = 0
    compared: int = 0
    different: int = 0
    first: Difference | None = None
    is_whole: bool = True  # False: the recording ended before the session


@dataclass(slots=True)
class Recording:
    """A file's contents."""

    about: dict[str, Any]
    entries: list[Entry] = field(default_factory=list)
    is_whole: bool = True


def read_recording(path: Path) -> Recording:
    """Read a file; one that ends within an entry ends with the entry before. Raises OSError, RecordingError."""
    data = path.read_bytes()
    begin = len(MAGIC) + 4
    if not data.startswith(MAGIC) or len(data) < begin:
        raise RecordingError("it does not begin as a recording does")
    begin += int.from_bytes(data[len(MAGIC) : begin], "little")
    try:
        about = json.loads(data[len(MAGIC) + 4 : begin])
    except ValueError as error:
        raise RecordingError("its description is damaged") from error
    if not isinstance(about, dict):
        raise RecordingError("its description is damaged")
    recording = Recording(about)
    for kind, call, content in _entries(data, begin):
        if kind not in (_CALL, _ANSWER) or len(content) < HEADER.size:
            recording.is_whole = False
            break
        recording.entries.append(Entry(kind == _CALL, call, content))
    return recording


def _entries(data: bytes, at: int) -> Iterator[tuple[int, int, bytes]]:
    while at + _ENTRY.size <= len(data):
        kind, nbytes, call = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        if at + nbytes > len(data):
            return
        yield kind, call, data[at : at + nbytes]
        at += nbytes + -nbytes % 8


class Replay:
    """Sends a recording's calls on an attached socket, in the order in which the worker began them, and reads each
    answer where the recording has it."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._sock = sock
        self._timeout_s = timeout_s
        self._replies: dict[int, bytes] = {}
        self._came = threading.Condition()
        self._is_over = False
        self._outcome = Outcome()

    def run(self, recording: Recording) -> Outcome:
        """Replay it. Raises OSError, TimeoutError."""
        self._sock.settimeout(None)  # the reader waits without limit; what is sent has one of its own:
        limit = struct.pack("@ll", *divmod(round(self._timeout_s * 1_000_000), 1_000_000))  # struct timeval
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        reader = threading.Thread(target=self._read, daemon=True)
        reader.start()
        self._outcome.is_whole = recording.is_whole
        waiting: dict[int, str] = {}
        for entry in recording.entries:
            if entry.is_call:
                try:
                    self._call(entry, waiting)
                except (BrokenPipeError, ConnectionResetError):
                    self._differs(entry.call, _name(entry), "begun", "the worker had ended")
                    break
            elif (name := waiting.pop(entry.call, None)) is not None:
                self._compare(name, entry)
        else:
            self._sock.shutdown(socket.SHUT_WR)
        reader.join(self._timeout_s)
        return self._outcome

    def _call(self, entry: Entry, waiting: dict[int, str]) -> None:
        length, opcode, flags, _sequence, context = HEADER.unpack_from(entry.data)
        self._outcome.calls += 1
        if flags & WANT_REPLY:
            waiting[entry.call] = _name(entry)
        record = HEADER.pack(length, opcode, flags, entry.call & 0xFFFFFFFF, context) + entry.data[HEADER.size :]
        try:
            self._sock.sendall(record)
        except BlockingIOError as error:  # SO_SNDTIMEO
            raise TimeoutError("the worker reads nothing more") from error

    def _compare(self, name: str, entry: Entry) -> None:
        reply = self._reply(entry.call)
        if reply is None:
            self._differs(entry.call, name, _shown(entry.data), "no answer")
        elif name not in _UNSTEADY:
            self._outcome.compared += 1
            if (_result(reply), reply[HEADER.size :]) != (_result(entry.data), entry.data[HEADER.size :]):
                self._differs(entry.call, name, _shown(entry.data), _shown(reply))

    def _differs(self, call: int, name: str, recorded: str, replayed: str) -> None:
        self._outcome.different += 1
        if self._outcome.first is None:
            self._outcome.first = Difference(call, name, recorded, replayed)

    def _reply(self, call: int) -> bytes | None:
        number = call & 0xFFFFFFFF
        with self._came:
            if not self._came.wait_for(lambda: number in self._replies or self._is_over, self._timeout_s):
                raise TimeoutError
            return self._replies.pop(number, None)

    def _read(self) -> None:
        while (header := self._exactly(HEADER.size)) is not None:
            length, opcode, _flags, sequence, _result = HEADER.unpack(header)
            body = self._exactly(length - HEADER.size)
            if body is None:
                break
            if opcode:  # else a line about what takes the host long
                with self._came:
                    self._replies[sequence] = header + body
                    self._came.notify_all()
        with self._came:
            self._is_over = True
            self._came.notify_all()

    def _exactly(self, nbytes: int) -> bytes | None:
        data = bytearray()
        while len(data) < nbytes:
            try:
                some = self._sock.recv(nbytes - len(data))
            except OSError:
                return None
            if not some:
                return None
            data += some
        return bytes(data)


def _name(entry: Entry) -> str:
    opcode = int(HEADER.unpack_from(entry.data)[1])
    return _NAMES.get(opcode, f"opcode {opcode}")


def _result(record: bytes) -> int:
    return int(HEADER.unpack_from(record)[4])


def _shown(record: bytes) -> str:
    body = record[HEADER.size :]
    return f"result {_result(record)}, {len(body)} bytes" + (f" {body[:32].hex()}" if body else "")
