"""Services: the environment of the running process, or else of the unit's files; and which process is the service's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guest.doctor.tree import NOBODY, Tree
from tests.guest.elf_file import compile_c
from tests.patience import PATIENCE_S

SLEEP = "#include <unistd.h>\nint main(void) { sleep(600); return 0; }"


@pytest.fixture
def running(tree: Tree) -> Iterator[Tree]:
    """The tree, with a function `start` that runs the tree's program as a service's main process."""
    compile_c(tree.path(tree.program), SLEEP)
    started = []

    def start(**environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([tree.program], env=environment, preexec_fn=lambda: os.chroot(tree.root), cwd="/")
        started.append(process)
        return process

    tree.start = start  # type: ignore[attr-defined]
    yield tree
    for process in started:
        process.kill()
        process.wait()


def both(tree: Tree) -> str:
    return f"LD_LIBRARY_PATH=/usr/lib/vgpu VGPU_ENDPOINT={tree.environment['VGPU_ENDPOINT']}"


def test_I06_a_unit_without_the_environment(tree: Tree) -> None:
    """The shell has vgpu's environment variables, the service has none of them."""
    tree.unit(f"[Service]\nExecStart={tree.program} serve\n")
    told = tree.doctor("--service", "gpu")
    assert (told.code, told.verdict) == (20, "service-environment"), told.everything
    assert told.answer["mend"].startswith("sudo vgpu install --service gpu && ")
    assert tree.doctor().verdict == "ok"  # the same program, started from this shell


def test_drop_ins_count_in_systemds_order(tree: Tree) -> None:
    tree.unit(f"[Service]\nExecStart=/nowhere\nExecStart=\nExecStart=-{tree.program} serve\nEnvironment=A=1\n")
    tree.write("etc/systemd/system/gpu.service.d/20-later.conf", f"[Service]\nEnvironment={both(tree)}\n")
    tree.write("usr/lib/systemd/system/gpu.service.d/10-x.conf", "[Service]\nEnvironment=LD_LIBRARY_PATH=/wrong\n")
    tree.write("usr/lib/systemd/system/gpu.service.d/20-later.conf", "[Service]\nEnvironment=VGPU_ENDPOINT=none\n")
    assert tree.doctor("--service", "gpu").verdict == "ok"


def test_an_environment_file_counts(tree: Tree) -> None:
    tree.write(
        "etc/gpu.env", f"# ours\nVGPU_ENDPOINT={tree.environment['VGPU_ENDPOINT']}\nLD_LIBRARY_PATH='/usr/lib/vgpu'\n"
    )
    tree.unit(f"[Service]\nExecStart={tree.program}\nEnvironmentFile=-/etc/absent\nEnvironmentFile=/etc/gpu.env\n")
    assert tree.doctor("--service", "gpu.service").verdict == "ok"


def test_an_unknown_service_names_the_likely_one(tree: Tree) -> None:
    tree.unit(f"[Service]\nExecStart={tree.program}\n", "renamed.service")
    told = tree.doctor("--service", "program")
    assert (told.code, told.verdict) == (60, "service-unknown"), told.everything
    assert "renamed.service" in told.answer["text"]


def test_a_unit_whose_program_is_gone(tree: Tree) -> None:
    tree.unit("[Service]\nExecStart=/usr/bin/absent\n")
    assert tree.doctor("--service", "gpu").verdict == "program-missing"


def test_a_unit_that_forbids_the_sockets_family(tree: Tree) -> None:
    tree.unit(
        f"[Service]\nExecStart={tree.program}\nEnvironment={both(tree)}\nRestrictAddressFamilies=AF_UNIX AF_NETLINK\n"
    )
    told = tree.doctor("--service", "gpu")
    assert (told.code, told.verdict) == (30, "socket-family-blocked"), told.everything


def test_a_running_process_is_looked_at_where_it_stands(running: Tree) -> None:
    process = running.start(LD_LIBRARY_PATH="/usr/lib/vgpu", VGPU_ENDPOINT=running.environment["VGPU_ENDPOINT"])
    told = running.doctor("--pid", str(process.pid))
    assert told.verdict == "ok", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == "/usr/lib/vgpu/libcuda.so.1"
    assert told.answer["subject"]["program"] == running.program


def test_I06_the_running_process_counts_not_the_file(running: Tree) -> None:
    """The unit was repaired after the service had started."""
    running.unit(f"[Service]\nExecStart={running.program}\nEnvironment={both(running)}\n")
    process = running.start()
    told = running.doctor("--service", "gpu")
    assert told.answer["subject"]["pids"] == [process.pid], told.everything
    assert (told.code, told.verdict) == (20, "restart-needed"), told.everything
    assert "systemctl restart gpu.service" in told.answer["mend"]


def test_another_users_process_is_refused_with_a_reason(running: Tree) -> None:
    process = running.start()
    code = (
        "import os, sys\nfrom vgpu_guest.doctor.subject import of_process\n"
        "os.setuid(int(sys.argv[1]))\nof_process(int(sys.argv[2]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(NOBODY), str(process.pid)],
        env={"PYTHONPATH": str(Path(__file__).parents[3] / "guest")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert "another user's" in result.stderr


def test_no_such_process(tree: Tree) -> None:
    told = tree.doctor("--pid", "4194303")
    assert (told.code, told.verdict) == (60, "process-unreadable"), told.everything


def test_a_stranger_writes_what_he_likes_into_his_environment(running: Tree) -> None:
    """A process's environment is untrusted: it controls neither the terminal, nor the JSON, nor the doctor's loader."""
    process = running.start(
        LD_LIBRARY_PATH="/\x1b[31m:/usr/lib/vgpu", VGPU_ENDPOINT="tcp://[::1\udcff", PYTHONPATH="/evil"
    )
    told = running.doctor("--pid", str(process.pid))
    assert told.verdict == "endpoint-invalid", told.everything
