"""`slow_worker.py FIFO OPTION...`: a real worker; each compile is reported and lasts until FIFO is readable."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from vgpud.worker import entry
from vgpusim import progress

bell = os.open(sys.argv.pop(1), os.O_RDONLY | os.O_NONBLOCK)


@contextmanager
def _reported(what: str) -> Iterator[None]:
    if what.startswith("compiling"):
        progress._say(what)
        select.select([bell], [], [])
    yield


progress.reported = _reported  # type: ignore[assignment]
entry.main()
