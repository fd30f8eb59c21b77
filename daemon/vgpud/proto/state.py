"""The control phase's states and every legal transition. Anything not in a table is an error of its sender."""

from __future__ import annotations

from enum import Enum, auto


class State(Enum):
    """The state of a connection in its control phase."""

    OPEN = auto()  # connected; the client's hello is awaited
    DECIDING = auto()  # hello has come; the host's welcome or refusal is awaited
    WELCOMED = auto()  # discovery is done; ping, nvml and attach are allowed
    ATTACHING = auto()  # attach has come; the connection belongs to the worker (or is refused after all)
    STREAMING = auto()  # attached: the command stream has begun
    BROKEN = auto()  # the client broke the protocol; nothing more is read, a refusal may be sent
    CLOSED = auto()


# (state, message type) -> next state. Both peers use the same table; which peer may send a message follows from its
# type.
CLIENT_SENDS: dict[tuple[State, str], State] = {
    (State.OPEN, "hello"): State.DECIDING,
    (State.WELCOMED, "ping"): State.WELCOMED,
    (State.WELCOMED, "nvml"): State.WELCOMED,
    (State.WELCOMED, "attach"): State.ATTACHING,
}

HOST_SENDS: dict[tuple[State, str], State] = {
    (State.DECIDING, "welcome"): State.WELCOMED,
    (State.OPEN, "refused"): State.CLOSED,
    (State.DECIDING, "refused"): State.CLOSED,
    (State.WELCOMED, "refused"): State.CLOSED,
    (State.ATTACHING, "refused"): State.CLOSED,
    (State.BROKEN, "refused"): State.CLOSED,
    (State.WELCOMED, "pong"): State.WELCOMED,
    (State.WELCOMED, "answer"): State.WELCOMED,
    (State.ATTACHING, "attached"): State.STREAMING,
}
