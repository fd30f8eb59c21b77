"""`gpus` of a share on a machine with two cards: tests/relayed/test_gpus.py with the real driver."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator

import pytest

from tests.daemon.running import Running
from tests.gpu.test_several import device_count
from tests.relayed import test_gpus
from tests.relayed.conftest import start

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def uuids() -> list[str]:
    if device_count() != 2:
        pytest.skip("this machine has not two devices")
    asked = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
    lines = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    return [line.removeprefix("GPU-").replace("-", "") for line in lines]


@pytest.fixture(scope="module")
def host(uuids: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    libcuda = os.environ.get("VGPU_TEST_LIBCUDA", "libcuda.so.1")
    shares = test_gpus.SHARES.format(uuid=f"GPU-{uuid.UUID(uuids[1])}")
    running = start(tmp_path_factory.mktemp("gpus"), "b", f"backend = 'cuda'\nlibcuda = '{libcuda}'\n{shares}", {})
    yield running
    running.end()


test_each_share_has_its_own_devices_in_the_hosts_order = (
    test_gpus.test_each_share_has_its_own_devices_in_the_hosts_order
)
test_turns_are_taken_on_the_hosts_devices = test_gpus.test_turns_are_taken_on_the_hosts_devices
