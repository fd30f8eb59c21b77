"""`vgpu sanitize`: run a program on simulated GPUs that check what its kernels do with memory and barriers."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .sanitizer_report import TOOLS, Report, read_reports
from .watched_run import run_watched

if TYPE_CHECKING:
    from typing import TextIO

SPACES = {
    "global": ("initcheck",),
    "shared": ("initcheck-shared",),
    "all": ("initcheck", "initcheck-shared"),
}  # of compute-sanitizer, with its default; what vgpud calls them


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--tool", type=click.Choice(TOOLS), default="memcheck", show_default=True, help="What to look for.")
@click.option("--leak-check", type=click.Choice(["full", "no"]), default="no", help="memcheck: what is never freed.")
@click.option(
    "--initcheck-address-space",
    "space",
    type=click.Choice(SPACES),
    default="global",
    show_default=True,
    help="initcheck: which memory.",
)
@click.option(
    "--error-exitcode", type=click.IntRange(0, 255), help="Exit with this code when there are errors, or no kernel."
)
@click.option("--print-limit", type=click.IntRange(min=0), default=100, show_default=True, help="Errors to print.")
@click.option("--log-file", type=click.Path(path_type=Path, dir_okay=False), help="Write the report there.")
@click.option("--gpu", "gpus", metavar="PROFILES", help='Simulated devices, as in "h100".')
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True), help="End the program after this.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def sanitize(
    tool: str,
    leak_check: str,
    space: str,
    error_exitcode: int | None,
    print_limit: int,
    log_file: Path | None,
    gpus: str | None,
    timeout_s: float | None,
    command: tuple[str, ...],
) -> None:
    """Run COMMAND and report what its kernels do wrong.

    memcheck: accesses outside of allocations, after a free, or misaligned. initcheck: reads of global memory, or of
    what --initcheck-address-space says, that nothing has written. racecheck: accesses of shared and global memory that
    nothing orders. synccheck: barriers that not all threads reach. The exit code is the program's, or --error-exitcode
    where something was found, or no kernel was watched.
    """
    tools = [*SPACES[space]] if tool == "initcheck" else [tool]
    tools += ["leakcheck"] if tool == "memcheck" and leak_check == "full" else []
    setting = f"sanitize = [{', '.join(f'{name!r}' for name in tools)}]"
    watched = run_watched(command, setting, gpus, timeout_s, with_stacks=True)
    code, (reports, others, is_cut_short) = watched.code, read_reports(watched.lines)
    for line in others:
        click.echo(line, err=True)
    with ExitStack() as stack:
        to: TextIO = stack.enter_context(log_file.open("w")) if log_file is not None else sys.stdout
        report = Report(
            tool, reports, print_limit, is_whole=watched.is_whole and not is_cut_short, stacks=watched.stacks
        )
        to.writelines(f"========= {line}".rstrip() + "\n" for line in report.lines())
    if (report.error_count or report.is_void) and error_exitcode is not None:
        code = error_exitcode
    raise SystemExit(code)
