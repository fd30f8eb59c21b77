"""`python -m vgpud.worker`."""

from .entry import main

main()
