"""A click group that imports a command only when it is used: `vgpu run` need not import what `vgpu doctor` needs."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from .exit_status import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Mapping


UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG)


def _open_standard_streams() -> None:
    """Open /dev/null on closed standard descriptors, because the next opened file would get such a number."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)
            setattr(sys, name, open(descriptor, "r" if descriptor == 0 else "w", closefd=False))  # noqa: SIM115


class LazyGroup(click.Group):
    """A group whose commands are given as `package.module:attribute`."""

    def __init__(self, *args: Any, places: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._places = places

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """click's hook: if standard output cannot be written, end with one line instead of a traceback."""
        _open_standard_streams()
        try:
            try:
                return super().main(*args, **kwargs)
            finally:
                sys.stdout.flush()
        except OSError as error:
            if error.errno not in UNWRITABLE:
                raise
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # discard the output that is still buffered
            click.echo(f"vgpu: standard output: {error.strerror}", err=True)
            raise SystemExit(ExitStatus.IOERR) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        """click's hook: every name, sorted."""
        return sorted({*self._places, *super().list_commands(ctx)})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """click's hook: the command, or None if there is none of that name."""
        place = self._places.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = place.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command
