"""`vgpu sim`: how the simulator would handle a program's kernels, and what they do when it runs them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from .fail import fail, say
from .kernel_profile import HEADER, read_run, rows, totals, trace
from .status import ExitStatus
from .table import format_table
from .watched_run import run_watched


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
    """Kernels on the simulator: which would run, and what they do."""


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
        click.echo(json.dumps([vars(each) for each in taken], indent=2))
    else:
        rows = []
        for each in taken:
            stops = "; ".join(f"{reason} x{count}" for reason, count in (each.refused + each.unreadable).most_common())
            share = f"{each.share:.1%}" if each.read else "-"
            rows.append([each.file, str(each.modules), str(each.read), share, stops])
        click.echo(format_table(["FILE", "MODULES", "KERNELS READ", "RUN", "WHAT STOPS THE OTHERS (KERNELS)"], rows))
    raise SystemExit(0 if all(each.read and not each.refused and not each.unreadable for each in taken) else 1)


@sim.command(context_settings={"allow_interspersed_args": False})
@click.option(
    "--trace",
    "trace_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a trace of all launches there, for Perfetto.",
)
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
@click.option(
    "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the table there instead of to stderr."
)
@click.option("--gpu", "gpus", metavar="PROFILES", help='Simulated devices, as in "h100".')
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), help="End the program after this.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def profile(
    trace_file: Path | None,
    as_json: bool,
    output: Path | None,
    gpus: str | None,
    timeout_s: float | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND on simulated devices and say, by kernel, how long its launches took and what they did.

    TIME is the simulator's, not a card's. INSTRUCTIONS are PTX instructions of all threads, LANES the share of a
    warp's lanes that act in one, DIVERGENT the share of conditional branches that send lanes two ways. Bytes of bulk
    tensor copies are not counted. The exit code is the program's.
    """
    for file in filter(None, (output, trace_file)):
        try:
            file.open("a").close()  # fails before the program runs, not after
        except OSError as error:
            fail(str(error), ExitStatus.USAGE)
    watched = run_watched(command, "profile = true", gpus, timeout_s)
    found = read_run(watched.lines)
    for line in found.others:
        click.echo(line, err=True)
    if found.is_cut_short or not watched.is_whole:
        say("the run was cut short: some launches are missing here")
    kernels = totals(found)
    if as_json:
        text = json.dumps([kernel.as_json() for kernel in kernels], indent=2)
    else:
        text = format_table(HEADER, rows(kernels)) if kernels else "no kernel was launched"
    try:
        if output is not None:
            output.write_text(text + "\n")
        else:
            click.echo(text, err=True)
        if trace_file is not None:
            trace_file.write_text(json.dumps(trace(found.launches)))
    except OSError as error:
        fail(str(error), ExitStatus.FAILURE)
    raise SystemExit(watched.code)
