"""`python -m vgpud`."""

from .cli.main import vgpud

vgpud(prog_name="vgpud")
