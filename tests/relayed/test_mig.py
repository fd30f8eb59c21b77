"""A share whose `gpus` names a MIG instance: its worker's driver is started with that UUID alone.

The driver is vgpu's libcuda behind a library that stands for one on a machine with such an instance: with the
instance's UUID in CUDA_VISIBLE_DEVICES it has the second GPU of the two. No card has been asked.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import merged
from tests.daemon.devices.test_selection import INVALID_DEVICE, start
from tests.daemon.running import Running
from tests.relayed import conftest
from tests.relayed.conftest import LIBRARIES, WORKER
from tests.shim.client import run

MIG = "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"
DRIVER = """
#include <stdlib.h>
#include <string.h>
__attribute__((constructor)) static void choose(void) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  if (list && strcmp(list, "%s") == 0)
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
}
"""
SHARES = """
[[shares]]
name = 'instance'
gpus = ['{mig}']
[[tokens]]
name = 'instance'
value = 'instance-instance-instance'
share = 'instance'
[[tokens]]
name = 'entire'
value = 'entire-entire-entire'
"""


@pytest.fixture(scope="module")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mig-driver")
    (folder / "driver.c").write_text(DRIVER % MIG)
    made = folder / "libcuda-mig.so.1"
    behind = ["-Wl,--no-as-needed", f"-L{LIBRARIES}", "-l:libcuda.so.1", f"-Wl,-rpath,{LIBRARIES}"]
    subprocess.run(["cc", "-shared", "-fPIC", str(folder / "driver.c"), "-o", str(made), *behind], check=True)
    return made


def config(libcuda: Path, shares: str) -> str:
    return (
        f"backend = 'cuda'\nlibcuda = '{libcuda}'\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda', '--libcuda', str(libcuda)]!r}\n{shares}"
    )


def variables(driver: Running) -> dict[str, str]:
    return {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}


@pytest.fixture(scope="module")
def host(driver: Running, libcuda: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    text = config(libcuda, SHARES.format(mig=MIG))
    running = conftest.start(tmp_path_factory.mktemp("mig"), "b", text, variables(driver))
    yield running
    running.end()


def test_the_share_has_the_instance_and_the_others_the_gpus(host: Running, driver: Running) -> None:
    instance, entire = clients = [start(host, share) for share in ("instance", "entire")]
    assert [identity for _, identity in instance("devices()")] == [MIG[4:].replace("-", "")]
    assert instance("use(0)") == 0
    assert instance("use(1)") == INVALID_DEVICE
    address = instance("memory(4096)")
    assert instance(f"put({address}, b'an instance')") == 0
    assert instance(f"look({address}, 11)") == b"an instance"
    seen = entire("devices()")
    assert len(seen) == 2
    program = "ok(cuda.cuInit(0))\nn = c_int()\nok(cuda.cuDeviceGetCount(byref(n)))\nprint(n.value)"
    assert run(str(driver.endpoint), program) == "2\n"
    assert [each["name"] for each in host.admin.get("devices")["devices"]] == [name for name, _ in seen] + [seen[1][0]]
    for client in clients:
        client.kill()


@pytest.mark.parametrize(
    ("gpus", "why"),
    [
        ("['MIG-00000000-0000-0000-0000-000000000000']", "there is no MIG instance MIG-00000000-"),
        ("['MIG-1']", "there is no MIG instance MIG-1: `nvidia-smi -L` lists them, "),
        (f"['{MIG}', 0]", f"{MIG} is a MIG instance, with which a program has no other device"),
        ("[2]", "there is no device 2: there are 2, from 0 on"),
    ],
)
def test_errors_name_the_line_and_the_mend(driver: Running, libcuda: Path, tmp_path: Path, gpus: str, why: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(config(libcuda, f"[[shares]]\nname = 'a'\ngpus = {gpus}\n"))
    command = [sys.executable, "-m", "vgpud", "--config", str(path), "--check"]
    check = subprocess.run(command, env=merged(variables(driver)), capture_output=True, text=True)
    assert check.returncode == 78
    assert f"{path}:6: shares.0.gpus: {why}" in check.stderr
