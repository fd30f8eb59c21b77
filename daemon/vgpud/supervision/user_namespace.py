"""The user namespace whose ids workers have where vgpud is not root (worker/user_ids.py).

It maps vgpud's own ids and the workers' range to the same numbers on the host. Mapping a range needs CAP_SETUID and
CAP_SETGID, which the packaged unit gives vgpud for this purpose alone: vgpud maps the range first of all, then drops
both for good. Without them newuidmap maps a range where /etc/subuid gives vgpud's user one. The creator of a namespace
may enter it and end its processes, so vgpud and its launchers need no other privilege.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

_CAP_SETGID, _CAP_SETUID = 1 << 6, 1 << 7
_CAPABILITY_VERSION = 0x20080522  # linux/capability.h
_CAPGET, _CAPSET = {"x86_64": (125, 126), "aarch64": (90, 91)}.get(platform.machine(), (-1, -1))
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_NEWUSER = 0x10000000
_HELPED = 4096  # ids to use, from the end of a range in /etc/subuid: containers use it from its start
# A single-threaded process, as unshare(2) requires; it runs until vgpud has opened its namespace.
_HOLDER = f"""
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
sys.stdout.write(str(ctypes.get_errno() if libc.unshare({_NEWUSER}) else 0) + "\\n")
sys.stdout.flush()
sys.stdin.read()
"""


def make(wanted: range) -> tuple[int, range]:
    """A namespace with vgpud's own ids and workers' ids.

    Args:
        wanted: the workers' ids; newuidmap maps others instead.
    Returns:
        The namespace's descriptor, and the workers' ids.
    Raises:
        OSError: no namespace could be made; the text says why.
    """
    may_map = _capabilities()[0] & (_CAP_SETUID | _CAP_SETGID) == _CAP_SETUID | _CAP_SETGID
    ids = wanted if may_map else _subordinate_ids()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _HOLDER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as holder:
        assert holder.stdout is not None
        code = int(holder.stdout.readline() or b"1")
        if code:
            raise OSError(code, f"no user namespace: {os.strerror(code)}")
        for name, own in (("uid", os.geteuid()), ("gid", os.getegid())):
            if may_map:
                Path(f"/proc/{holder.pid}/{name}_map").write_text(f"{own} {own} 1\n{ids[0]} {ids[0]} {len(ids)}\n")
            else:
                command = [f"new{name}map", *map(str, (holder.pid, own, own, 1, ids[0], ids[0], len(ids)))]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise OSError(f"new{name}map: {done.stderr.strip()}")
        return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC), ids


def drop_capabilities() -> None:
    """Give up CAP_SETUID and CAP_SETGID, if this process has them and is not root; neither it nor its children can get
    them back."""
    effective, permitted, inheritable = _capabilities()
    both = _CAP_SETUID | _CAP_SETGID
    if os.geteuid() == 0 or not (effective | permitted | inheritable) & both:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)(*(mask & ~both for mask in (effective, permitted, inheritable)), 0, 0, 0)
    if libc.syscall(_CAPSET, ctypes.byref(header), ctypes.byref(data)):
        raise OSError(ctypes.get_errno(), "CAP_SETUID and CAP_SETGID cannot be dropped")


def _capabilities() -> tuple[int, int, int]:
    """The effective, permitted and inheritable masks of the first 32 capabilities."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    data = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).syscall(_CAPGET, ctypes.byref(header), ctypes.byref(data))
    return data[0], data[1], data[2]


def _subordinate_ids() -> range:
    """Ids that /etc/subuid and /etc/subgid both give this user. Raises OSError."""
    if not (shutil.which("newuidmap") and shutil.which("newgidmap")):
        raise OSError("vgpud is not root, has no CAP_SETUID and finds no newuidmap")
    users, groups = (_read_ids(Path(f"/etc/sub{kind}id")) for kind in "ug")
    for each in users:
        for other in groups:
            first, end = max(each.start, other.start), min(each.stop, other.stop)
            if end - first >= 2:
                return range(max(first, end - _HELPED), end)
    raise OSError("vgpud is not root, has no CAP_SETUID, and /etc/subuid gives its user no ids")


def _read_ids(path: Path) -> list[range]:
    names = {str(os.geteuid())}
    with contextlib.suppress(KeyError):
        names.add(pwd.getpwuid(os.geteuid()).pw_name)
    try:
        rows = [line.split(":") for line in path.read_text().splitlines()]
    except OSError:
        return []
    found = [row for row in rows if len(row) == 3 and row[0] in names and row[1].isdecimal() and row[2].isdecimal()]
    return [range(int(first), int(first) + int(count)) for _, first, count in found]
