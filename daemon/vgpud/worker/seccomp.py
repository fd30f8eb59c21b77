"""The kernel calls a worker has no use for, refused with EPERM from before it meets its client until its end.

A worker runs a stranger's command stream, and one that is taken over must reach nothing but its own channel and GPU: it
may start no program, reach no network and no socket by name, signal and trace no process, change no mount, module or
clock. What is refused is listed, not what is allowed: NVIDIA's driver uses whatever calls it likes, and differs by
version. (580.159.04's cuInit needs bind and listen on a unix socket, and answers 304 without; no connection can be
accepted there.)
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass

# Refused whatever the arguments. Numbers from the kernel's tables: x86-64, aarch64 (None: it has no such call).
_REFUSED: dict[str, tuple[int, int | None]] = {
    "accept": (43, 202),
    "accept4": (288, 242),
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "execve": (59, 221),
    "execveat": (322, 281),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),  # its operations pass by this filter
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

# Only sockets that must be connected before they are any use: a datagram goes to whatever name it is given.
_SOCKETS = {"socket": (41, 198), "socketpair": (53, 199)}
_SOCKET_TYPE_MASK, _SOCKET_TYPES = 0xF, (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)

# Processes and threads, but not in new namespaces (CLONE_NEWUSER and others). clone3 has its flags in memory, where a
# filter cannot look: it "is not there", and libc falls back to clone.
_CLONE, _CLONE3 = (56, 220), 435
_NAMESPACES = 0x7E020000

# Allowed for these values of the first argument alone: the call's numbers, and the values. None stands for our own pid.
_FIRST_ARGUMENT: dict[str, tuple[int, int, tuple[int | None, ...]]] = {
    "socket": (41, 198, (socket.AF_UNIX,)),
    "kill": (62, 129, (None,)),
    "tgkill": (234, 131, (None,)),  # abort() signals itself so
    "prlimit64": (302, 261, (0, None)),
    "setpriority": (141, 140, (0,)),  # PRIO_PROCESS: by user it would reach every worker of that user
    "ioprio_set": (251, 30, (1,)),  # IOPRIO_WHO_PROCESS, likewise
}


# Allowed but for these values of the second argument: a descriptor's owner is the process that receives its signals, of
# which F_SETSIG chooses the number (fcntl.h, asm-generic/ioctls.h); TIOCSTI and TIOCLINUX type into a terminal.
_SECOND_ARGUMENT: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "fcntl": (72, 25, (8, 10, 15, 1024, 1026)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
    "ioctl": (16, 29, (0x8901, 0x8902, 0x5412, 0x541C)),  # FIOSETOWN, SIOCSPGRP
}


@dataclass(frozen=True)
class _Architecture:
    column: int  # in the tables above
    audit: int  # AUDIT_ARCH_*, linux/audit.h
    seccomp: int  # the number of seccomp(2)
    call_cap: int  # numbers from here on are another ABI's (x32)


_ARCHITECTURES = {
    "x86_64": _Architecture(0, 0xC000003E, 317, 0x40000000),
    "aarch64": _Architecture(1, 0xC00000B7, 277, 0x40000000),
}

# linux/seccomp.h, linux/bpf_common.h
_SET_MODE_FILTER, _FLAG_TSYNC = 1, 1
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_AT_NUMBER, _AT_ARCHITECTURE = 0, 4  # struct seccomp_data
_AT_FIRST_ARGUMENT, _AT_SECOND_ARGUMENT = 16, 24  # their low halves


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def filter_program(machine: str, pid: int, allow: Collection[str] = ()) -> bytes:
    """The filter as BPF, eight bytes an instruction. Raises KeyError for a machine it knows no numbers of.

    `allow` names calls that this process needs though they are refused to a worker.
    """
    architecture = _ARCHITECTURES[machine]
    refuse = _instruction(_RETURN, _ERRNO | errno.EPERM)
    code = [
        _instruction(_LOAD, _AT_ARCHITECTURE),
        _instruction(_EQUAL, architecture.audit, 1, 0),
        refuse,
        _instruction(_LOAD, _AT_NUMBER),
        _instruction(_AT_LEAST, architecture.call_cap, 0, 1),
        refuse,
    ]
    for name, numbers in _REFUSED.items():
        if name not in allow and (number := numbers[architecture.column]) is not None:
            code += [_instruction(_EQUAL, number, 0, 1), refuse]
    stream, packets = (_instruction(_EQUAL, kind, 2 - i, 0) for i, kind in enumerate(_SOCKET_TYPES))
    of_sockets = [
        *(_instruction(_LOAD, _AT_SECOND_ARGUMENT), _instruction(_AND, _SOCKET_TYPE_MASK)),
        *(stream, packets, refuse, _instruction(_LOAD, _AT_NUMBER)),
    ]
    for numbers in _SOCKETS.values():
        code += [_instruction(_EQUAL, numbers[architecture.column], 0, len(of_sockets)), *of_sockets]
    of_clone = [
        *(_instruction(_LOAD, _AT_FIRST_ARGUMENT), _instruction(_ANY_BIT, _NAMESPACES, 0, 1), refuse),
        _instruction(_RETURN, _ALLOW),
    ]
    code += [_instruction(_EQUAL, _CLONE[architecture.column], 0, len(of_clone)), *of_clone]
    code += [_instruction(_EQUAL, _CLONE3, 0, 1), _instruction(_RETURN, _ERRNO | errno.ENOSYS)]
    for *columns, values in _FIRST_ARGUMENT.values():
        # An argument is 64 bits wide, these are ints: the kernel itself takes the low half alone.
        tests = [_instruction(_EQUAL, pid if v is None else v, len(values) - i, 0) for i, v in enumerate(values)]
        block = [_instruction(_LOAD, _AT_FIRST_ARGUMENT), *tests, refuse, _instruction(_RETURN, _ALLOW)]
        code += [_instruction(_EQUAL, columns[architecture.column], 0, len(block)), *block]
    for *columns, refused in _SECOND_ARGUMENT.values():
        tests = [_instruction(_EQUAL, v, len(refused) - i, 0) for i, v in enumerate(refused)]
        block = [_instruction(_LOAD, _AT_SECOND_ARGUMENT), *tests, _instruction(_RETURN, _ALLOW), refuse]
        code += [_instruction(_EQUAL, columns[architecture.column], 0, len(block)), *block]
    return b"".join([*code, _instruction(_RETURN, _ALLOW)])


def _instruction(code: int, k: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, k)


def install(allow: Collection[str] = ()) -> None:
    """Put the filter on every thread of this process; it needs no_new_privs. Raises OSError where that cannot be."""
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call numbers of {machine} are known here")
    code = filter_program(machine, os.getpid(), allow)
    program = _Program(len(code) // 8, code)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_ARCHITECTURES[machine].seccomp, _SET_MODE_FILTER, _FLAG_TSYNC, ctypes.byref(program)) != 0:
        code_of_failure = ctypes.get_errno()
        raise OSError(code_of_failure, os.strerror(code_of_failure))
