"""`--watch` follows a service's start, then examines the service."""

from __future__ import annotations

import json
import os
import subprocess

from tests.conftest import merged
from tests.guest.doctor.tree import DOCTOR, Tree
from tests.guest.elf_file import compile_c
from tests.patience import PATIENCE_S

OPENS = """
#include <dlfcn.h>
#include <unistd.h>
int main(void) { usleep(300000); void *l = dlopen("libcuda.so.1", RTLD_NOW); sleep(600); return l != 0; }
"""


def test_a_start_is_followed_until_it_is_settled(tree: Tree) -> None:
    compile_c(tree.path(tree.program), OPENS)
    endpoint = tree.environment["VGPU_ENDPOINT"]
    tree.unit(f"[Service]\nExecStart={tree.program}\n")
    watching = subprocess.Popen(
        [*DOCTOR, "--json", "--watch", "--timeout", str(PATIENCE_S), "--root", str(tree.root), "--service", "gpu"],
        env={"PYTHONPATH": merged(None)["PYTHONPATH"], "PATH": os.environ["PATH"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr
    waits = watching.stderr.readline()
    assert waits.startswith("waiting for "), waits
    environment = {"LD_LIBRARY_PATH": "/usr/lib/vgpu", "VGPU_ENDPOINT": endpoint}
    service = subprocess.Popen([tree.program], env=environment, preexec_fn=lambda: os.chroot(tree.root), cwd="/")
    try:
        stdout, stderr = watching.communicate(timeout=PATIENCE_S)
    finally:
        service.kill()
        service.wait()
    assert f"process {service.pid} started" in stderr, stderr
    assert f"process {service.pid} maps /usr/lib/vgpu/libcuda.so.580.159.04" in stderr
    assert json.loads(stdout)["verdict"] == "ok", stdout


def test_a_service_that_never_starts_is_waited_for_no_longer_than_asked(tree: Tree) -> None:
    tree.unit(f"[Service]\nExecStart={tree.program}\n")
    told = tree.doctor("--watch", "--timeout", "1", "--service", "gpu")
    assert "time is up" in told.stderr
    assert told.verdict == "service-environment", told.everything
