"""`unshare -mpf python enter_guest.py ROOT BINDS.json PROGRAM [ARG...]`: mount what BINDS names below ROOT, go there.

BINDS is a list of [source, path below ROOT, is read-only]. The mounts go with the process: the namespace is its own.
"""

import ctypes
import json
import os
import sys

_REC, _BIND, _REMOUNT, _RDONLY, _PRIVATE = 0x4000, 0x1000, 32, 1, 1 << 18
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, flags: int, kind: str | None = None) -> None:
    """mount(2)."""
    if _libc.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), None):
        error = ctypes.get_errno()
        raise OSError(error, f"mount {source} at {target}: {os.strerror(error)}")


root, binds, *command = sys.argv[1:]
mount("none", "/", _REC | _PRIVATE)
with open(binds) as file:
    for source, path, is_read_only in json.load(file):
        target = f"{root}/{path}"
        mount(source, target, _BIND | _REC)
        if is_read_only:
            mount("none", target, _REMOUNT | _BIND | _RDONLY)
mount("proc", f"{root}/proc", 0, "proc")  # of its own processes alone: others' services are no services here
os.chroot(root)
os.chdir("/")
os.execv(command[0], command)
