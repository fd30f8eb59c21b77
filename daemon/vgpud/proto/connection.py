"""The two ends of a control connection, without I/O.

The caller reads at most `nbytes_wanted` bytes, gives them to `receive`, writes what `send` returns, and stops reading
when `nbytes_wanted` is 0.
"""

from __future__ import annotations

from typing import Any

from .error import LocalProtocolError, RemoteProtocolError
from .frame import CLIENT_FRAME_NBYTES, HOST_FRAME_NBYTES, MAGIC, FrameReader, encode_frame
from .message import CLIENT_MESSAGES, HOST_MESSAGES, ClientMessage, HostMessage
from .state import CLIENT_SENDS, HOST_SENDS, State


def _step(table: dict[tuple[State, str], State], state: State, kind: str, error: type[Exception]) -> State:
    following = table.get((state, kind))
    if following is None:
        raise error(f"{kind} is not allowed in state {state.name}")
    return following


def _message_type(messages: dict[str, Any], kind: object) -> Any:
    if not isinstance(kind, str):
        raise RemoteProtocolError("message without a type")
    found = messages.get(kind)
    if found is None:
        raise RemoteProtocolError(f"unknown message type {kind[:32]!a}")
    return found


def _receive(
    end: HostConnection | ClientConnection,
    data: bytes,
    messages: dict[str, Any],
    table: dict[tuple[State, str], State],
    after_error: State,
) -> Any:
    """The part of a connection that both ends share: decoding the peer's bytes, which carry `messages` in the order of
    `table`."""
    if len(data) > end.nbytes_wanted:
        raise LocalProtocolError(f"{len(data)} bytes read where {end.nbytes_wanted} were wanted")
    try:
        fields = end.reader.receive(data)
        if fields is None:
            return None
        message = _message_type(messages, fields.get("type")).parse(fields)
        end.state = _step(table, end.state, message.type, RemoteProtocolError)
    except RemoteProtocolError:
        end.state = after_error
        raise
    return message


class HostConnection:
    """vgpud's end."""

    def __init__(self, *, welcomed: bool = False) -> None:
        """`welcomed`: the previous vgpud has welcomed the client, which has begun no frame since."""
        self.state = State.WELCOMED if welcomed else State.OPEN
        self.reader = FrameReader(cap_nbytes=CLIENT_FRAME_NBYTES, expect_magic=not welcomed)

    @property
    def nbytes_wanted(self) -> int:
        """Bytes that may be read now: 0 once the connection belongs to the worker, is closed, or an answer must be sent
        first."""
        return self.reader.nbytes_wanted if self.state in (State.OPEN, State.WELCOMED) else 0

    @property
    def in_frame(self) -> bool:
        """Whether the client has begun a frame, which it must finish within a deadline."""
        return self.reader.in_frame

    def receive(self, data: bytes) -> ClientMessage | None:
        """Take bytes from the client; return the message they complete.

        Raises:
            RemoteProtocolError: the client broke the protocol; nothing more may be read.
            LocalProtocolError: more bytes than wanted.
        """
        message: ClientMessage | None = _receive(self, data, CLIENT_MESSAGES, CLIENT_SENDS, State.BROKEN)
        return message

    def send(self, message: HostMessage) -> bytes:
        """The bytes of an answer, header included. Raises LocalProtocolError if no such answer is due."""
        following = _step(HOST_SENDS, self.state, message.type, LocalProtocolError)
        data = encode_frame({"type": message.type} | message.fields(), cap_nbytes=HOST_FRAME_NBYTES)
        self.state = following
        return data


class ClientConnection:
    """A client's end, in Python: for `vgpu devices`, `vgpu ping` and the tests."""

    def __init__(self) -> None:
        self.state = State.OPEN
        self.reader = FrameReader(cap_nbytes=HOST_FRAME_NBYTES, expect_magic=False)

    @property
    def nbytes_wanted(self) -> int:
        """Bytes that may be read now: 0 before hello is sent and after the control phase."""
        return 0 if self.state in (State.STREAMING, State.CLOSED, State.OPEN) else self.reader.nbytes_wanted

    def receive(self, data: bytes) -> HostMessage | None:
        """Take bytes from the host; return the message they complete. Raises as HostConnection.receive."""
        message: HostMessage | None = _receive(self, data, HOST_MESSAGES, HOST_SENDS, State.CLOSED)
        return message

    def send(self, message: ClientMessage) -> bytes:
        """The bytes of a request, the magic before the first. Raises LocalProtocolError when it is not allowed."""
        first = self.state is State.OPEN
        following = _step(CLIENT_SENDS, self.state, message.type, LocalProtocolError)
        data = encode_frame({"type": message.type} | message.fields(), cap_nbytes=CLIENT_FRAME_NBYTES)
        self.state = following
        return MAGIC + data if first else data
