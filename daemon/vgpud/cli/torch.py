"""`vgpu torch`: how each of PyTorch's operators runs on a simulated GPU."""

from __future__ import annotations

import os
import subprocess

import click
from vgpu_guest.libraries import LIBRARIES

from .fail import fail
from .status import ExitStatus
from .torch_overlay import put_on_path


@click.command()
@click.option("--python", default="python3", show_default=True, help="The interpreter that has torch.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.argument("patterns", nargs=-1)
def torch(python: str, as_json: bool, patterns: tuple[str, ...]) -> None:
    """List PyTorch's operators: executed on the CPU, native, composed, refused.

    PATTERNS, as in "addmm*", select some.
    """
    environment = dict(os.environ)
    if not put_on_path(environment, LIBRARIES):
        fail("this build has no vgpu-torch (run `make build`)", ExitStatus.SOFTWARE)
    try:
        code = subprocess.call(
            [python, "-m", "vgpu_torch", *(["--json"] if as_json else []), *patterns], env=environment
        )
    except OSError as error:
        fail(f"{python}: {error.strerror}", ExitStatus.NOT_FOUND)
    raise SystemExit(code)
