"""Capture and graphs over the cuda backend: the simulator's tests, run through the relay."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import pytest

from tests.relayed.conftest import Relay
from tests.shim import (
    test_graph,
    test_graph_child,
    test_graph_copies,
    test_graph_launch,
    test_graph_move,
    test_graph_setting,
    test_graph_work,
)
from tests.shim.client import PRELUDE
from tests.shim.simulated import KERNELS

# Tests that take other paths where the client and B share no memory: data travels over the socket.
ON_A_SOCKET = {
    "test_a_host_function_in_a_capture_runs_at_each_launch",
    "test_a_launch_without_pageable_copies_returns_at_once",
    "test_captured_copies_of_arrays",
    "test_captured_copies_take_other_parameters",
    "test_copy_nodes_of_arrays",
    "test_copy_nodes_of_pageable_memory",
    "test_large_copies_and_rectangles_in_a_capture",
    "test_other_threads_go_on_while_a_launch_waits",
    "test_pageable_copies_given_and_taken",
    "test_pageable_copies_in_a_capture_happen_at_each_launch",
    "test_pageable_memory_is_the_programs_again_when_a_launch_returns",
}
OF_THE_SIMULATOR = {"test_graphs_within_graphs_have_a_limit"}


@pytest.fixture
def shared_memory() -> bool:
    return True


@pytest.fixture
def simulate(relays: Callable[[bool], Relay], shared_memory: bool) -> Callable[..., str]:
    def run(program: str, **changes: str) -> str:
        return relays(shared_memory).python(PRELUDE + KERNELS + textwrap.dedent(program), **changes)

    return run


ASKED = {
    name: test
    for module in (
        test_graph,
        test_graph_work,
        test_graph_copies,
        test_graph_child,
        test_graph_launch,
        test_graph_move,
        test_graph_setting,
    )
    for name, test in vars(module).items()
    if name.startswith("test_") and name not in OF_THE_SIMULATOR
}
globals().update({name: test for name, test in ASKED.items() if name not in ON_A_SOCKET})


@pytest.mark.parametrize("shared_memory", [True, False], ids=["shared-memory", "socket"])
@pytest.mark.parametrize("name", sorted(ON_A_SOCKET))
def test_on_both_channels(simulate: Callable[..., str], name: str) -> None:
    ASKED[name](simulate)
