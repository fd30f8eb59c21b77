"""A user id for each worker, of a range that nobody else has: two workers can neither signal nor trace each other nor
open each other's files, whatever else fails to keep them apart. On a card the workers of one tenant share an id.

The ids are the host's own where vgpud runs as root, else those of a user namespace that vgpud made while it was allowed
to (supervision/user_namespace.py). A worker's group id is the same number, and it is in no other group.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterable


class UserIds:
    """The ids in use. A released id is not reserved again before all others have been."""

    def __init__(self, ids: range) -> None:
        self._ids = ids
        self._workers: Counter[int] = Counter()  # number of workers by id
        self._next = secrets.randbelow(len(ids))  # a vgpud that replaces another begins elsewhere

    def reserve(self, uid: int | None = None) -> int:
        """Add a worker to this id, or, for None, to an id that no worker has. Returns the id. Raises OSError: all
        ids are in use.
        """
        uid = self._free() if uid is None else uid
        self._workers[uid] += 1
        return uid

    def _free(self) -> int:
        for _ in self._ids:
            uid = self._ids[self._next]
            self._next = (self._next + 1) % len(self._ids)
            if uid not in self._workers:
                return uid
        raise OSError(f"all {len(self._ids)} user ids of workers are in use")

    def release(self, uid: int) -> None:
        """Record that a worker with this id has ended."""
        self._workers[uid] -= 1
        if self._workers[uid] == 0:
            del self._workers[uid]


def parse_ids(text: str) -> range:
    """`FIRST-LAST`, at least two of them and none root's. Raises ValueError."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal():
        raise ValueError("give the first and the last id, as in 2000000000-2000065535")
    ids = range(int(first), int(last) + 1)
    if len(ids) < 2 or ids[0] == 0 or ids[-1] >= 2**32 - 1:
        raise ValueError("it must hold two ids at least, from 1 to 4294967294")
    return ids


def format_ids(ids: range) -> str:
    """What parse_ids() takes."""
    return f"{ids[0]}-{ids[-1]}"


def become(uid: int) -> None:
    """Switch to this user and group id for good, without other groups. Raises OSError."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def needed_paths() -> set[str]:
    """The folders from which a worker still loads code."""
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    given = {sys.prefix, sys.base_prefix, *sys.path, *filter(os.path.isabs, searched)}
    return {os.path.realpath(path) for path in given if path and os.path.exists(path)}


def unusable(uid: int, devices: Iterable[str] = ()) -> str | None:
    """A file of our code that this user cannot read, or one of the devices that it cannot read and write, if there is
    one. A child process becomes that user to check.

    Raises OSError: this process cannot become that user.
    """
    files = {path for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    wanted = dict.fromkeys(sorted(files), os.R_OK) | dict.fromkeys(devices, os.R_OK | os.W_OK)
    return _ask_as(uid, wanted)


def _ask_as(uid: int, wanted: dict[str, int]) -> str | None:
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 0
        try:
            become(uid)
            os.write(theirs, next((path for path in wanted if not os.access(path, wanted[path])), "").encode())
        except OSError as error:
            code = error.errno or 1
        os._exit(code)
    os.close(theirs)
    with open(ours, "rb") as answer:
        path = answer.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        raise OSError(code, os.strerror(code))
    return path or None


def hidden_by(path: str) -> str | None:
    """The first folder above `path` that other users cannot pass."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts)):
        folder = "/" + "/".join(parts[:count])
        if not os.stat(folder).st_mode & 0o001:
            return folder
    return None
