"""`python -m vgpud`."""

from .cli.daemon import daemon

daemon(prog_name="vgpud")
