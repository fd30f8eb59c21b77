"""Running code in a program's place: in its root, its mount and network namespace, as its user.

Everything done there is bounded in time and bytes. The code executed there may be another user's (the loader, the
libraries that the environment preloads), so it runs as that user, and in another root or namespace without any
privilege.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from importlib.machinery import BuiltinImporter, FrozenImporter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

OUTPUT_NBYTES = 4 << 20  # limit of a child's stream; LD_DEBUG=libs of a large program writes some 100 KiB
ANSWER_NBYTES = 16 << 20

_PR_SET_PDEATHSIG, _PR_SET_SECUREBITS, _PR_SET_NO_NEW_PRIVS = 1, 28, 38
_SECBIT_NOROOT_LOCKED = 3
_CLONE_NEWNS, _CLONE_NEWNET, _CLONE_NEWUSER = 0x20000, 0x40000000, 0x10000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 2, 4, 0x4000, 0x40000
CARRIED = "{carried}"  # placeholder in a command for the path of the passed descriptor
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


class PlaceError(Exception):
    """A place cannot be entered, or a function in it gave no answer. The text is for the user."""


@dataclass(frozen=True)
class User:
    """The user and groups of a process. `groups` are the supplementary ones."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a program runs. `root` is a path in the doctor's own root; with `pid`, the place is that process's.

    `cwd` is the working directory as seen in that root; relative and empty search path entries refer to it.
    """

    root: str = "/"
    pid: int | None = None
    user: User | None = None  # None: the doctor's own
    cwd: str = "/"

    @property
    def is_foreign(self) -> bool:
        """Whether the place has another root or namespaces, so that another user may control the code in it."""
        return os.path.realpath(self.root_path) != "/" or bool(self._other_namespaces())

    @property
    def root_path(self) -> str:
        """The place's root, as a path in the doctor's own root."""
        return self.root if self.pid is None else f"/proc/{self.pid}/root"

    def as_administrator(self) -> Place:
        """The same place with the doctor's own user, to examine files that the place's user may not read."""
        return Place(self.root, self.pid, cwd=self.cwd)

    def _other_namespaces(self) -> list[tuple[str, int]]:
        if self.pid is None:
            return []
        found = []
        for name, flag in (("net", _CLONE_NEWNET), ("mnt", _CLONE_NEWNS)):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{self.pid}/ns/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
                    found.append((f"/proc/{self.pid}/ns/{name}", flag))
        return found

    @property
    def lacks_proc(self) -> bool:
        """Whether /proc/self/fd is missing in the place: in a tree without processes, or in a container, whose pid
        namespace does not include the doctor."""
        return not os.path.exists(f"{self.root_path}/proc/self/fd")

    @contextlib.contextmanager
    def entrance(self, carried: int | None = None, *, executes: bool = False) -> Iterator[Callable[[], None]]:
        """A function that moves the calling process into the place permanently; call it in a child. Raises PlaceError.

        `carried` is a descriptor that needs a path in the place: /proc/self/fd/N, or in a tree without /proc a copy
        of the file on a file system that only the child sees.
        """
        descriptors: list[int] = []
        try:
            try:
                namespaces = []
                for path, flag in self._other_namespaces():
                    descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                    namespaces.append((descriptors[-1], flag))
                descriptors.append(os.open(self.root_path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            except OSError as error:
                raise PlaceError(f"cannot enter {self.root_path}: {error.strerror}") from error
            root = descriptors[-1]
            moves = bool(namespaces) or os.path.realpath(self.root_path) != "/"
            lacks_proc = self.lacks_proc
            yield lambda: self._enter(namespaces, root if moves else None, carried if lacks_proc else None, executes)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def carried_path(self, descriptor: int) -> str:
        """The path that `entrance` gives the carried descriptor."""
        return "/proc/carried" if self.lacks_proc else f"/proc/self/fd/{descriptor}"

    def _enter(
        self, namespaces: Sequence[tuple[int, int]], root: int | None, copied: int | None, executes: bool
    ) -> None:
        if root is not None and os.geteuid() != 0:
            _become_root_of_a_namespace()
        for descriptor, flag in namespaces:
            _call("setns", descriptor, flag)
        if root is not None:
            os.fchdir(root)
            if copied is not None:
                _carry(copied, "proc")
            os.chroot(".")
            os.chdir("/")
        user = self.user
        if user is not None and os.geteuid() == 0 and (os.getuid(), os.getgid()) != (user.uid, user.gid):
            os.setgroups(list(user.groups))
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
        if root is not None and os.geteuid() == 0 and (executes or self.user is not None):
            _drop_capabilities()
        with contextlib.suppress(OSError):  # the working directory may have been removed
            os.chdir(self.cwd)
        _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # last: a change of user clears it


@dataclass(frozen=True)
class Finished:
    """A child that ended: `code` is negative for a signal, None when it was killed at its deadline."""

    code: int | None
    stdout: str
    stderr: str


def execute(
    place: Place,
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    carried: int | None = None,
) -> Finished:
    """Run a program in a place; CARRIED in the command is replaced by the path of the descriptor `carried`.

    Raises:
        PlaceError: the program cannot be started.
    """
    if carried is not None:
        command = [part.replace(CARRIED, place.carried_path(carried)) for part in command]
    with (
        place.entrance(carried, executes=True) as enter,
        tempfile.TemporaryFile() as stdout,
        tempfile.TemporaryFile() as stderr,
    ):

        def prepare() -> None:
            enter()
            resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_NBYTES, OUTPUT_NBYTES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        try:
            # preexec_fn is unsafe with threads; the doctor has none.
            process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=() if carried is None else (carried,),
                start_new_session=True,
                cwd="/",
                preexec_fn=prepare,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise PlaceError(f"cannot run {command[0]} there: {error}") from error
        code: int | None
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # including the processes that it started
            process.wait()
        return Finished(code, _head(stdout), _head(stderr))


def _head(file: Any) -> str:
    file.seek(0)
    data: bytes = file.read(OUTPUT_NBYTES)
    return data.decode(errors="replace")


def ask(place: Place, question: Callable[..., Any], *arguments: Any, timeout_s: float = 10.0) -> Any:
    """Call a function in a place, in a forked child. Its result must be serialisable as JSON; it cannot import modules.

    Raises:
        PlaceError: the place cannot be entered, or the function failed or did not return in time.
    """
    with place.entrance() as enter:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _answer(writing, enter, question, arguments)
        os.close(writing)
        try:
            data = _read_until(reading, time.monotonic() + timeout_s)
        finally:
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    try:
        answer = json.loads(data)
    except ValueError as error:
        raise PlaceError(f"no answer from {place.root_path} within {timeout_s:g} s") from error
    if "failure" in answer:
        raise PlaceError(str(answer["failure"]))
    return answer["result"]


def _answer(writing: int, enter: Callable[[], None], question: Callable[..., Any], arguments: Sequence[Any]) -> None:
    """The body of the child. It must not import: in the place, sys.path leads to files of the place's owner."""
    try:
        try:
            sys.meta_path[:] = [BuiltinImporter, FrozenImporter]
            enter()
            answer = {"result": question(*arguments)}
        except PlaceError as error:
            answer = {"failure": str(error)}
        except OSError as error:
            answer = {"failure": f"{error.filename or question.__name__}: {error.strerror}"}
        except BaseException:
            answer = {"failure": traceback.format_exc(limit=-3)}
        data = json.dumps(answer).encode()
        while data:
            data = data[os.write(writing, data) :]
    finally:
        os._exit(0)


def _read_until(descriptor: int, deadline: float) -> bytes:
    data = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while len(data) < ANSWER_NBYTES and selector.select(max(0.0, deadline - time.monotonic())):
            piece = os.read(descriptor, 65536)
            if not piece:
                break
            data += piece
    return bytes(data)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise PlaceError(f"{name}: {os.strerror(number)}")


def _carry(descriptor: int, directory: str) -> None:
    """Enter a new mount namespace, mount a new file system on a directory below the working directory, and copy a file
    to it."""
    try:
        _call("unshare", _CLONE_NEWNS)
        _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
        _mount("vgpu-doctor", directory, "tmpfs", _MS_NOSUID | _MS_NODEV)
    except PlaceError as error:
        raise PlaceError(f"that root has no /proc, and nothing can be mounted there ({error})") from error
    size = os.fstat(descriptor).st_size
    with open(f"{directory}/carried", "wb") as file:
        file.write(os.pread(descriptor, size, 0))
        os.fchmod(file.fileno(), 0o755)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    texts = [text if text is None else os.fsencode(text) for text in (source, target, kind)]
    if _libc.mount(*texts, ctypes.c_ulong(flags), None):
        raise PlaceError(f"mount: {os.strerror(ctypes.get_errno())}")


def _become_root_of_a_namespace() -> None:
    """Enter a new user namespace, so that a user other than root can chroot, if the kernel allows this."""
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", _CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _drop_capabilities() -> None:
    """Drop all privileges, whatever the uid: a container's root must not have the privileges of this machine's."""
    with contextlib.suppress(PlaceError):  # fails without CAP_SETPCAP; exec then restores no capabilities
        _call("prctl", _PR_SET_SECUREBITS, _SECBIT_NOROOT_LOCKED, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    if _libc.capset(header, data):
        raise PlaceError(f"capset: {os.strerror(ctypes.get_errno())}")
