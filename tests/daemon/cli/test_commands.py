"""The small commands: what they print and how they fail."""

from __future__ import annotations

import json
import re
import socket
import threading

import pytest
from click.testing import CliRunner
from vgpud.cli.main import vgpu
from vgpud.cli.status import ExitStatus
from vgpud.cli.table import format_table
from vgpud.proto import HostConnection, Welcome


def invoke(*arguments: str, **environment: str):
    return CliRunner().invoke(vgpu, list(arguments), env=environment)


def test_devices(shared):
    result = invoke("devices", "--endpoint", str(shared.endpoint))
    header, row = result.output.splitlines()
    assert header.split() == ["GPU", "NAME", "UUID", "PCI", "MEMORY", "CC", "BACKEND"]
    assert re.fullmatch(r"0 +NVIDIA H100 PCIe +GPU-[0-9a-f-]{36} +0000:01:00\.0 +\d+ MiB +9\.0 +simulator", row)


def test_devices_json(shared):
    document = json.loads(invoke("devices", "--json", VGPU_ENDPOINT=str(shared.endpoint)).output)
    assert document["backend"] == "simulator"
    [device] = document["devices"]
    assert device["attributes"]["75"] == 9
    assert device["compute_capability"] == "9.0"


@pytest.mark.parametrize("command", ["devices", "ping"])
def test_GP1_a_guests_commands_find_vgpud_as_its_programs_do(start, tmp_path, command):
    running = start(listen=["tcp://127.0.0.1:0"], extra="[[tokens]]\nname = 'guest'\nvalue = '0123456789abcdef'\n")
    conf = tmp_path / "guest.conf"
    conf.write_text(f"endpoint = {running.endpoint}\ntoken = 0123456789abcdef\n")
    result = invoke(command, VGPU_GUEST_CONF=str(conf))
    assert result.exit_code == 0, result.output
    conf.write_text(f"endpoint = {running.endpoint}\n")
    refused = invoke(command, VGPU_GUEST_CONF=str(conf))
    assert refused.exit_code == ExitStatus.UNAVAILABLE
    assert "a valid token is needed" in refused.output


def test_ping(shared):
    result = invoke("ping", "-c", "10", "--endpoint", str(shared.endpoint))
    numbers = re.search(
        r"10 round trips to unix:.*: min (\d+) us, p50 (\d+) us, p99 (\d+) us, max (\d+) us", result.output
    )
    assert sorted(map(int, numbers.groups())) == list(map(int, numbers.groups()))


def test_status(shared):
    document = json.loads(invoke("status", "--json", "--admin", str(shared.admin_path)).output)
    assert document["metrics"]["connections_accepted"] >= 0
    with shared.client() as client:
        client.hello()
        table = invoke("status", "--admin", str(shared.admin_path)).output
    assert "connections_accepted" in table
    assert re.search(r"^SESSION +PEER +PID", table, re.MULTILINE)


def test_profiles():
    lines = invoke("profiles").output.splitlines()
    assert any(re.fullmatch(r"h100 +NVIDIA H100 PCIe +9\.0 +\d+ MiB", line) for line in lines)


def test_version():
    assert re.fullmatch(r"vgpu \d+\.\d+\.\d+, protocol 1\.\.1\n", invoke("version").output)


def test_api_without_the_generated_table(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vgpud._gen.api", None)
    result = invoke("api")
    assert result.exit_code == ExitStatus.SOFTWARE
    assert "make gen" in result.output


@pytest.mark.parametrize("command", [["devices"], ["ping"]])
def test_nobody_there(tmp_path, command):
    result = invoke(*command, "--endpoint", f"unix:{tmp_path}/absent.sock")
    assert result.exit_code == ExitStatus.UNAVAILABLE
    said = f"unix:{tmp_path}/absent.sock: no vgpud listens there: No such file or directory"
    assert result.output == f"vgpu {command[0]}: {said}\n"


@pytest.mark.parametrize("command", ["devices", "ping"])
def test_GM1_a_configuration_that_cannot_be_read_is_told(tmp_path, monkeypatch, command):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "guest.conf").mkdir()
    result = invoke(command, VGPU_GUEST_CONF=str(tmp_path / "guest.conf"))
    assert result.exit_code == ExitStatus.UNAVAILABLE
    assert result.output == f"vgpu {command}: {tmp_path}/guest.conf cannot be read: Is a directory\n"


def test_a_bad_endpoint():
    result = invoke("devices", "--endpoint", "ftp://x")
    assert result.exit_code == ExitStatus.USAGE
    assert "it is none of unix:/PATH" in result.output


def test_no_admin_socket(tmp_path):
    result = invoke("status", "--admin", str(tmp_path / "a.sock"))
    assert result.exit_code == ExitStatus.UNAVAILABLE
    assert result.output == f"vgpu status: {tmp_path}/a.sock: No such file or directory\n"


def test_a_host_that_talks_nonsense(tmp_path):
    """Whatever answers at an endpoint, the command ends with one line."""
    inventories = [{}, {"devices": [{}]}]
    for index, inventory in enumerate(inventories):
        endpoint = f"unix:{tmp_path}/{index}"
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(f"{tmp_path}/{index}")
            server.listen()

            def answer(server=server, inventory=inventory) -> None:
                sock, _ = server.accept()
                with sock:
                    host = HostConnection()
                    while host.receive(sock.recv(host.nbytes_wanted)) is None:
                        pass
                    sock.sendall(host.send(Welcome(1, (), 1, inventory)))

            thread = threading.Thread(target=answer)
            thread.start()
            result = invoke("devices", "--endpoint", endpoint)
            thread.join()
        assert result.exit_code == ExitStatus.UNAVAILABLE
        assert result.output.startswith(f"vgpu devices: {endpoint}: not a vgpud: ")
        assert len(result.output.splitlines()) == 1


def test_tables_do_not_drive_the_terminal():
    assert format_table(["A"], [["\x1b[31mred\n"]]) == "A\n?[31mred?"
