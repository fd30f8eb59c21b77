"""A minimal daemon and worker, scripted by the test: they record the client's messages and answer as the test says."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
from vgpud._gen.api import HEADER, RECORDS, WANT_REPLY, Record

BY_OPCODE = {record.opcode: record for record in RECORDS}
STRUCTS = {"CUmemAllocationProp": "32s", "CUmemLocation": "8s", "CUipcMemHandle": "64s", "CUipcEventHandle": "64s"}
FORMATS = {"uint64_t": "Q", "uint32_t": "I", "int32_t": "i", "float": "f", **STRUCTS}

Fields = dict[str, Any]
# Maps a record's fixed fields and variable parts to the result, and the reply's fixed fields and variable part.
Handler = Callable[[Fields, list[bytes]], tuple[int, Fields, bytes]]


def device(index: int = 0) -> dict[str, Any]:
    """An inventory entry; its UUID begins with the index in hex."""
    attributes = [-(2**31)] + [1] * 147
    for key, value in {1: 1024, 2: 1024, 3: 1024, 4: 64, 5: 2147483647, 6: 65535, 7: 65535, 8: 49152, 10: 32}.items():
        attributes[key] = value
    for key, value in {16: 132, 33: index, 34: 6, 39: 2048, 50: 0, 69: 1 << 27, 75: 9, 76: 0}.items():
        attributes[key] = value
    return {
        "name": f"Fake {index}",
        "uuid": bytes([index * 16 + index]) + bytes(range(15)),
        "pci": f"0000:{index:02x}:06.0",
        "memory_nbytes": 80 << 30,
        "attributes": struct.pack(f"<{len(attributes)}i", *attributes),
        "limits": struct.pack("<4Q", 1024, 8 << 20, 8 << 20, 2**64 - 1),
        "priorities": [0, -5],
        "granularity": [2 << 20, 2 << 20],
        "context_nbytes": 1 << 20,
    }


def welcome(devices: int = 1, epoch: int = 7, **changes: Any) -> dict[str, Any]:
    """A valid welcome, with `changes` to its top-level keys."""
    inventory = {
        "driver_version": 13000,
        "driver_release": "580.159.04",
        "backend": "simulator",
        "devices": [device(i) for i in range(devices)],
    }
    return {
        "type": "welcome",
        "version": 1,
        "features": [],
        "epoch": epoch,
        "caps": {"record_nbytes": 4 << 20},
        "inventory": inventory,
        "something new": [{"a": 1.5}, None, True, -(2**40)],
    } | changes


def pad8(data: bytes) -> bytes:
    """`data` with zeros up to a multiple of 8."""
    return data + bytes(-len(data) % 8)


def frame(message: Any) -> bytes:
    """A control frame."""
    body = msgpack.packb(message)
    return struct.pack("<I", len(body)) + body


def layout(fields: tuple[tuple[str, str], ...]) -> struct.Struct:
    """The layout of a record's fixed fields; the generator orders the fields so that no padding is needed."""
    return struct.Struct("<" + "".join(FORMATS[c] for c, _ in fields))


class FakeDaemon:
    """Listens on a unix socket and serves every connection on its own thread until closed."""

    def __init__(self, path: Path, first: Callable[[], bytes | None] | None = None, **answers: Handler) -> None:
        """`first` returns the bytes to send for a welcome (None: hang up); `answers` are handlers by function name."""
        self.url = f"unix:{path}"
        self.first = first or (lambda: frame(welcome()))
        self.answers = answers
        self.hellos: list[Any] = []
        self.calls: list[tuple[str, Fields, list[bytes], int]] = []  # name, fields, parts, context
        self.waited: list[str] = []  # names of the records whose reply the client waits for
        self.connections: list[socket.socket] = []
        self.ended = 0
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> FakeDaemon:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.close()

    def names(self) -> list[str]:
        """Names of the records so far, in order."""
        with self._lock:
            return [name for name, *_ in self.calls]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._talk(connection)
        except (OSError, EOFError):
            pass
        finally:
            self.ended += 1
            connection.close()

    def _talk(self, connection: socket.socket) -> None:
        assert _exactly(connection, 4) == b"VGPU"
        self.hellos.append(_message(connection))
        answer = self.first()
        if answer is None:
            return
        connection.sendall(answer)
        assert _message(connection)["type"] == "attach"
        connection.sendall(frame({"type": "attached", "worker": 1}))
        sending = threading.Lock()
        while True:
            length, opcode, flags, sequence, context = HEADER.unpack(_exactly(connection, HEADER.size))
            body = _exactly(connection, length - HEADER.size)
            record = BY_OPCODE[opcode]
            fields, parts = _decode(record, body)
            with self._lock:
                self.calls.append((record.name, fields, parts, context))
                if flags & WANT_REPLY:
                    self.waited.append(record.name)
            handler = self.answers.get(record.name)
            arguments = (connection, sending, record, flags, sequence, handler, fields, parts)
            if handler is not None and getattr(handler, "blocks", False):
                threading.Thread(target=_answer, args=arguments, daemon=True).start()
            else:
                _answer(*arguments)


def blocking(handler: Handler) -> Handler:
    """Mark a handler that may take long: it runs on a thread of its own, and later records go on meanwhile."""
    handler.blocks = True  # type: ignore[attr-defined]
    return handler


def _answer(
    connection: socket.socket,
    sending: threading.Lock,
    record: Record,
    flags: int,
    sequence: int,
    handler: Handler | None,
    fields: Fields,
    parts: list[bytes],
) -> None:
    if handler is not None:
        result, reply, part = handler(fields, parts)
    else:
        result, reply, part = (801 if record.reply or record.reply_parts else 0), {}, b""
    if not flags & WANT_REPLY:
        return
    body = b""
    if not result:
        body = pad8(layout(record.reply).pack(*(reply.get(name, 0) for _, name in record.reply))) + pad8(part)
    notices = getattr(handler, "notices", 0)
    with sending, contextlib.suppress(OSError):  # the client may have ended meanwhile
        header = HEADER.pack(HEADER.size + len(body), record.opcode, notices, sequence, result & 0xFFFFFFFF)
        connection.sendall(getattr(handler, "before", b"") + header + body)


def _exactly(connection: socket.socket, nbytes: int) -> bytes:
    data = bytearray()
    while len(data) < nbytes:
        piece = connection.recv(nbytes - len(data))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def _message(connection: socket.socket) -> Any:
    (nbytes,) = struct.unpack("<I", _exactly(connection, 4))
    return msgpack.unpackb(_exactly(connection, nbytes))


def _decode(record: Record, body: bytes) -> tuple[Fields, list[bytes]]:
    fixed = layout(record.request)
    fields = dict(zip((name for _, name in record.request), fixed.unpack_from(body), strict=True))
    rest = body[len(pad8(bytes(fixed.size))) :]
    parts = []
    for _, what, _, length in record.parts:
        nbytes = fields[length] * (1 if what in ("bytes", "text") else 4)  # handles; no test sends structs
        parts.append(rest[:nbytes])
        rest = rest[len(pad8(bytes(nbytes))) :]
    assert not rest, (record.name, len(rest))
    return fields, parts


class Memory:
    """Device memory for handlers: allocations at made-up addresses."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytearray] = {}
        self.next = 0x7F0000000000

    def alloc(self, fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        """Handler of cuMemAlloc_v2."""
        address = self.next
        self.next += (fields["bytesize"] + 511) // 512 * 512
        self.blocks[address] = bytearray(fields["bytesize"])
        return 0, {"dptr": address}, b""

    def find(self, address: int) -> tuple[bytearray, int]:
        """The block that holds an address, and the offset in it."""
        base = max(b for b in self.blocks if b <= address)
        return self.blocks[base], address - base

    def write(self, fields: Fields, parts: list[bytes]) -> tuple[int, Fields, bytes]:
        """Handler of cuMemcpyHtoDAsync_v2."""
        block, offset = self.find(fields["dstDevice"])
        block[offset : offset + len(parts[0])] = parts[0]
        return 0, {}, b""

    def read(self, fields: Fields, _parts: list[bytes]) -> tuple[int, Fields, bytes]:
        """Handler of cuMemcpyDtoHAsync_v2."""
        block, offset = self.find(fields["srcDevice"])
        return 0, {}, bytes(block[offset : offset + fields["ByteCount"]])

    @property
    def handlers(self) -> dict[str, Handler]:
        """The handlers of this memory, by function name."""
        return {
            "cuMemAlloc_v2": self.alloc,
            "cuMemcpyHtoDAsync_v2": self.write,
            "cuMemcpyDtoHAsync_v2": self.read,
        }
