"""`memory_mib` of a share on a card: the tests of tests/relayed/test_memory_limit.py, with the real driver."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.daemon.running import Running
from tests.relayed import test_memory_limit
from tests.relayed.conftest import start

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    libcuda = os.environ.get("VGPU_TEST_LIBCUDA", "libcuda.so.1")
    config = f"backend = 'cuda'\nlibcuda = '{libcuda}'\n{test_memory_limit.CONFIG}"
    running = start(tmp_path_factory.mktemp("limit"), "b", config, {})
    yield running
    running.end()


globals().update({name: test for name, test in vars(test_memory_limit).items() if name.startswith("test_")})
