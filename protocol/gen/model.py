"""What a function of the API is: its parameters, how it travels, what it does to objects, who writes its two halves.

The specification modules build these objects through the short names of `dsl.py`; the emitters only read them, and know
no function by its name.
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


class Channel(Enum):
    """The channels that may carry a call. SOCKET and RING concern the channel itself: their replies carry no queued
    call's error."""

    ANY = "any"
    SOCKET = "socket"  # never a ring
    BESIDE = "beside"  # the client sends it on the socket, where no queued call of its ring holds it up
    RING = "ring"  # the client's rings put it into a ring themselves; marshalling sends it on the socket


class Turn(Enum):
    """When the worker executes a record of the socket while it reads ahead (vgx_ahead.h)."""

    IN_TURN = "in_turn"
    OVERTAKES = "overtakes"  # at once, before records that came earlier, and in no context: a driver may wait there
    ASKS = "asks"  # in a thread of its own: its answer waits for something


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
    struct: str = "vgs_object"  # the client's object
    within: str = ""  # CONTEXT: a new object dies with the context that is current when it is made
    wrong: str = "CUDA_ERROR_INVALID_HANDLE"  # the error for a handle that is not of this kind
    ready: str = ""  # client function of the object that makes it usable, called before each use: a CUresult
    quota: str = ""  # which of dsl.QUOTAS its objects are counted in, from their creation to their end
    alone: bool = False  # drivers let one thread at a time use them: a session's calls that name one take turns


class Role(Enum):
    VALUE = "value"
    WORD_IN = "word_in"  # behind a void *: an int or 64 bits, as another parameter says
    WORD_OUT = "word_out"
    HANDLE = "handle"
    FUNCTION = "function"  # a CUfunction, which may be a CUkernel: travels as kind and id
    OUT = "out"
    OUT_HANDLE = "out_handle"  # a new object
    FOUND = "found"  # an object that exists
    COUNT = "count"  # in: how many elements an array has room for; out: how many there are
    HANDLES_IN = "handles_in"
    HANDLES_OUT = "handles_out"
    STRUCT_IN = "struct_in"
    STRUCT_OUT = "struct_out"
    STRUCT_VALUE = "struct_value"  # passed as it is
    ARRAY_IN = "array_in"
    ARRAY_OUT = "array_out"
    BYTES_IN = "bytes_in"
    BYTES_OUT = "bytes_out"
    TEXT_IN = "text_in"
    POINTER = "pointer"  # client side only: never travels
    KEPT = "kept"  # a result that the client knows: no record


@dataclass(frozen=True)
class Member:
    """A member of a struct that is not plain data. `path` is C: `location.id`.

    Exactly one of: a handle of `kind`, `device`, or `fixed` (the value that the driver always receives instead).
    """

    path: str
    kind: Kind | None = None
    device: bool = False
    fixed: str = ""
    optional: bool = True  # a handle may be NULL


@dataclass(frozen=True)
class Param:
    name: str
    role: Role
    c: str  # type in the driver's prototype
    scalar: Scalar | None = None
    kind: Kind | None = None
    element: str = ""  # C type of a struct, or of an array's elements
    size: str = ""  # bytes and arrays: the parameter that says how many
    cap: int = 0  # the largest size or count that the host accepts
    optional: bool = False  # NULL is valid: an unwanted result, or no object
    wrong: str = ""  # overrides Kind.wrong
    ends: bool = False  # the call destroys the object
    otherwise: str = ""  # client function that is called instead with all arguments if the handle is not of this kind
    ready: str = ""  # as Kind.ready, for this call
    named: bool = False  # a stream in which the call neither leaves work nor waits
    uncaptured: bool = False  # a stream that captures loses its capture, and the call is refused
    ending: str = ""  # C statement in the client before the object is destroyed
    sent: str = ""  # what is sent instead (C)
    range_nbytes: str = ""  # an address: length of the new range, which is claimed (C)
    range_kind: str = ""  # of that range (C, enum vgs_range_kind); empty: it is not recorded
    range_device: str = ""  # on which that range is (C)
    ordered: bool = False  # of that range: allocated in the order of a stream
    undo: str = ""  # C that frees the range's memory
    parent: str = ""  # of a new object: the parameter whose object it dies with
    make: str = ""  # C expression that makes the client's object; NULL: out of memory
    made: str = ""  # C statement in the client, after success
    kept: str = ""  # a result that the client knows (C)
    keep: tuple[tuple[str, str], ...] = ()  # members of the client's new object, and their values (C)
    mask: int | None = None  # the bits that may be set
    most: int | None = None  # the largest value
    nonzero: bool = False
    among: tuple[int, ...] = ()  # the values that it may have
    fixed: str = ""  # what the driver receives, whatever the program passes (C)
    wide: str = ""  # C condition: the word has 64 bits, else it is an int
    loaded: bool = False  # the driver's function takes no CUkernel: it is given the current context's CUfunction
    data: bool = False  # no check depends on these bytes: they may stay where the client can overwrite them
    members: tuple[Member, ...] = ()

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
    blocks: bool = False  # may wait for the GPU: another thread continues reading meanwhile
    leaves_work: bool | None = None  # in the streams it touches; unless said: if it does not block
    channel: Channel = Channel.ANY
    turn: Turn = Turn.IN_TURN
    descriptor: bool = False  # a file descriptor goes with the record
    pieces: str = ""  # the address that advances as the client splits a result that exceeds a record into several calls
    in_place: bool = False  # so frequent that its part is serialised in place
    awaited: bool = False  # the client polls for its effect: the worker thread that executes it stays awake
    submits: bool = False  # work for the device's processors: where tenants share a card by weight, it waits for a turn
    alone: bool = False  # like a call that names an object of such a kind (Kind.alone)
    ordered_by_all: bool = False  # ordered with every call of every thread, whatever objects it names
    unsafe: bool = False  # refused while a capture forbids potentially unsafe calls
    answers: tuple[tuple[str, str], ...] = ()  # C conditions, and what the client answers if they hold
    checks: tuple[str, ...] = ()  # C in the client, each a CUresult: what is not SUCCESS is the answer
    client_before: str = ""  # C statement in the client, before the checks
    client_after: str = ""  # likewise, after success
    client_failed: str = ""  # likewise, after the worker's error, which is `result`
    asked: str = ""  # C that answers in the client, in place of the record; a CUresult
    waits: str = ""  # C condition under which the client waits for a queued call
    form_of: str = ""  # the function of which this is the form without a stream, complete for the host on return
    forms: tuple[str, ...] = ()  # the names of this function's forms
    calls: str = ""  # the backend's function, if its name differs
    given: tuple[str, ...] = ()  # the arguments of that function, if not `args`: parameters by name, or C
    worker: str = ""  # C that the worker does instead of calling the backend; a CUresult
    violations: tuple[tuple[str, str], ...] = ()  # C conditions in the worker that end the session, and what is logged
    worker_answers: tuple[tuple[str, str], ...] = ()  # likewise, and what the worker answers if they hold
    worker_before: str = ""  # C statement in the worker, before the driver's function; may use `s` and `req`
    worker_checks: tuple[str, ...] = ()  # C after worker_before, each a CUresult: what is not SUCCESS is the answer
    worker_after: str = ""  # C statement in the worker, after the driver's function has succeeded
    worker_done: str = ""  # likewise, whatever the driver's function returned
    look_up: bool = False  # runtimes call it hundreds of times: traced only with VGPU_LOG=trace-all
    stacked: bool = False  # `vgpu sanitize` reports from where the program called it
    observed: bool = True  # a profiler is shown its calls
    simulator: bool = True  # the simulator implements it
    since: int = 0  # first driver version that has it; 0: from the data, or always
    exported: bool = True
    aliases: list[str] = field(default_factory=list)
    group: str = ""  # of dsl.GROUPS: the worker refuses the call in a session whose share is denied that group
    module: str = ""
    opcode: int = 0  # from ids.lock; 0: does not travel

    @property
    def travels(self) -> bool:
        return self.travel is not Travel.LOCAL

    @property
    def is_kept(self) -> bool:
        """The client knows all results."""
        return any(p.role is Role.KEPT for p in self.args)

    @property
    def sent(self) -> list[Param]:
        return self.args if self.wire is None else self.wire

    @property
    def is_alone(self) -> bool:
        """At most one such call at a time runs in a session."""
        return self.alone or any(p.kind is not None and p.kind.alone for p in [*self.args, *self.sent])

    @property
    def member(self) -> str:
        """The backend's function that the generated worker calls; empty: none."""
        return self.calls or (self.name if self.backend else "")

    @property
    def is_settled(self) -> bool:
        """A waiting call that leaves no work in the streams it touches."""
        return self.blocks if self.leaves_work is None else not self.leaves_work

    @property
    def hand_written(self) -> list[str]:
        """Which halves of a travelling function are hand-written C."""
        guest = self.guest_custom and self.exported
        return [half for half, custom in (("client", guest), ("worker", self.host_custom)) if custom]

    def stream_param(self) -> Param | None:
        return next((p for p in self.args if p.c == "CUstream"), None)

    def check(self) -> None:
        """Raise SpecError for an entry that no emitter could turn into correct code."""
        by_name = {p.name: p for p in self.sent}
        if len(by_name) != len(self.sent):
            raise SpecError(f"{self.name}: two parameters of one name")
        if not self.doc:
            raise SpecError(f"{self.name}: no doc")
        for p in self.sent if self.travels else []:
            self._check_param(p, by_name)
        if self.travel is Travel.QUEUED and any(p.role in OUT_ROLES for p in self.sent):
            raise SpecError(f"{self.name}: a queued call has no results")
        if self.is_kept and (self.travels or self.asked):
            raise SpecError(f"{self.name}: what the client knows is not asked for")
        if self.wire is not None and not self.travels:
            raise SpecError(f"{self.name}: wire= without travelling")
        if self.wire is not None and not (self.host_custom or self.given or self.worker):
            raise SpecError(f"{self.name}: with wire= it takes given= or worker= to say what the driver is given")
        if self.host_custom and (
            self.given or self.worker or self.worker_before or self.worker_checks or self.worker_done
        ):
            raise SpecError(f"{self.name}: C that a worker's half by hand would not run")
        if self.forms and not self.stream_param():
            raise SpecError(f"{self.name}: only what has a stream has a form without it")
        if self.wire is not None and not self.guest_custom and not self.asked:
            known = {p.name for p in self.args if p.role is not Role.POINTER}
            for p in self.wire:
                if p.name not in known and not p.sent and p.role is not Role.OUT:
                    raise SpecError(f"{self.name}: nothing says what is sent as {p.name}")
        if sum(p.role in (Role.HANDLE, Role.FUNCTION) for p in self.sent) > HANDLES_MAX:
            raise SpecError(f"{self.name}: more than {HANDLES_MAX} handles")
        if sum(p.ends for p in self.sent) > 1 or sum(p.role is Role.FUNCTION for p in self.sent) > 1:
            raise SpecError(f"{self.name}: one object destroyed, and one function, at most")
        if sum(bool(p.role is Role.OUT_HANDLE and p.kind and p.kind.quota) for p in self.sent) > 1:
            raise SpecError(f"{self.name}: one object that is counted at most")
        if sum(p.role is Role.BYTES_OUT for p in self.sent) + any(p.role in ARRAY_OUT_ROLES for p in self.sent) > 1:
            raise SpecError(f"{self.name}: one variable result at most")

    def _check_param(self, p: Param, by_name: dict[str, Param]) -> None:
        if p.role is Role.POINTER:
            raise SpecError(f"{self.name}: {p.name} is a client pointer and cannot travel; give wire=")
        if p.role in SIZED_ROLES and (p.size not in by_name or not p.cap):
            raise SpecError(f"{self.name}: {p.name} needs size= (a parameter) and cap=")
        if p.role is Role.COUNT and not any(p.name == q.size for q in self.sent):
            raise SpecError(f"{self.name}: {p.name} counts nothing")
        if p.role is Role.OUT and p.scalar and p.scalar.c == "CUdevice":
            raise SpecError(f"{self.name}: {p.name}: a device that comes from the worker is not translated")
        if p.parent and (p.parent not in by_name or by_name[p.parent].role is not Role.HANDLE):
            raise SpecError(f"{self.name}: {p.name}: its parent {p.parent} is not a handle of this call")
        if p.ends and p.role is not Role.HANDLE:
            raise SpecError(f"{self.name}: {p.name}: only a handle's object is destroyed")


HANDLES_MAX = 5  # vgx_handle.h
OUT_ROLES = (
    Role.OUT,
    Role.WORD_OUT,
    Role.FOUND,
    Role.COUNT,
    Role.HANDLES_OUT,
    Role.STRUCT_OUT,
    Role.ARRAY_OUT,
    Role.BYTES_OUT,
)
IN_PART_ROLES = (Role.BYTES_IN, Role.TEXT_IN, Role.HANDLES_IN, Role.ARRAY_IN)
ARRAY_OUT_ROLES = (Role.HANDLES_OUT, Role.ARRAY_OUT)
SIZED_ROLES = (Role.BYTES_IN, Role.BYTES_OUT, Role.HANDLES_IN, Role.HANDLES_OUT, Role.ARRAY_IN, Role.ARRAY_OUT)
