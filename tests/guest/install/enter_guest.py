"""`unshare -mpf python enter_guest.py ROOT BINDS.json PROGRAM [ARG...]`: run PROGRAM in ROOT with the mounts of BINDS.

BINDS is a list of [source, path below ROOT, is read-only]. The mounts end with the process, which has a namespace of
its own.
"""

import ctypes
import json
import os
import sys

_REC, _BIND, _REMOUNT, _RDONLY, _PRIVATE = 0x4000, 0x1000, 32, 1, 1 << 18
_PIVOT_ROOT, _MNT_DETACH = 155, 2  # the number of pivot_root on x86-64; glibc has no function for it
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, flags: int, kind: str | None = None) -> None:
    """mount(2)."""
    if _libc.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None):
        error = ctypes.get_errno()
        raise OSError(error, f"mount {source} at {target}: {os.strerror(error)}")


root, binds, *command = sys.argv[1:]
mount("none", "/", _REC | _PRIVATE)
mount(root, root, _BIND)  # pivot_root needs a mount point
with open(binds) as file:
    for source, path, is_read_only in json.load(file):
        target = f"{root}/{path}"
        mount(source, target, _BIND | _REC)
        if is_read_only:
            mount("none", target, _REMOUNT | _BIND | _RDONLY)
mount("proc", f"{root}/proc", 0, "proc")  # shows the processes of this pid namespace alone: no services from outside
os.chdir(root)
if _libc.syscall(_PIVOT_ROOT, b".", b".") or _libc.umount2(b".", _MNT_DETACH):  # as container runtimes do
    raise OSError(ctypes.get_errno(), "pivot_root")
os.chdir("/")
os.execv(command[0], command)
