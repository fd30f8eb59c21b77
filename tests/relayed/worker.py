"""A worker whose real driver is vgpu's libcuda, which reaches a GPU by a socket. Its other confinement is unchanged."""

from __future__ import annotations

from vgpud.worker import seccomp
from vgpud.worker.entry import main

if __name__ == "__main__":
    seccomp.DRIVER |= {"connect", "socket", "socketpair", "userfaultfd"}
    main()
