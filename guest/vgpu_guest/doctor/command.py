"""`vgpu doctor`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from . import report, subject
from .examine import examine

if TYPE_CHECKING:
    from .diagnosis import Diagnosis


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--service", metavar="NAME", help="A systemd service: its running process, else what its files say.")
@click.option("--pid", type=click.IntRange(1, 2**22), help="A running process.")
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, resolve_path=True), default="/", help="Another tree."
)
@click.option("--json", "as_json", is_flag=True, help="The diagnosis as JSON (schema in docs/doctor.md).")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def doctor(service: str | None, pid: int | None, root: str, as_json: bool, command: tuple[str, ...]) -> None:
    """Say why a program does not reach the vGPU, and what mends it.

    COMMAND is a command line, or the path of a program or library; without any, this shell is looked at. The exit code
    is 0 only if cuInit works in that program's environment; others are in docs/doctor.md.
    """
    if sum((service is not None, pid is not None, bool(command))) > 1:
        raise click.UsageError("one of --service, --pid and COMMAND")

    def find_subject() -> subject.Subject:
        if service is not None:
            return subject.of_service(service, root)
        if pid is not None:
            return subject.of_process(pid)
        if len(command) == 1 and "/" in command[0]:
            return subject.of_file(command[0], root)
        return subject.of_command(command, root) if command else subject.of_machine(root)

    diagnosis = examine(find_subject)
    show(diagnosis, as_json)
    raise SystemExit(diagnosis.verdict.exit_code)


def show(diagnosis: Diagnosis, as_json: bool) -> None:
    """Print it."""
    if as_json:
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
        return
    for line in report.lines(diagnosis):
        click.echo(report.printable(line))
