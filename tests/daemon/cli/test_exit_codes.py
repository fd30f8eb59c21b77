"""Exit codes: one table, and every command that reaches for a vgpud says in a line that it did not."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from vgpu_guest.exit_status import MEANINGS, ExitStatus
from vgpud.cli.main import vgpu

from tests.conftest import ROOT, VGPU
from tests.daemon.running import ENVIRONMENT, Running

ARGUMENTS = {  # further arguments with which a command gets as far as the connection
    "run": ["--", "/bin/true"],
    "vm exec": ["--", "/bin/true"],
    "bench": ["--remoted-only"],
    "device restore": ["0"],
    "device withdraw": ["0"],
    "session kill": ["1"],
    "session show": ["1"],
    "tenant quarantine": ["uid:1"],
    "tenant release": ["uid:1"],
    "token issue": ["job"],
    "token revoke": ["job"],
    "top": ["-n", "1"],
}
WRITE_ONLY = {"cdi generate", "install"}  # the endpoint is written to a file, without a connection
OF_A_MACHINE = {"vm exec"}  # needs root before it connects


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """Restore the environment: commands run in this process here, and some change it."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def having(option: str) -> list[str]:
    return [name for name, command in commands(vgpu) if any(option in each.opts for each in command.params)]


ENDPOINT = sorted(set(having("--endpoint")) - WRITE_ONLY - OF_A_MACHINE)


def failed(command: str, *options: str) -> str:
    """The line that the command prints when it ends with UNAVAILABLE."""
    result = CliRunner().invoke(vgpu, [*command.split(), *options, *ARGUMENTS.get(command, [])])
    assert result.exit_code == ExitStatus.UNAVAILABLE, (result.output, result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def test_the_commands_are_found() -> None:
    assert {"ping", "devices", "smi", "run", "bench"} <= set(ENDPOINT)
    assert {"ps", "top", "status", "metrics", "restart", "session show", "token list"} <= set(having("--admin"))


@pytest.mark.parametrize("command", ENDPOINT)
def test_a_name_that_does_not_resolve_is_unavailable(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    output = failed(command, "--endpoint", "tcp://no-such-host.invalid:9")
    # vgpu smi asks through the library, whose line the runner does not see
    assert command == "smi" or re.fullmatch(rf"vgpu {command}: tcp://no-such-host.invalid:9: .*\n", output)


@pytest.mark.parametrize("command", ENDPOINT)
def test_a_socket_that_is_not_there_is_unavailable(command: str, tmp_path: Path) -> None:
    output = failed(command, "--endpoint", f"unix:{tmp_path}/absent.sock")
    assert output.startswith(f"vgpu {command}: ")
    assert output.count("\n") == 1


@pytest.mark.parametrize("command", having("--admin"))
def test_an_admin_socket_that_is_not_there_is_unavailable(command: str, tmp_path: Path) -> None:
    output = failed(command, "--admin", f"{tmp_path}/admin.sock")
    assert output == f"vgpu {command}: {tmp_path}/admin.sock: No such file or directory\n"


@pytest.mark.parametrize("command", [name for name, _ in commands(vgpu)])
def test_wrong_use_is_2(command: str) -> None:
    result = CliRunner().invoke(vgpu, [*command.split(), "--no-such-option"])
    assert result.exit_code == ExitStatus.USAGE
    assert "No such option" in result.output


def test_a_full_disk_is_not_the_sockets_fault(shared: Running) -> None:
    with open("/dev/full", "w") as full:
        command = [*VGPU, "ps", "--admin", str(shared.admin_path)]
        done = subprocess.run(command, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (74, "vgpu: standard output: No space left on device\n")


def test_the_documents_have_the_table() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (.*) \|$", (ROOT / "docs/operations.md").read_text().split("## Exit codes")[1], re.M
    )
    assert rows == [(str(int(code)), meaning) for code, meaning in MEANINGS.items()]
    assert set(MEANINGS) == set(ExitStatus)
