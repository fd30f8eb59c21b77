"""The programs of tests/programs over the cuda backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.programs.test_programs import SIZES, assert_ok
from tests.programs.toolchain import PTX, RELOCATABLE, Toolchain, cuda13
from tests.relayed.conftest import Relay

OTHERS = ["errors", "properties", "functions", "graph_copies", "graph_nodes", "kernel_printf", "peers", "two_devices"]
PROGRAMS = [name for name in [*SIZES, *OTHERS] if name not in {"managed", "pinned"}]  # what host_memory does
ON_A_SOCKET = ["copies", "errors", "graph_host", "graph_nodes", "graphs", "host_function", "streams", "threads"]
ON_A_SOCKET += ["host_memory", "managed", "registered"]
CASES = [*((name, True) for name in PROGRAMS), *((name, False) for name in ON_A_SOCKET)]


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    return cuda13()


@pytest.mark.parametrize(
    ("name", "shared_memory"),
    CASES,
    ids=[f"{name}-{'shared-memory' if shared else 'socket'}" for name, shared in CASES],
)
def test_program(relays: Callable[[bool], Relay], toolchain: Toolchain, name: str, shared_memory: bool) -> None:
    assert_ok(relays(shared_memory)([toolchain.build(name, RELOCATABLE if name == "functions" else PTX)]), name)
