"""docs/operations.md: every command in it works as printed, and its TOML blocks form one valid configuration."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
from vgpud.config import parse_config

from protocol.gen.dsl import GROUPS
from tests.conftest import ROOT
from tests.daemon.running import ENVIRONMENT, Running, only, start_client, vgpud_with_real_workers, wait_until
from tests.shim.client import PRELUDE

DOCUMENT = (Path(__file__).parents[3] / "docs/operations.md").read_text()
# test_a_call_is_followed_to_its_kernel_by_one_number, tests/daemon/serving/test_recording.py
NEED_A_FILE = ("vgpu run ", "vgpu replay ")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_configuration_is_one():
    config = parse_config("\n".join(blocks("toml")), source="operations.md")
    assert config.share(config.default_share).memory_nbytes == 8 << 30


@pytest.fixture
def path(tmp_path: Path) -> str:
    """PATH with a `vgpu` first, as the packages install it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "vgpu").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from vgpud.cli.main import vgpu; vgpu()" "$@"\n'
    )
    (folder / "vgpu").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def where_it_is(path: str, running: Running) -> dict[str, str]:
    """The environment in which commands find this vgpud without an option."""
    return ENVIRONMENT | {"PATH": path, "RUNTIME_DIRECTORY": str(running.admin_path.parent)}


def test_the_groups_of_functions_are_those_that_can_be_denied() -> None:
    rows = re.findall(r"\| `(\w+)` \| ([^|`]*cu[^|`]*|[^|`]*CUPTI[^|`]*) \|", DOCUMENT)
    assert {group: words.replace("\\*", "*") for group, words in rows} == GROUPS


def test_the_commands_work(shared: Running, path: str) -> None:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines() if line.startswith("$ ")]
    lines = [line for line in lines if not line.startswith(NEED_A_FILE)]
    assert len(lines) == 15
    for line in lines:
        line = line.replace("/run/vgpu/admin.sock", str(shared.admin_path))
        done = subprocess.run(
            ["sh", "-c", line], env=where_it_is(path, shared), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
    assert shared.admin.get("tokens") == {"tokens": []}


def test_a_call_is_followed_to_its_kernel_by_one_number(path: str, tmp_path: Path) -> None:
    """The document's command prints what it shows, but for the times, and its trace has an arrow for each launch."""
    [block] = [block for block in blocks("console") if "one_call.py" in block]
    command, *shown = block.splitlines()
    line = command.removeprefix("$ ").replace("docs/", f"{ROOT}/docs/").replace("python3", sys.executable)
    env = ENVIRONMENT | {"PATH": path}
    done = subprocess.run(["sh", "-c", line], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr

    def without_times(lines: list[str]) -> list[str]:
        return [re.sub(r"-?\d+\.\d us", "T", line) for line in lines]

    assert without_times(done.stdout.splitlines()) == without_times(shown)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    for number in (7, 8):
        call, begin, kernel, end = [event for event in events if event["args"]["correlation"] == number]
        assert (call["name"], begin["ph"], kernel["name"], end["ph"]) == ("cuLaunchKernel", "s", "fill", "f")
        assert begin["id"] == end["id"] == number
        assert call["ts"] <= kernel["ts"]


WITHOUT_END = {"vgpu top", "vgpu session watch"}
# They need a program to run, or are for a machine with the guest's libraries.
ELSEWHERE = {"vgpu run --trace=summary", "vgpu sim profile", "vgpu doctor"}


def test_the_commands_in_sentences_work(shared: Running, path: str) -> None:
    """`N` stands for a device or a session; the vgpud has one of each."""
    with start_client(shared):
        session = only(lambda: shared.admin.get("sessions")["sessions"])
        spans = set(re.findall(r"`(vgpu [^`]*)`", DOCUMENT)) - ELSEWHERE
        assert {"vgpu session show N", "vgpu session kill N", "vgpu device restore N"} < spans
        for span in sorted(spans - WITHOUT_END, key=lambda each: "kill" in each):
            line = span.replace(" N", " 0" if "device" in span else f" {session['session']}")
            done = subprocess.run(
                ["sh", "-c", line], env=where_it_is(path, shared), capture_output=True, text=True, timeout=60
            )
            assert done.returncode == 0, f"{line}: {done.stderr}"
        for span in WITHOUT_END:
            with subprocess.Popen(
                ["sh", "-c", f"exec {span}"], env=where_it_is(path, shared), stdout=subprocess.PIPE, text=True
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                process.kill()


def test_programs_of_another_machine_compute_over_tls(path: str, tmp_path: Path) -> None:
    """The document's [tls] table and the other machine's two commands, with the addresses of this machine."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "tls.pem")
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = str(sock.getsockname()[1])
    names = {
        "gpu.example": "127.0.0.1",
        "7443": port,
        "/etc/vgpu": str(tmp_path),
        "/run/vgpu": str(tmp_path),
        "VGPU_TOKEN=...": "VGPU_TOKEN=0123456789abcdef",
        "python train.py": f"{sys.executable} {tmp_path}/train.py",
    }

    def here(text: str) -> str:
        for there, replacement in names.items():
            text = text.replace(there, replacement)
        return text

    (tmp_path / "train.py").write_text(f"{PRELUDE}\ncontext()\nalloc(1 << 20)\nprint('computed')\n")
    [table] = [block for block in blocks("toml") if block.startswith("[tls]")]
    [commands] = blocks("sh")
    connect, program = here(commands).splitlines()
    token = "[[tokens]]\nname = 'job'\nvalue = '0123456789abcdef'\n"
    env = {key: value for key, value in ENVIRONMENT.items() if not key.startswith("VGPU_")} | {"PATH": path}
    for _running in vgpud_with_real_workers(tmp_path, token + here(table)):
        with subprocess.Popen(["sh", "-c", f"exec {connect}"], env=env) as process:
            wait_until(lambda: (tmp_path / "gpu.sock").exists() or process.poll() is not None)
            done = subprocess.run(["sh", "-c", program], env=env, capture_output=True, text=True, timeout=100)
            process.terminate()
        assert done.stdout == "computed\n", done.stderr
