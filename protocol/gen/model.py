"""What a function of the API is: its parameters, how it travels, who writes its two halves.

The specification modules build these objects through the short names of `dsl.py`; the emitters only read them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class SpecError(Exception):
    """A wrong entry; the message begins with the function's name."""


class Travel(Enum):
    """How a call gets its answer."""

    LOCAL = "local"  # answered in the client from what it holds
    QUEUED = "queued"  # sent; nothing comes back; an error waits for the next waiting call
    WAITING = "waiting"  # sent; the caller sleeps until the reply


class Need(Enum):
    """What must hold on entry; the exported function checks it before anything else, as the real driver does."""

    NOTHING = "none"
    INIT = "init"  # cuInit succeeded in this process
    CONTEXT = "context"  # the calling thread has a current context


@dataclass(frozen=True)
class Scalar:
    """A value of fixed size. `wire` is its field type in a record."""

    c: str
    wire: str
    trace: str  # how the trace prints it: i, u, x, f


@dataclass(frozen=True)
class Kind:
    """A kind of handle. `code` is its tag inside a handle value and never changes."""

    name: str
    code: int
    c: str


class Role(Enum):
    VALUE = "value"
    HANDLE = "handle"
    OUT = "out"
    OUT_HANDLE = "out_handle"
    BYTES_IN = "bytes_in"
    BYTES_OUT = "bytes_out"
    TEXT_IN = "text_in"
    STRUCT_IN = "struct_in"
    STRUCT_OUT = "struct_out"
    POINTER = "pointer"  # client side only: never travels


@dataclass(frozen=True)
class Param:
    name: str
    role: Role
    c: str  # type in the driver's prototype
    scalar: Scalar | None = None
    kind: Kind | None = None
    size: str | None = None  # for bytes: the parameter that says how many
    cap: int = 0  # for bytes and text: the largest accepted size on the host

    @property
    def declaration(self) -> str:
        return f"{self.c}{self.name}" if self.c.endswith("*") else f"{self.c} {self.name}"


@dataclass
class Function:
    name: str
    args: list[Param]
    travel: Travel
    need: Need
    doc: str
    wire: list[Param] | None = None  # what travels, where that is not `args`
    guest_custom: bool = False
    host_custom: bool = False
    backend: bool = True  # the backend table has a member of this name
    blocks: bool = False  # may wait for the GPU: another thread goes on reading meanwhile
    exported: bool = True
    aliases: list[str] = field(default_factory=list)
    module: str = ""
    opcode: int = 0  # from ids.lock; 0: does not travel

    @property
    def travels(self) -> bool:
        return self.travel is not Travel.LOCAL

    @property
    def sent(self) -> list[Param]:
        return self.args if self.wire is None else self.wire

    def stream_param(self) -> Param | None:
        return next((p for p in self.args if p.kind is not None and p.kind.name == "STREAM"), None)

    def check(self) -> None:
        """Raise SpecError for an entry that no emitter could turn into correct code."""
        names = [p.name for p in self.sent]
        if len(set(names)) != len(names):
            raise SpecError(f"{self.name}: two parameters of one name")
        if not self.doc:
            raise SpecError(f"{self.name}: no doc")
        for p in self.sent if self.travels else []:
            if p.role is Role.POINTER:
                raise SpecError(f"{self.name}: {p.name} is a client pointer and cannot travel; give wire=")
            if p.role in (Role.BYTES_IN, Role.BYTES_OUT) and (p.size not in names or not p.cap):
                raise SpecError(f"{self.name}: {p.name} needs size= (a parameter) and cap=")
        if self.travel is Travel.QUEUED and any(p.role in OUT_ROLES for p in self.sent):
            raise SpecError(f"{self.name}: a queued call has no results")
        if self.wire is not None and not self.travels:
            raise SpecError(f"{self.name}: wire= without travelling")
        if self.wire is not None and not (self.guest_custom and self.host_custom):
            raise SpecError(f"{self.name}: with wire= both halves are hand-written")


OUT_ROLES = (Role.OUT, Role.BYTES_OUT, Role.STRUCT_OUT)
IN_PART_ROLES = (Role.BYTES_IN, Role.TEXT_IN)
