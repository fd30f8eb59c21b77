"""`vgpu replay`: the calls of a recorded session once more, in a worker of its own."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import IO, Any

import click

from .client import Client
from .fail import fail, reported
from .private_daemon import PrivateDaemon, PrivateDaemonError
from .recording import Outcome, RecordingError, Replay, read_recording
from .status import ExitStatus


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--gpu", "gpus", metavar="PROFILES", help="Simulated devices; default: those of the recording.")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=1), default=60.0, help="For each answer, seconds.")
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def replay(file: Path, gpus: str | None, timeout_s: float, as_json: bool) -> None:
    """Send the calls in FILE, which vgpud has recorded ([recording] in vgpud.toml), to a simulated device, and compare
    the answers.

    Calls begin and end in the recorded order. Times, queries and tokens of shared memory are not compared. The exit
    code is 1 if an answer differs; the first one that does is named.
    """
    try:
        recording = read_recording(file)
    except (OSError, RecordingError) as error:
        fail(f"{file}: {error}", ExitStatus.USAGE)
    devices = gpus or str(recording.about.get("gpus") or "h100")
    try:
        with (
            tempfile.NamedTemporaryFile("w", prefix="vgpu-replay-", suffix=".toml") as config,
            PrivateDaemon(devices, config=_written(config, recording.about)) as daemon,
            reported(daemon.endpoint),
            Client(daemon.endpoint, timeout_s=timeout_s, features=("progress",)) as client,
        ):
            client.hello()
            client.attach()
            outcome = Replay(client.detach(), timeout_s).run(recording)
    except PrivateDaemonError as error:
        fail(str(error), ExitStatus.UNAVAILABLE)
    _tell(outcome, as_json)
    if outcome.different:
        raise SystemExit(1)


def _written(config: IO[str], about: dict[str, Any]) -> Path:
    """Device memory shall have the addresses that the recorded calls name."""
    epoch = about.get("epoch")
    config.write(f"[recording]\nepoch = {epoch}\n" if isinstance(epoch, int) else "")
    config.flush()
    return Path(config.name)


def _tell(outcome: Outcome, as_json: bool) -> None:
    first = outcome.first
    if as_json:
        fields = {name: getattr(outcome, name) for name in ("calls", "compared", "different", "is_whole")}
        named = None if first is None else {name: getattr(first, name) for name in first.__slots__}
        click.echo(json.dumps(fields | {"first": named}))
        return
    if first is not None:
        click.echo(f"call {first.call}, {first.name}: recorded {first.recorded}; replayed {first.replayed}")
    ends = "" if outcome.is_whole else "; the recording ends before its session"
    click.echo(f"{outcome.calls} calls, {outcome.compared} answers compared, {outcome.different} different{ends}")
