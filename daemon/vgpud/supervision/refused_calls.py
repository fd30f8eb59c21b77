"""The system calls that a worker's filter refuses as unknown (worker/seccomp.py), answered here and named in the log.

Each call waits in the kernel until vgpud answers ENOSYS. A worker is not trusted: after some calls the listener is
closed, and the kernel answers ENOSYS without a log line.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import struct
from typing import TYPE_CHECKING

from vgpud.worker.system_call import describe

if TYPE_CHECKING:
    from collections.abc import Callable

# linux/seccomp.h: _IOWR('!', 0, struct seccomp_notif), _IOWR('!', 1, struct seccomp_notif_resp)
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_NOTIFICATION_NBYTES = 80
_NOTIFICATION = struct.Struct("=QIIi")  # id, pid, flags, the call's number
_RESPONSE = struct.Struct("=QqiI")  # id, value, error, flags
_ANSWERS_MAX = 256
_NAMES_MAX = 16


class RefusedCalls:
    """One worker's listener; all methods run on the event loop."""

    def __init__(self, listener: int, say: Callable[[str], None]) -> None:
        """Take ownership of `listener`. `say`: called once for each call, with its name."""
        self._listener = listener
        self._say = say
        self._answers = 0
        self._seen: set[int] = set()
        asyncio.get_running_loop().add_reader(listener, self._answer)

    def close(self) -> None:
        """Close the listener; from now on the kernel answers."""
        if self._listener >= 0:
            asyncio.get_running_loop().remove_reader(self._listener)
            os.close(self._listener)
            self._listener = -1

    def _answer(self) -> None:
        # When no process with the filter is left, the listener hangs up; before Linux 6.11 receiving then blocks for
        # ever.
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        if not any(events & select.POLLIN for _, events in poll.poll(0)):
            self.close()
            return
        data = bytearray(_NOTIFICATION_NBYTES)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, data)
            number, _pid, _flags, call = _NOTIFICATION.unpack_from(data)
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(number, 0, -errno.ENOSYS, 0))
        except OSError as error:
            if error.errno != errno.ENOENT:  # its thread was killed meanwhile
                self.close()
            return
        self._answers += 1
        if call not in self._seen:
            self._seen.add(call)
            self._say(describe(call))
        if self._answers == _ANSWERS_MAX or len(self._seen) == _NAMES_MAX:
            self.close()
