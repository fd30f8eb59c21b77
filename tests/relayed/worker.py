"""A worker whose real driver is our own libcuda, which reaches a GPU by a socket. Its other confinement is as ever."""

from __future__ import annotations

from vgpud.worker import seccomp
from vgpud.worker.entry import main

if __name__ == "__main__":
    seccomp.DRIVER |= {"connect", "socket", "socketpair", "userfaultfd"}
    main()
