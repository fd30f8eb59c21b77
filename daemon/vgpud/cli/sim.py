"""`vgpu sim`: how the simulator would handle a program, without running it."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import click

from .fail import fail
from .status import ExitStatus
from .table import format_table


class _Capability(click.ParamType[tuple[int, int]]):
    name = "MAJOR.MINOR"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"([0-9]{1,2})\.([0-9])", value)
        if not found:
            self.fail(f"{value!r} is not like 9.0", param, ctx)
        return int(found[1]), int(found[2])


@click.group()
def sim() -> None:
    """Ask the simulator, without running a program."""


@sim.command()
@click.option("--cc", type=_Capability(), default="13.0", show_default=True, help="Compute capability of the device.")
@click.option("--sample", type=click.IntRange(min=1), help="Read about so many kernels of each file (default: all).")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def census(cc: tuple[int, int], sample: int | None, as_json: bool, files: tuple[Path, ...]) -> None:
    """Say which kernels of FILES (libraries, programs, fat binaries, PTX) would run, and what stops the others.

    The exit code is 0 if all kernels read would run, 1 if not.
    """
    try:
        from vgpusim import census as reader
        from vgpusim.image.error import ImageError
    except ImportError:
        fail("this installation has no simulator", ExitStatus.UNAVAILABLE)
    taken = []
    for file in files:
        try:
            taken.append(reader.take(file, cc, sample))
        except (OSError, ImageError) as error:
            fail(f"{file}: {error}", ExitStatus.USAGE)
    if as_json:
        click.echo(json.dumps([asdict(each) for each in taken], indent=2))
    else:
        rows = []
        for each in taken:
            stops = "; ".join(f"{reason} x{count}" for reason, count in (each.refused + each.unreadable).most_common())
            share = f"{each.share:.1%}" if each.read else "-"
            rows.append([each.file, str(each.modules), str(each.read), share, stops])
        click.echo(format_table(["FILE", "MODULES", "KERNELS READ", "RUN", "WHAT STOPS THE OTHERS (KERNELS)"], rows))
    raise SystemExit(0 if all(each.read and not each.refused and not each.unreadable for each in taken) else 1)
