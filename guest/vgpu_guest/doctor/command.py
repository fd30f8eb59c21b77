"""`vgpu doctor`."""

from __future__ import annotations

import contextlib
import json
import os
from typing import IO

import click

from . import report, subject, watch
from .diagnosis import Diagnosis
from .examine import examine
from .log_line import matches
from .redact import Redactor
from .system import describe_system


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--service", metavar="NAME", help="A systemd service: its running process, else what its files say.")
@click.option("--pid", type=click.IntRange(1, 2**22), help="A running process.")
@click.option(
    "--log", type=click.File("rb"), help="A program's log (`-` for standard input): known lines, their causes."
)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, resolve_path=True),
    default="/",
    help="Another system's tree: an image, a chroot.",
)
@click.option("--json", "as_json", is_flag=True, help="The diagnosis as JSON (schema in docs/doctor.md).")
@click.option(
    "--report", "as_report", is_flag=True, help="All of it as JSON to send on: without users, hosts, addresses, tokens."
)
@click.option("--watch", "watches", is_flag=True, help="With --service: follow its start, then look at it.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="How long --watch waits, seconds.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def doctor(
    service: str | None,
    pid: int | None,
    log: IO[bytes] | None,
    root: str,
    as_json: bool,
    as_report: bool,
    watches: bool,
    timeout_s: float,
    command: tuple[str, ...],
) -> None:
    """Say why a program does not reach the vGPU, and what mends it.

    COMMAND is a command line, or the path of a program or library; without any, this shell is looked at. The exit code
    is 0 only if cuInit works in that program's environment; others are in docs/doctor.md.
    """
    if sum((service is not None, pid is not None, log is not None, bool(command))) > 1:
        raise click.UsageError("one of --service, --pid, --log and COMMAND")
    if watches and service is None:
        raise click.UsageError("--watch goes with --service")
    if log is not None:
        diagnosis = read_log(log)
    else:
        if watches and service is not None:
            _watch(service, root, timeout_s)
        diagnosis = examine(lambda: _find_subject(service, pid, root, command))
    _show(diagnosis, as_json, as_report)
    raise SystemExit(diagnosis.verdict.exit_code)


def _find_subject(service: str | None, pid: int | None, root: str, command: tuple[str, ...]) -> subject.Subject:
    if service is not None:
        return subject.of_service(service, root)
    if pid is not None:
        return subject.of_process(pid)
    if len(command) == 1 and ("/" in command[0] or (".so" in command[0] and os.path.isfile(command[0]))):
        return subject.of_file(command[0], root)
    return subject.of_command(command, root) if command else subject.of_machine(root)


def _watch(service: str, root: str, timeout_s: float) -> None:
    """Report progress on stderr, so that the output of --json stays JSON."""
    with contextlib.suppress(subject.SubjectError):  # the examination reports the error
        watch.follow(service, root, timeout_s, lambda text: click.echo(report.printable(text), err=True))


def read_log(file: IO[bytes]) -> Diagnosis:
    """The diagnosis that a log gives, without a subject."""
    diagnosis = Diagnosis()
    for match in matches(file):
        diagnosis.add(match.kind, f"{match.cause} (line {match.number})")
        diagnosis.evidence.append(f"line {match.number}: {match.line[:300]}")
    if not diagnosis.findings:
        diagnosis.add("unknown", "no line of this log is known to the doctor", advice="vgpu doctor --service NAME")
    return diagnosis


def _show(diagnosis: Diagnosis, as_json: bool, as_report: bool) -> None:
    if as_report:
        secrets = () if diagnosis.subject is None else (diagnosis.subject.environment.get("VGPU_TOKEN", ""),)
        document = {**diagnosis.as_json(), "system": describe_system()}
        click.echo(json.dumps(Redactor(secrets).value(document), indent=2))
    elif as_json:
        click.echo(json.dumps(diagnosis.as_json(), indent=2))
    else:
        for line in report.lines(diagnosis):
            click.echo(report.printable(line))
