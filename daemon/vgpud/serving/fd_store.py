"""The service manager's file descriptor store: what the manager holds for the next vgpud in case this one crashes.

A worker ends when the other end of its control socket is closed. While the manager holds that end, too, the worker
goes on, and the vgpud that the manager starts next receives it (sd_notify(3): FDSTORE=1). The store has what
`vgpu restart` passes on (succession.py): the descriptors, and a document, which is replaced whenever it changes. What
changed in the last moments before a crash is lost, and sessions that began in them end. systemd 254 and later
announces the store by FDSTORE in the environment; for older ones deploy/vgpud.service does.

The next vgpud removes the document before it uses it: if that crashes it, the one after begins without sessions.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.log import get_logger

from .activation import FIRST_FD, KEPT, KEPT_NAME, passed_names
from .succession import FORM, Incoming, Outgoing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .notify import Notifier

_STATE = f"{KEPT}state-"
_NBYTES_MAX = 256 << 20

# Identifies an open file, whatever number of descriptors it has: the manager stores an open file once.
_Key = tuple[int, int, int]


class _Collected(Outgoing):
    """Names instead of numbers, the same for the same file."""

    def __init__(self, names: dict[_Key, int], number: int) -> None:
        super().__init__()
        self.found: dict[int, int] = {}  # a descriptor of each name
        self.names: dict[_Key, int] = {}
        self._known, self.number = names, number

    def add(self, fd: int) -> int:
        """See Outgoing."""
        key = _key(fd)
        name = self._known.get(key, self.names.get(key))
        if name is None:
            name = self.number = self.number + 1
        self.names[key], self.found[name] = name, fd
        return name


class FdStore:
    """Keeps a daemon's descriptors with the manager. All methods run on the event loop."""

    def __init__(self, notifier: Notifier, environment: Mapping[str, str] = os.environ) -> None:
        limit, started = environment.get("FDSTORE", ""), environment.get("SYSTEMD_EXEC_PID", "")
        self.is_on = limit.isdecimal() and int(limit) > 0 and started == str(os.getpid())
        self._notifier = notifier
        self._names: dict[_Key, int] = {}
        self._number = 0  # the last name that was used
        self._state = ""  # the name of the document
        self._said = ""  # what stood in it
        self.sessions: int | None = 0 if self.is_on else None  # with a worker, in the document; None: there is no store

    def dump(self) -> dict[str, Any]:
        """For restore(), in a vgpud that follows in this process."""
        return {
            "names": [[*key, name] for key, name in self._names.items()],
            "number": self._number,
            "state": self._state,
        }

    def restore(self, fields: dict[str, Any]) -> None:
        """What the manager holds from the previous vgpud."""
        self._names = {(device, inode, pid): name for device, inode, pid, name in fields["names"]}
        self._number, self._state = fields["number"], fields["state"]

    def save(self, collect: Callable[[Outgoing], dict[str, Any]]) -> None:
        """Make the manager hold exactly the descriptors that `collect` adds, and the document that it returns."""
        collected = _Collected(self._names, self._number)
        document = collect(collected)
        parts = [document[part] for part in ("server", "listeners", "launchers", "regions")]
        said = json.dumps([sorted(collected.found), *parts])
        if said == self._said:
            return
        self._number = collected.number
        for key, name in collected.names.items():
            if key not in self._names and not self._notifier.store(f"{KEPT}{name}", collected.found[name]):
                return  # tried again with the next change, under the same name
            self._names[key] = name
        self._number += 1
        before, self._state = self._state, f"{_STATE}{self._number}"
        memory = os.memfd_create("vgpud-state", os.MFD_CLOEXEC)
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(json.dumps({"form": FORM, "document": document}).encode())
            if not self._notifier.store(self._state, memory):
                self._state = before
                return
        finally:
            os.close(memory)
        if before:
            self._notifier.forget(before)
        for key in self._names.keys() - collected.names.keys():
            self._notifier.forget(f"{KEPT}{self._names.pop(key)}")
        self._said = said
        self.sessions = len(document["server"]["served"]["sessions"])

    def clear(self) -> None:
        """Empty the store: nothing shall outlive this vgpud."""
        if self._state:
            self._notifier.forget(self._state)
        for name in self._names.values():
            self._notifier.forget(f"{KEPT}{name}")
        self._names.clear()
        self._state = self._said = ""


class _Kept(Incoming):
    """What the manager held; one name may be taken more than once."""

    is_after_crash = True

    def __init__(self, fds: dict[int, int], document: dict[str, Any]) -> None:
        super().__init__([], document)
        self._fds = fds

    def take(self, name: int) -> int:
        """See Incoming. Raises KeyError."""
        return os.dup(self._fds[name])


def receive_kept(notifier: Notifier, environment: Mapping[str, str] = os.environ) -> Incoming | None:
    """What a crashed vgpud left with the manager. None: nothing that this version can read; the store is emptied."""
    named = {FIRST_FD + i: name for i, name in enumerate(passed_names(environment)) if KEPT_NAME.fullmatch(name)}
    kept: dict[int, int] = {}
    states: dict[int, int] = {}
    for fd, name in named.items():
        os.set_inheritable(fd, False)
        (states if name.startswith(_STATE) else kept)[int(name.rpartition("-")[2])] = fd
    document = None
    for number in sorted(states, reverse=True):
        notifier.forget(f"{_STATE}{number}")
        document = _read(states[number]) if document is None else document
        os.close(states[number])
    if document is not None:
        names = [[*_key(fd), name] for name, fd in kept.items()]
        document["store"] = {"names": names, "number": max([*states, *kept]), "state": ""}
        return _Kept(kept, document)
    for number, fd in kept.items():
        notifier.forget(f"{KEPT}{number}")
        os.close(fd)
    if kept:
        notifier.barrier()  # while the manager holds them, the listeners and their locks look like another vgpud's
    return None


def _read(fd: int) -> dict[str, Any] | None:
    """The document, if it is one of this version's."""
    try:
        whole = json.loads(os.pread(fd, _NBYTES_MAX, 0))
        form, document = whole["form"], whole["document"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        get_logger().error("the sessions of the vgpud before end: what it left is damaged", error=repr(error))
        return None
    if form == FORM and isinstance(document, dict):
        return document
    get_logger().error("the sessions of the vgpud before end: it left them in another form", form=form)
    return None


def _key(fd: int) -> _Key:
    """Which open file it is: pidfds, which have one inode on older kernels, by their process."""
    status = os.fstat(fd)
    pid = 0
    if stat.S_IFMT(status.st_mode) == 0:
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = Path(f"/proc/self/fdinfo/{fd}").read_text().splitlines()
            pid = int(next(line for line in lines if line.startswith("Pid:")).split()[1])
    return status.st_dev, status.st_ino, pid
