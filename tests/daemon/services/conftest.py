"""Two clients of one tenant, for tests of what they share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import Running, vgpud_with_real_workers


@pytest.fixture(scope="module", params=["shared memory", "socket"])
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from vgpud_with_real_workers(
        tmp_path_factory.mktemp("host"),
        f"shared_memory = {'true' if request.param == 'shared memory' else 'false'}\nlimits.spare_workers = 2\n",
    )


@pytest.fixture(scope="module")
def pair(host: Running) -> Iterator[tuple[IpcClient, IpcClient]]:
    """Two clients; each test leaves them usable."""
    clients = IpcClient(str(host.endpoint)), IpcClient(str(host.endpoint))
    yield clients
    for client in clients:
        client.end()
