"""The state that vgpud passes to the program that replaces it in the same process: descriptors, and a document about
them. `vgpu restart` executes the installed vgpud; the kernel then closes all descriptors that are not passed on. Both
programs must have the same FORM, which the running one checks first (`--check`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from vgpud.devices import ledger
from vgpud.log import get_logger
from vgpud.tenancy import meter

if TYPE_CHECKING:
    from collections.abc import MutableMapping

VERSION = 1  # the document's version; changes whenever the meaning of a key changes
FORM = f"{VERSION}, ledger {ledger.NBYTES}, meter {meter.NBYTES}"  # with the sizes of the files that workers write
# Signals that are blocked while no handler is installed: they would end the process.
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
# Raised by restoring a session whose state or descriptors are damaged or missing. Only that session ends.
RESTORE_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OSError)
_VARIABLE = "VGPUD_SUCCESSION"
_ASKED = "VGPUD_SUCCESSION_FORM"


class Outgoing:
    """Collects descriptors; their owners keep them until execute()."""

    def __init__(self) -> None:
        self._fds: list[int] = []

    def add(self, fd: int) -> int:
        """Pass on a descriptor. Returns its name in the document."""
        self._fds.append(fd)
        return len(self._fds) - 1

    def execute(self, document: dict[str, Any]) -> NoReturn:
        """Execute the installed program with the arguments of sys.orig_argv. Raises OSError; then nothing has
        changed.
        """
        memory = os.memfd_create("vgpud-succession", os.MFD_CLOEXEC)
        whole = {"form": FORM, "fds": self._fds, "document": document}
        os.write(memory, json.dumps(whole).encode())
        environment = {**os.environ, _VARIABLE: str(memory)}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        for fd in (memory, *self._fds):
            os.set_inheritable(fd, True)
        try:
            os.execve(sys.executable, sys.orig_argv, environment)
        finally:  # only reached when execve failed
            for fd in (memory, *self._fds):
                os.set_inheritable(fd, False)
            os.close(memory)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Incoming:
    """The descriptors and the document, in the program that takes over."""

    is_after_crash = False

    def __init__(self, fds: list[int], document: dict[str, Any]) -> None:
        self._fds: dict[int, int] = dict(enumerate(fds))
        self.document = document

    def take(self, name: int) -> int:
        """The descriptor with this name, which the caller then owns. Raises KeyError."""
        return self._fds.pop(name)

    def close(self) -> None:
        """Close descriptors that were not taken."""
        for fd in self._fds.values():
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fds.clear()


def receive(environment: MutableMapping[str, str] = os.environ) -> Incoming | None:
    """The state that the previous vgpud left; None if there is none, or only in another form."""
    given = environment.pop(_VARIABLE, "")
    if not given.isdecimal():
        return None
    with open(int(given), "rb", closefd=True) as file:
        file.seek(0)
        whole = json.load(file)
    incoming = Incoming(whole["fds"], whole["document"])
    for fd in whole["fds"]:
        os.set_inheritable(fd, False)
    if whole["form"] == FORM:
        return incoming
    get_logger().error("the sessions of the vgpud before end: it left them in another form", form=whole["form"])
    incoming.close()
    return None


def asking() -> dict[str, str]:
    """The environment in which `vgpud --check` says whether it can take over from this program."""
    return {**os.environ, _ASKED: FORM}


def refusal(environment: MutableMapping[str, str] = os.environ) -> str | None:
    """Why this program cannot take over from the one that asks. None: it can, or no program asks."""
    asked = environment.get(_ASKED, FORM)
    if asked == FORM:
        return None
    return f"this vgpud takes over no sessions from the one that runs ({FORM}; {asked}): systemctl restart drains them"
