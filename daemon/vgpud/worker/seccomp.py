"""The system calls that a worker may use, from before it gets its client until its end.

A worker runs a stranger's command stream, and one that is taken over must reach nothing but its own channel and GPU: it
may start no program, reach no network and no socket by name, signal and trace no process, change no mount, module or
clock. Four answers:

- Allowed: what the executor, the simulator with its compiler, Python and libc call (recorded over the test programs and
  frameworks), and for a real driver what such a driver is known to need besides: DRIVER. Landlock limits the
  files that these calls reach, and the cell limits the processes.
- EPERM, without a log line: calls that libraries try but do not need. (cuInit of 580.159.04 needs bind and listen on a
  unix socket, and returns 304 without them; no connection can be accepted there.)
- The end of the process: calls that none of them makes, but an attacker would.
- ENOSYS: all other calls, also those of newer kernels; libraries have a fallback for it. With install(report=True)
  vgpud gives this answer, and names the call in its log (vgpud/supervision/refused_calls.py).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .system_call import numbers


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ALLOWED = _names("""
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile copy_file_range open
    openat close close_range dup dup2 dup3 pipe pipe2 access faccessat faccessat2 readlink readlinkat stat lstat
    fstat newfstatat statx statfs fstatfs getdents getdents64 getcwd umask ftruncate fallocate fsync fdatasync flock
    truncate rename renameat renameat2 unlink unlinkat mkdir mkdirat rmdir chmod fchmod fchmodat utimensat mmap
    munmap mprotect mremap madvise brk mincore msync mlock mlock2 munlock membarrier memfd_create futex futex_waitv
    set_robust_list get_robust_list rseq set_tid_address gettid getpid getppid getpgid getpgrp getsid sched_yield
    sched_getaffinity sched_setaffinity sched_getparam sched_getscheduler sched_getattr sched_get_priority_max
    sched_get_priority_min getpriority ioprio_get getcpu nanosleep clock_nanosleep clock_gettime clock_getres
    gettimeofday time times getrusage getrlimit sysinfo uname timer_create timer_settime timer_gettime
    timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime getitimer setitimer alarm pause
    getuid geteuid getgid getegid getresuid getresgid getgroups capget prctl arch_prctl rt_sigaction rt_sigprocmask
    rt_sigreturn rt_sigtimedwait rt_sigpending rt_sigsuspend sigaltstack signalfd4 restart_syscall exit exit_group
    wait4 waitid poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
    eventfd eventfd2 sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg shutdown getsockname getpeername getsockopt
    setsockopt getrandom landlock_create_ruleset landlock_add_rule landlock_restrict_self seccomp
""")

# Allowed with a real driver besides: confine(allow=DRIVER).
DRIVER = _names("""
    bind listen get_mempolicy set_mempolicy set_mempolicy_home_node mbind mlockall munlockall fadvise64 readahead
    sync_file_range getxattr lgetxattr fgetxattr listxattr inotify_init inotify_init1 inotify_add_watch
    inotify_rm_watch shmget shmat shmdt shmctl semget semop semctl semtimedop fork vfork setsid setpgid chdir fchdir
    utime utimes futimesat link symlink linkat symlinkat creat pidfd_open setrlimit signalfd
""")

# With NVIDIA's Multi-Process Service besides, whose control daemon is reached by a socket in a folder.
MPS = _names("connect")

_REFUSED = _names("""
    accept accept4 connect execve execveat perf_event_open tkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_getfd
    pidfd_send_signal mknod mknodat chown fchown lchown fchownat setuid setgid setreuid setregid setresuid setresgid
    setgroups setfsuid setfsgid capset sethostname setdomainname migrate_pages personality
""")

_FATAL = _names("""
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime delete_module finit_module fsconfig fsmount fsopen
    fspick init_module io_uring_enter io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load
    keyctl lookup_dcookie mount mount_setattr move_mount name_to_handle_at nfsservctl open_by_handle_at open_tree
    pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key
    setns settimeofday swapoff swapon umount2 unshare userfaultfd uselib vhangup
""")

# Only sockets that must be connected before use: a datagram can be sent to any name.
_SOCKETS = ("socket", "socketpair")
_SOCKET_TYPE_MASK, _SOCKET_TYPES = 0xF, (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)

# Processes and threads, but not in new namespaces (CLONE_NEWUSER and others). clone3 has its flags in memory, where a
# filter cannot look: it is refused with ENOSYS, and libc falls back to clone.
_NAMESPACES = 0x7E020000

# Allowed only for these values of the first argument. None stands for the process's own pid.
_FIRST_ARGUMENT: dict[str, tuple[int | None, ...]] = {
    "socket": (socket.AF_UNIX,),
    "socketpair": (socket.AF_UNIX,),
    "kill": (None,),
    "tgkill": (None,),  # abort() uses it to signal its own thread
    "prlimit64": (0, None),
    "setpriority": (0,),  # PRIO_PROCESS: by user it would reach every worker of that user
    "ioprio_set": (1,),  # IOPRIO_WHO_PROCESS, likewise
    "sched_setscheduler": (0,),  # the calling thread
    "sched_setparam": (0,),
    "sched_setattr": (0,),
    "move_pages": (0, None),
}


# Allowed but for these values of the second argument: a descriptor's owner is the process that receives its signals, of
# which F_SETSIG chooses the number (fcntl.h, asm-generic/ioctls.h); TIOCSTI and TIOCLINUX type into a terminal.
_SECOND_ARGUMENT: dict[str, tuple[int, ...]] = {
    "fcntl": (8, 10, 15, 1024, 1026),  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
    "ioctl": (0x8901, 0x8902, 0x5412, 0x541C),  # FIOSETOWN, SIOCSPGRP
}


@dataclass(frozen=True)
class _Architecture:
    audit: int  # AUDIT_ARCH_*, linux/audit.h
    seccomp: int  # the number of seccomp(2)
    call_cap: int  # numbers from here on are another ABI's (x32)


_ARCHITECTURES = {
    "x86_64": _Architecture(0xC000003E, 317, 0x40000000),
    "aarch64": _Architecture(0xC00000B7, 277, 0x40000000),
}

# linux/seccomp.h, linux/bpf_common.h
_SET_MODE_FILTER, _FLAG_TSYNC, _FLAG_NEW_LISTENER, _FLAG_TSYNC_ESRCH = 1, 1, 8, 16
_ALLOW, _ERRNO, _NOTIFY, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x7FC00000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_AT_NUMBER, _AT_ARCHITECTURE = 0, 4  # struct seccomp_data
_AT_FIRST_ARGUMENT, _AT_SECOND_ARGUMENT = 16, 24  # their low halves


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


_LIBC = ctypes.CDLL(None, use_errno=True)  # created once, before the forks: each CDLL creates a class


@functools.cache  # the launcher calls it, for all of its workers
def filter_program(machine: str, pid: int, allow: frozenset[str] = frozenset(), *, report: bool = False) -> bytes:
    """The filter as BPF, eight bytes an instruction. Raises KeyError for a machine it knows no numbers of.

    Args:
        machine: as platform.machine() says.
        pid: of the process that the filter is for.
        allow: calls that this process needs besides, whatever their arguments.
        report: calls in no list go to the filter's listener, instead of failing with ENOSYS.
    """
    architecture, number = _ARCHITECTURES[machine], numbers(machine)
    refuse, allowed = _instruction(_RETURN, _ERRNO | errno.EPERM), _instruction(_RETURN, _ALLOW)
    code = [
        _instruction(_LOAD, _AT_ARCHITECTURE),
        _instruction(_EQUAL, architecture.audit, 1, 0),
        refuse,
        _instruction(_LOAD, _AT_NUMBER),
        _instruction(_AT_LEAST, architecture.call_cap, 0, 1),
        refuse,
    ]

    def add(name: str, block: list[bytes]) -> None:
        """Add `block` for a call; `block` returns, or leaves the call's number loaded."""
        if name in number:
            code.extend([_instruction(_EQUAL, number[name], 0, len(block)), *block])

    # First: a driver makes an ioctl in most calls, and of a call whose arguments matter the kernel keeps no answer.
    for name, refused in _SECOND_ARGUMENT.items():
        tests = [_instruction(_EQUAL, v, len(refused) - i, 0) for i, v in enumerate(refused)]
        add(name, [_instruction(_LOAD, _AT_SECOND_ARGUMENT), *tests, allowed, refuse])
    for first, last in _ranges(number[name] for name in _ALLOWED | frozenset(allow) if name in number):
        code += [_instruction(_AT_LEAST, first, 0, 2), _instruction(_AT_LEAST, last + 1, 1, 0), allowed]
    stream, packets = (_instruction(_EQUAL, kind, 2 - i, 0) for i, kind in enumerate(_SOCKET_TYPES))
    of_sockets = [
        *(_instruction(_LOAD, _AT_SECOND_ARGUMENT), _instruction(_AND, _SOCKET_TYPE_MASK)),
        *(stream, packets, refuse, _instruction(_LOAD, _AT_NUMBER)),
    ]
    for name in _SOCKETS:
        add(name, of_sockets)
    add("clone", [_instruction(_LOAD, _AT_FIRST_ARGUMENT), _instruction(_ANY_BIT, _NAMESPACES, 0, 1), refuse, allowed])
    add("clone3", [_instruction(_RETURN, _ERRNO | errno.ENOSYS)])
    for name, values in _FIRST_ARGUMENT.items():
        # Arguments are 64 bits wide, but these are ints: the kernel itself uses only the low half.
        tests = [_instruction(_EQUAL, pid if v is None else v, len(values) - i, 0) for i, v in enumerate(values)]
        add(name, [_instruction(_LOAD, _AT_FIRST_ARGUMENT), *tests, refuse, allowed])
    for name in sorted(_REFUSED):
        add(name, [refuse])
    for name in sorted(_FATAL):
        add(name, [_instruction(_RETURN, _KILL_PROCESS)])
    return b"".join([*code, _instruction(_RETURN, _NOTIFY if report else _ERRNO | errno.ENOSYS)])


def _ranges(values: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Ascending runs of consecutive numbers, as first and last."""
    first = last = -1
    for value in sorted(values):
        if value != last + 1 or first < 0:
            if first >= 0:
                yield first, last
            first = value
        last = value
    if first >= 0:
        yield first, last


def _instruction(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def install(allow: frozenset[str] = frozenset(), *, report: bool = False) -> int:
    """Put the filter on every thread of this process; it needs no_new_privs.

    Returns:
        With `report` the filter's listener, a descriptor, or -1 where the kernel has none (before 5.7, or under another
        filter with one): then calls in no list fail with ENOSYS and no log line. Without `report`: -1.
    Raises:
        OSError: the kernel has no filters.
    """
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call numbers of {machine} are known here")
    if report:
        flags = _FLAG_TSYNC | _FLAG_NEW_LISTENER | _FLAG_TSYNC_ESRCH
        listener = _set_filter(machine, filter_program(machine, os.getpid(), allow, report=True), flags)
        if listener >= 0:
            return listener
    if _set_filter(machine, filter_program(machine, os.getpid(), allow), _FLAG_TSYNC) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return -1


def _set_filter(machine: str, code: bytes, flags: int) -> int:
    program = _Program(len(code) // 8, code)
    return int(_LIBC.syscall(_ARCHITECTURES[machine].seccomp, _SET_MODE_FILTER, flags, ctypes.byref(program)))
