"""A worker's namespaces: what the launcher enters once for all of its workers, and what each worker gets of its own.

All of it needs privileges over a user namespace: the host's, where vgpud runs as root, else a new one in which vgpud's
user is mapped to itself. Each step that the kernel refuses is named in `missing`; the others still hold.

- pid: a worker is the first process of its own namespace. It can name no other process, so it can signal, trace and
  reschedule none, and when it ends the kernel ends whatever it has started. NVIDIA's driver shares memory only between
  processes of one pid namespace (seen with 580.159.04: an import by cuIpcOpenMemHandle never ends), so on a card the
  workers have one namespace together, which contains no other process.
- mount: /proc shows that namespace alone, /dev/shm is empty.
- ipc, net: no System V object and no abstract socket is shared with another program of the host.
- user id: each worker has its own (user_ids.py), so it owns no process or file of another worker. On a card each tenant
  has its own, as the driver shares memory between processes of one user alone.
- Capabilities: none are left, and none can be gained.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import platform
import signal

from ..devices.mps import PIPE_DIRECTORY
from . import user_ids

# linux/sched.h, sys/mount.h, linux/prctl.h, linux/capability.h
_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE, _DETACH = 2, 4, 8, 0x1000, 0x4000, 1 << 18, 2
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_CAPABILITY_VERSION = 0x20080522
_CAPABILITY_COUNT = 64  # more than any kernel has
_CAPSET = {"x86_64": 126, "aarch64": 91}
_DEVICES = ("/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm")
_SHM = "/dev/shm"  # noqa: S108
_SHM_OPTIONS = "size=16m,nr_inodes=256,mode=1777"


class Cells:
    """Entered once by the launcher; then begin_fork(), fork, end_fork() and, in the child, enter()."""

    def __init__(self, *, together: bool = False) -> None:
        """`together`: all workers in one pid namespace."""
        self.missing: list[str] = []
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self._together = together
        self.ids_name = f"user id for each {'tenant' if together else 'worker'}"  # in `missing`
        self._has_pid_namespace = False  # for each worker
        self._libc.prctl(0, 0, 0, 0, 0)  # a function is looked up once, here and not in each worker
        self._has_mount_namespace = False

    def enter_shared(self, user_namespace_fd: int = -1) -> None:
        """Enter the namespaces that all workers of this launcher share. This process must have one thread.

        `user_namespace_fd`: one that vgpud made; -1: a new one without further ids.
        """
        uid, gid = os.geteuid(), os.getegid()
        if user_namespace_fd >= 0:
            entered = self._try(self.ids_name, self._set_namespace, user_namespace_fd, _NEWUSER)
            os.close(user_namespace_fd)
        else:
            entered = uid == 0
        if not entered:
            if not self._try("user namespace", self._unshare, _NEWUSER):
                self.missing += ["pid namespace", "mount namespace", "ipc namespace", "network namespace"]
                return
            self._try("user namespace", _map_own_ids, uid, gid)
        self._has_mount_namespace = self._try("mount namespace", self._unshare, _NEWNS) and self._try(
            "mount namespace", self._mount, "none", "/", None, _REC | _PRIVATE, None
        )
        # A client of MPS shares memory there with the server, which is not in this namespace.
        if self._has_mount_namespace and os.path.isdir(_SHM) and PIPE_DIRECTORY not in os.environ:
            flags = _NOSUID | _NODEV | _NOEXEC
            self._try("empty /dev/shm", self._mount, "vgpu-shm", _SHM, "tmpfs", flags, _SHM_OPTIONS)
        self._try("ipc namespace", self._unshare, _NEWIPC | _NEWUTS)
        self._try("network namespace", self._unshare, _NEWNET)
        # A process may return only to a pid namespace that its own user namespace owns, so a launcher without root
        # first enters a pid namespace of its own.
        inside = (self._together or uid != 0) and self._try("pid namespace", self._enter_pid_namespace)
        if not self._together and (inside or uid == 0):
            self._has_pid_namespace = self._try("pid namespace", self._probe_pid_namespace)

    def begin_fork(self) -> None:
        """The next child is the first process of a new pid namespace. Raises OSError."""
        if self._has_pid_namespace:
            self._unshare(_NEWPID)

    def end_fork(self) -> None:
        """In the parent: later children start in this namespace again, until the next begin_fork(). Raises OSError."""
        if self._has_pid_namespace:
            self._set_namespace(self._own_pid_namespace, _NEWPID)

    def can_have_ids(self, ids: range) -> bool:
        """Whether workers can have user ids of their own; what keeps them from it is named in `missing`. Call when
        everything is loaded."""
        if any(entry.startswith(self.ids_name) for entry in self.missing):
            return False
        try:
            if self._has_mount_namespace:
                self._uncover(user_ids.needed_paths())
            devices = [path for pattern in _DEVICES for path in glob.glob(pattern)] if self._together else []
            if (path := user_ids.unusable(ids[0], devices)) is None:
                return True
            why = f"other users cannot use {path}"
        except OSError as error:
            why = error.strerror or str(error)
        self.missing.append(f"{self.ids_name} ({why})")
        return False

    def _uncover(self, paths: set[str]) -> None:
        """For code below a folder that only vgpud's user may enter, replace that folder in this mount namespace by one
        that contains only the code."""
        covered: dict[str, list[str]] = {}
        for path in sorted(paths):
            if (folder := user_ids.hidden_by(path)) is not None:
                covered.setdefault(folder, []).append(path)
        for folder, inside in covered.items():
            fds = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in inside}
            self._mount("vgpu-code", folder, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
            try:
                for path, fd in fds.items():
                    if not os.path.exists(path):  # it exists if a path bound earlier contains it
                        os.makedirs(path, mode=0o755)
                        self._mount(f"/proc/self/fd/{fd}", path, None, _BIND | _REC, None)
            except OSError:
                self._libc.umount2(folder.encode(), _DETACH)
                raise
            finally:
                for fd in fds.values():
                    os.close(fd)

    def enter(self, uid: int | None = None) -> None:
        """In the child, first thing: its own view of /proc, its own System V objects, its user id, and no capabilities.
        Raises OSError: it could not take the id."""
        if self._has_pid_namespace and self._has_mount_namespace:
            try:
                self._unshare(_NEWNS | _NEWIPC)
                self._mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC, None)
            except OSError as error:
                # Inside a container parts of /proc are covered, and the kernel refuses a mount that would uncover them.
                os.write(2, f"<6>this worker sees the launcher's /proc: {error.strerror}\n".encode())
        os.close(self._own_pid_namespace)
        for capability in range(_CAPABILITY_COUNT):
            if self._libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break  # EINVAL: past the last; EPERM: this process may not, and has none to drop
        if uid is not None:
            user_ids.become(uid)
            os.umask(0)  # other workers of the tenant use the files in its folder, too
            # Else root would own this process's files in /proc. confine.py drops it later.
            self._check(self._libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))
        try:
            self._drop_capabilities()
        except OSError as error:
            os.write(2, f"<4>this worker keeps its capabilities: {error.strerror}\n".encode())

    def _drop_capabilities(self) -> None:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        data = (ctypes.c_uint32 * 6)()
        self._check(self._libc.syscall(_CAPSET[platform.machine()], ctypes.byref(header), ctypes.byref(data)))

    def _enter_pid_namespace(self) -> None:
        """Continue as the first process of a new pid namespace. The calling process waits for that child and ends as it
        does; vgpud ends both by killing the calling process."""
        self._unshare(_NEWPID)
        child = os.fork()
        if child != 0:
            os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") > 0 else 4096)
            _pid, status = os.waitpid(child, 0)
            os._exit(0 if status == 0 else 1)
        self._check(self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
        os.close(self._own_pid_namespace)
        self._own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        if self._has_mount_namespace:
            self._try("own /proc", self._mount, "proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC, None)

    def _probe_pid_namespace(self) -> None:
        """Check that a child can start in a new namespace and later children in this one. Tried in a child: a process
        that cannot return to its namespace can start no further children.
        """
        child = os.fork()
        if child == 0:
            try:
                self._unshare(_NEWPID)
                self._set_namespace(self._own_pid_namespace, _NEWPID)
            except OSError as error:
                os._exit(error.errno or errno.EIO)
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 0:
            raise OSError(code, os.strerror(code))

    def _try(self, name: str, step: object, *arguments: object) -> bool:
        assert callable(step)
        try:
            step(*arguments)
        except OSError as error:
            if not any(entry.startswith(name) for entry in self.missing):
                self.missing.append(f"{name} ({error.strerror or error})")
            return False
        return True

    def _unshare(self, flags: int) -> None:
        self._check(self._libc.unshare(flags))

    def _set_namespace(self, fd: int, kind: int) -> None:
        self._check(self._libc.setns(fd, kind))

    def _mount(self, source: str, target: str, kind: str | None, flags: int, options: str | None) -> None:
        encoded = [None if text is None else text.encode() for text in (source, target, kind)]
        data = None if options is None else options.encode()
        self._check(self._libc.mount(*encoded, ctypes.c_ulong(flags), data))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            code = ctypes.get_errno() or errno.EIO
            raise OSError(code, os.strerror(code))


def _map_own_ids(uid: int, gid: int) -> None:
    """Map only this user and group, to their own numbers, in a new user namespace."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
