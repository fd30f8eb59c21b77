"""`gpus` of a share on the cuda backend: the driver of the session's worker sets up these devices alone, in the host's
order, and vgpud counts them under the host's numbers."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import merged
from tests.daemon.devices.test_selection import INVALID_DEVICE, memory_of, start
from tests.daemon.running import Running, wait_until
from tests.relayed import conftest
from tests.relayed.conftest import LIBRARIES, WORKER
from tests.shim.client import run

GIB = 1 << 30
SHARES = """
[[shares]]
name = 'second'
gpus = [1]
memory_mib = 4096
weight = 300
[[shares]]
name = 'double'
gpus = ['{uuid}', 0]
memory_mib = 8192
[[tokens]]
name = 'second'
value = 'second-second-second'
share = 'second'
[[tokens]]
name = 'double'
value = 'double-double-double'
share = 'double'
[[tokens]]
name = 'entire'
value = 'entire-entire-entire'
"""
UUIDS = """
count = c_int()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGetCount(byref(count)))
for number in range(count.value):
    found = create_string_buffer(16)
    ok(cuda.cuDeviceGetUuid_v2(found, number))
    print(found.raw.hex())
"""


@pytest.fixture(scope="module")
def uuids(driver: Running) -> list[str]:
    return run(str(driver.endpoint), UUIDS).split()


def config(shares: str) -> str:
    return (
        f"backend = 'cuda'\nlibcuda = '{LIBRARIES}/libcuda.so.1'\n"
        f"worker_command = {[sys.executable, str(WORKER), '--backend', 'cuda']!r}\n{shares}"
    )


def variables(driver: Running) -> dict[str, str]:
    return {"VGPU_ENDPOINT": str(driver.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES)}


@pytest.fixture(scope="module")
def host(driver: Running, uuids: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    shares = SHARES.format(uuid=f"GPU-{uuid.UUID(uuids[1])}")
    running = conftest.start(tmp_path_factory.mktemp("gpus"), "b", config(shares), variables(driver))
    yield running
    running.end()


def test_each_share_has_its_own_devices_in_the_hosts_order(host: Running, uuids: list[str]) -> None:
    second, double, entire = clients = [start(host, share) for share in ("second", "double", "entire")]
    for client, numbers in ((second, (1,)), (double, (0, 1)), (entire, (0, 1))):
        assert [identity for _, identity in client("devices()")] == [uuids[number] for number in numbers]
        assert client("nvml_devices()") == client("devices()")
    assert second("use(1)") == INVALID_DEVICE
    assert double("use(1)") == 0
    for client, device in ((second, 0), (double, 1)):
        before = client(f"free_of({device})")
        client(f"memory({GIB})")
        assert client(f"free_of({device})") == before - GIB
        assert client(f"nvml_used({device})") >= GIB
    for share in ("second", "double"):
        [(none, used)] = memory_of(host, share)
        assert none < GIB <= used < 2 * GIB, share
    for client in clients:
        client.kill()


WORK = """
import threading
place = memory(1 << 20)
def work():
    ok(use({device}))
    while True:
        ok(cuda.cuMemsetD8_v2(c_uint64(place), 7, c_size_t(1 << 20)))
        ok(cuda.cuCtxSynchronize())
threading.Thread(target=work, daemon=True).start()
"""


def test_turns_are_taken_on_the_hosts_devices(host: Running) -> None:
    """Weights divide the time of each device of the host: a session's device 0 is the host's device 1."""
    second, entire = clients = [start(host, share) for share in ("second", "entire")]
    assert entire("use(1)") == 0
    for client, device in ((second, 0), (entire, 1)):
        client(f"exec({WORK.format(device=device)!r})")
    wait_until(lambda: 'gpu="1"' in turns_of(host))
    assert 'gpu="0"' not in turns_of(host)
    for client in clients:
        client.kill()


def turns_of(host: Running) -> str:
    lines = [line for line in host.admin.metrics().splitlines() if line.startswith("vgpu_tenant_turn_seconds_total{")]
    return "\n".join(line for line in lines if not line.endswith(" 0.0"))


def test_a_device_that_is_not_there_is_named_with_its_line(host: Running, driver: Running, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(config("[[shares]]\nname = 'a'\ngpus = [2]\n"))
    check = subprocess.run(
        [sys.executable, "-m", "vgpud", "--config", str(path), "--check"],
        env=merged(variables(driver)),
        capture_output=True,
        text=True,
    )
    assert check.returncode == 78
    assert check.stderr.endswith(f"{path}:6: shares.0.gpus: there is no device 2: there are 2, from 0 on\n")
    before = host.config.read_text()
    host.config.write_text(before.replace("gpus = [1]", "gpus = [1, 5]"))
    host.process.send_signal(signal.SIGHUP)
    host.wait_log("reload refused")
    assert "shares.0.gpus: there is no device 5" in host.log
    host.config.write_text(before)
