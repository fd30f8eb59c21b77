"""Round trips over a network, counted by a relay that adds latency (tests/bench/delay.c).

A turn is data of the client after data of the host, so each call that waits for its reply is one turn.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from vgpud.bench.side import Host

from tests.bench.delay import Delay, Passed
from tests.programs.test_programs import assert_ok
from tests.programs.toolchain import Toolchain, cuda13

RTT_US = 4000  # long enough that replies and unrelated calls do not cross by chance
START_MAX = 20

Count = Callable[..., Passed]


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return cuda13()


@pytest.fixture(scope="module")
def count(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Count]:
    """`count(steps, reads, pieces)`: turns and bytes that one process of tests/programs/steady.cu exchanges."""
    program = toolchain.build("steady")
    folder: Path = tmp_path_factory.mktemp("network")
    with Host("tcp", folder, "simulator", "h100", "libcuda.so.1") as host:
        side = host.side
        with Delay(side.environment["VGPU_ENDPOINT"], RTT_US) as delay:
            env = side.of_program() | {"VGPU_ENDPOINT": delay.endpoint}

            def run(steps: int, reads: int, pieces: int = 0) -> Passed:
                before = delay.passed()
                command = [str(program), "1", str(steps), str(reads), str(pieces)]
                done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
                assert_ok(done, "steady")
                return delay.passed().since(before)

            run(1, 0)  # compiles the kernel, so that later runs find it
            yield run


def test_a_process_starts_within_20_round_trips(count: Count) -> None:
    """From main to the end of the first kernels, including the session, allocations and the kernel's image."""
    assert 0 < count(1, 0).turns <= START_MAX


def test_a_steady_step_waits_for_nothing(count: Count) -> None:
    few, many = count(10, 1), count(210, 1)
    assert many.turns == few.turns
    assert many.sent_nbytes - few.sent_nbytes < 200 * 5000, "4,000 bytes of data, and nine records"


def test_a_number_read_back_is_one_round_trip(count: Count) -> None:
    few, many = count(10, 1), count(10, 101)
    assert many.turns - few.turns == 100


def test_a_large_copy_to_the_host_is_one_round_trip(count: Count) -> None:
    """The client asks for all pieces of up to 32 MB before it waits for the first; on a slow machine the first can
    arrive before it has asked for the last."""
    small, large = count(10, 1, 1), count(10, 1, 32)
    assert large.turns - small.turns < 10
    assert large.received_nbytes - small.received_nbytes >= 31 << 20
