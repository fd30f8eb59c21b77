"""One worker process as vgpud sees it: its control socket, its standard error, its end.

Control messages are msgpack maps, one per SOCK_SEQPACKET packet. To the worker: one assignment, with the client's
socket; before that, if it was started with --warm, a WarmOrder. From the worker: {type: "ready", why: str?} when it
could serve, with `why` when it has no context and ends; before that, {type: "calls"} with the listener of the system
calls that it is refused (refused_calls.py); {type: "attached"} when it is about to answer the client,
{type: "denied", function: str, count: int} at the 1st, 10th, 100th (and so on) call of a function that the session's
share denies, {type: "ended", reason: str}. vgpud may ask {type: "memory"}, answered by {type: "memory", nbytes: [int]},
by device.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Any

from vgpud.log import RateLimit, get_logger
from vgpud.proto.packet import receive_packet
from vgpud.proto.packing import pack_map, unpack_map

from .refused_calls import RefusedCalls

if TYPE_CHECKING:
    from collections.abc import Callable

    from vgpud.serving.succession import Incoming, Outgoing

    from .spawner import Process, Spawner

_PACKET_NBYTES = 192 * 1024  # 64 devices fit; below the kernel's default socket buffer
_LAST_MESSAGES = 64  # read after the worker's end
_STDERR_NBYTES, _LAST_READS = 16 << 10, 65  # of one read; reads after the worker's end, to empty a pipe of 1 MiB
_LINE_NBYTES = 1024
_LINES_S = 5.0
_MEMORY_TIMEOUT_S = 0.5
_MEMORY_DEVICES = 64
_LEVELS = {"3": "error", "4": "warning", "6": "info", "7": "debug"}


class Worker:
    """Created by spawn_worker. Callbacks run on the event loop; `on_exit` comes once, after the process was reaped."""

    def __init__(
        self,
        process: Process,
        control: socket.socket,
        stderr_fd: int,
        on_ready: Callable[[Worker], None],
        on_exit: Callable[[Worker], None],
        warm_device: int | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._control = control
        self._on_ready, self._on_exit = on_ready, on_exit
        self._stderr_fd = stderr_fd
        self._stderr_rest = b""
        self._lines = RateLimit(_LINES_S)
        self._client_pidfd: int | None = None
        self._kill_timer: asyncio.TimerHandle | None = None
        self._expected: dict[str, asyncio.TimerHandle] = {}
        self.on_end: Callable[[Worker], None] | None = None
        self.on_attached: Callable[[], None] | None = None
        self.on_denied: Callable[[str, int], None] | None = None  # called with the function's name and how many
        self.is_attached = False  # it has answered its client, or is about to
        self.was_ended = False  # by vgpud
        self.session: int | None = None
        self.owner: object = None  # owner of the user id, where workers of one tenant share one; None: no owner yet
        self.environment: tuple[tuple[str, str], ...] = ()  # of its driver, for clients of some shares
        self.warm_device = warm_device  # on which the worker creates a context
        self.reason: str | None = None
        self._was_stopped = False
        self._is_new = True  # it has sent nothing yet
        self._refused_calls: RefusedCalls | None = None
        self.last_line: str | None = None
        self._memory_asked: asyncio.Future[tuple[int, ...] | None] | None = None
        os.set_blocking(stderr_fd, False)
        process.on_exit = self._ended
        self._loop.add_reader(self._control.fileno(), self._read_control)
        self._loop.add_reader(stderr_fd, self._read_stderr)

    def dump(self, outgoing: Outgoing) -> dict[str, Any]:
        """The state for adopt_worker() in the next vgpud. The worker must have a session."""
        return {
            "process": self._process.key,
            "control": outgoing.add(self._control.fileno()),
            "stderr": outgoing.add(self._stderr_fd),
            "client_pidfd": None if self._client_pidfd is None else outgoing.add(self._client_pidfd),
            "client_is_gone": self._kill_timer is not None,
            "is_attached": "attached" not in self._expected,
        }

    @property
    def pid(self) -> int:
        """The process id; 0 while it is being started."""
        return self._process.pid

    @property
    def uid(self) -> int | None:
        """Its user id, where workers have ids of their own."""
        return self._process.uid

    @property
    def failed(self) -> bool:
        """Whether it ended by a signal or with a nonzero code."""
        return bool(self._process.returncode)

    @property
    def has_hung_up(self) -> bool:
        """Whether it has closed its end of the control socket and all its messages have been read."""
        try:
            return not self._control.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    @property
    def how_it_ended(self) -> str:
        """For the log: `exit 0`, `signal SIGKILL`, or `running`."""
        code = self._process.returncode
        if code is None:
            return "running"
        return f"exit {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def set_lines_per_s(self, rate: float) -> None:
        """Limit how many lines of the worker are logged."""
        self._lines = RateLimit(rate)

    async def memory(self) -> tuple[int, ...] | None:
        """Bytes its session uses on each device, contexts included; None without an answer in time."""
        if self._memory_asked is None:
            self._memory_asked = self._loop.create_future()
            try:
                self._control.send(pack_map({"type": "memory"}))
            except OSError:
                self._memory_asked.set_result(None)
        asked = self._memory_asked
        try:
            async with asyncio.timeout(_MEMORY_TIMEOUT_S):
                return await asyncio.shield(asked)
        except TimeoutError:
            return None
        finally:
            if self._memory_asked is asked:
                self._memory_asked = None

    def assign(self, fds: list[int], assignment: dict[str, Any]) -> None:
        """Send the assignment and its descriptors, the client's socket first. Raises OSError if the worker is gone."""
        packet = pack_map(assignment)
        if len(packet) > _PACKET_NBYTES:
            raise OSError(f"assignment of {len(packet)} bytes is over {_PACKET_NBYTES}")
        socket.send_fds(self._control, [packet], fds)
        self.session = assignment["session"]

    def watch_client(self, pidfd: int | None, timeout_s: float, on_kill: Callable[[], None]) -> None:
        """Kill the worker if it still lives `timeout_s` after its client died. Takes ownership of `pidfd`."""
        if pidfd is None:
            return
        self._client_pidfd = pidfd

        def client_died() -> None:
            self._unwatch_client()
            self.client_is_gone(timeout_s, on_kill)

        self._loop.add_reader(pidfd, client_died)

    def client_is_gone(self, timeout_s: float, on_kill: Callable[[], None]) -> None:
        """Kill the worker if it still lives in `timeout_s`."""
        self._kill_timer = self._loop.call_later(timeout_s, self._kill_late, "its client is gone", on_kill)

    def expect(self, kind: str, timeout_s: float, on_kill: Callable[[], None]) -> None:
        """Kill the worker unless it sends a message of that kind in time."""
        why = f"it was not {kind} in time"
        self._expected[kind] = self._loop.call_later(timeout_s, self._kill_late, why, on_kill)

    def end_if_stopped(self, on_kill: Callable[[], None]) -> None:
        """Kill the process if it is stopped by a signal now and was at the previous call, too."""
        stopped = self.pid != 0 and self._process.returncode is None and _is_stopped(self.pid)
        if stopped and self._was_stopped:
            self._kill_late("it was stopped by a signal", on_kill)
        self._was_stopped = stopped

    def terminate(self) -> None:
        """Ask the worker to end (SIGTERM)."""
        self.was_ended = True
        self._process.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the worker (SIGKILL)."""
        self.was_ended = True
        self._process.signal(signal.SIGKILL)

    def _kill_late(self, why: str, on_kill: Callable[[], None]) -> None:
        get_logger().warning("worker killed", session=self.session, worker=self.pid, why=why)
        self.kill()
        on_kill()

    def _unwatch_client(self) -> None:
        if self._client_pidfd is not None:
            self._loop.remove_reader(self._client_pidfd)
            os.close(self._client_pidfd)
            self._client_pidfd = None

    def _read_control(self) -> bool:
        """Handle one message, so that a worker that never stops sending does not block the loop. False: there is
        none.
        """
        received = receive_packet(self._control, _PACKET_NBYTES)
        if received is None:
            return False
        packet, fds = received
        if not packet:
            self._loop.remove_reader(self._control.fileno())  # its pidfd reports the end
            return False
        self._take(packet, fds)
        for fd in fds:
            os.close(fd)
        return True

    def _take(self, packet: bytes, fds: list[int]) -> None:
        """A worker acts for a client, so its messages are checked like a client's."""
        try:
            message = unpack_map(packet)
        except ValueError:
            return
        kind = message.get("type")
        if kind == "calls" and fds and self._is_new and self.session is None:
            self._refused_calls = RefusedCalls(fds.pop(), self._say_refused)
        self._is_new = False  # later descriptors may come from a client that controls the worker
        if kind == "ready" and "why" not in message:
            # The worker gets no client before its pid is known: a launcher that dies before then ends the worker, too.
            self._process.when_started(self._ready)
            return
        self._arrived(kind)
        if kind == "ready":
            self.last_line = str(message["why"])[:_LINE_NBYTES]
        elif kind == "memory":
            if self._memory_asked is not None and not self._memory_asked.done():
                self._memory_asked.set_result(_memory_told(message.get("nbytes")))
        elif kind == "attached" and not self.is_attached:
            self.is_attached = True
            if self.on_attached is not None:
                self.on_attached()
        elif kind == "denied" and self.on_denied is not None:
            function, count = message.get("function"), message.get("count")
            if isinstance(function, str) and type(count) is int and 0 < count < 2**32:
                self.on_denied(function, count)
        elif kind == "ended":
            self.reason = str(message.get("reason"))[:_LINE_NBYTES]

    def _ready(self) -> None:
        self._arrived("ready")
        self._on_ready(self)

    def _arrived(self, kind: object) -> None:
        """Stop waiting for a message of that kind."""
        timer = self._expected.pop(kind, None) if isinstance(kind, str) else None
        if timer is not None:
            timer.cancel()

    def _read_stderr(self) -> bool:
        """Log lines of the worker's standard error. Returns whether there may be more."""
        try:
            data = os.read(self._stderr_fd, _STDERR_NBYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._stderr_fd)
        *lines, rest = (self._stderr_rest + data).split(b"\n")
        if not data or len(rest) > _LINE_NBYTES:
            lines, rest = [*lines, rest], b""
        self._stderr_rest = rest
        for line in lines:
            if line:
                self._say(line)
        return bool(data)

    def _say_refused(self, call: str) -> None:
        log = get_logger()
        log.warning("a worker made an unknown system call", session=self.session, worker=self.pid, call=call)

    def _say(self, line: bytes) -> None:
        """Log a line of the worker, at a bounded rate; `<N>` at its start is syslog's level."""
        number, text = "6", line[:_LINE_NBYTES].decode(errors="replace")
        if text[:1] == "<" and text[2:3] == ">":
            number, text = text[1], text[3:]
        self.last_line, level = text, _LEVELS.get(number, "info")
        if self._lines.allows():
            held_back = self._lines.take_suppressed() or None
            log = getattr(get_logger(), level)
            log("worker says", session=self.session, worker=self.pid, line=text, held_back=held_back)

    def _ended(self) -> None:
        for _ in range(_LAST_MESSAGES):
            if not self._read_control():
                break
        for _ in range(_LAST_READS):
            if not self._read_stderr():
                break
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_reader(self._stderr_fd)
        self._control.close()
        os.close(self._stderr_fd)
        if self._refused_calls is not None:
            self._refused_calls.close()
        self._unwatch_client()
        for timer in (self._kill_timer, *self._expected.values()):
            if timer is not None:
                timer.cancel()
        self._on_exit(self)


def _is_stopped(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b") ")[2][:1] == b"T"  # a process name may contain any bytes
    except OSError:
        return False


def _memory_told(nbytes: object) -> tuple[int, ...] | None:
    if not isinstance(nbytes, list) or len(nbytes) > _MEMORY_DEVICES:
        return None
    return tuple(nbytes) if all(type(item) is int and 0 <= item < 2**63 for item in nbytes) else None


def spawn_worker(
    spawner: Spawner,
    environment: dict[str, str],
    *,
    on_ready: Callable[[Worker], None],
    on_exit: Callable[[Worker], None],
    warm_order: dict[str, Any] | None = None,
    uid: int | None = None,
) -> Worker:
    """Start a worker process waiting for its assignment. Raises OSError.

    Args:
        spawner: makes the process.
        environment: of the process, besides what the spawner gives each.
        on_ready: called when the worker can serve.
        on_exit: called once, after the process was reaped.
        warm_order: the fields of worker/control.py's WarmOrder.
        uid: see Spawner.spawn.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stderr_fd, their_stderr_fd = os.pipe()
    try:
        process = spawner.spawn(theirs.fileno(), their_stderr_fd, environment, warm=warm_order is not None, uid=uid)
    except BaseException:
        ours.close()
        os.close(stderr_fd)
        raise
    finally:
        theirs.close()
        os.close(their_stderr_fd)
    ours.setblocking(False)
    warm_device = None if warm_order is None else warm_order["device"]
    worker = Worker(process, ours, stderr_fd, on_ready, on_exit, warm_device)
    if warm_order is not None:
        with contextlib.suppress(OSError):  # the worker has died, which is noticed elsewhere
            ours.send(pack_map(warm_order))
    return worker


def adopt_worker(
    process: Process, fields: dict[str, Any], incoming: Incoming, session: int, on_exit: Callable[[Worker], None]
) -> Worker:
    """Adopt a worker of the previous vgpud, which dump() described."""
    control = socket.socket(fileno=incoming.take(fields["control"]))
    worker = Worker(process, control, incoming.take(fields["stderr"]), lambda _: None, on_exit, None)
    worker.session = session
    return worker
