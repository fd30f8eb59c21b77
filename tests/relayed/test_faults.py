"""Faults over the cuda backend: sticky errors of the driver reach the client that caused them, and no other."""

from __future__ import annotations

import pytest

from tests.relayed.conftest import Relay
from tests.shim import faults
from tests.shim.faults import Host
from tests.shim.test_faults import FAULTS_HERE, MEMORY_HERE


@pytest.fixture
def host(relay: Relay) -> Host:
    return Host(relay.env | {"VGPU_SPIN_US": "20"})


def test_a_fault_sticks_to_its_client_alone(host: Host) -> None:
    faults.faults_beside_a_neighbour(host, FAULTS_HERE)


def test_an_endless_kernel_goes_with_its_client(host: Host) -> None:
    faults.an_endless_kernel_goes_with_its_client(host)


def test_a_full_gpu_is_an_error_that_passes(host: Host) -> None:
    faults.a_full_gpu_is_an_error_that_passes(host, MEMORY_HERE)
