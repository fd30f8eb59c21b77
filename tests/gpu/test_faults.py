"""Faults on a real card: which errors are sticky, for which client, and which are not."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import RemotedRun
from tests.shim import faults
from tests.shim.faults import FAULTS, OUT_OF_MEMORY, Host

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]


@pytest.fixture
def host(remoted_run: RemotedRun) -> Host:
    return Host(remoted_run.env)


@pytest.mark.parametrize("kernel", FAULTS)
def test_a_fault_sticks_to_its_client_alone(host: Host, kernel: str) -> None:
    faults.faults_beside_a_neighbour(host, [kernel])


def test_an_endless_kernel_goes_with_its_client(host: Host) -> None:
    faults.an_endless_kernel_goes_with_its_client(host)


@pytest.mark.parametrize("what", OUT_OF_MEMORY)
def test_a_full_gpu_is_an_error_that_passes(host: Host, what: str) -> None:
    faults.a_full_gpu_is_an_error_that_passes(host, [what])
