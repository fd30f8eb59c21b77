"""A user id for each tenant, in the launcher's real cell. The driver behind the cuda backend is vgpu's own, which, like
NVIDIA's kernel module, lets processes of one user share memory, and no others.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import PATHS, Running, wait_until
from tests.daemon.supervision.test_user_ids import ids_of, needs_root, require_own_ids
from tests.relayed.conftest import LIBRARIES, start

IDS = range(2000000000, 2000065536)
TOKENS = {"a": "a" * 32, "b": "b" * 32}
# Imported by each Python at its start: as tests/relayed/worker.py, but the launcher forks the workers.
PERMIT_SOCKETS = """
from vgpud.worker import seccomp
seccomp.DRIVER |= {"connect", "socket", "socketpair", "userfaultfd"}
"""


# A vgpud that gives each worker an id of its own, as for the simulator.
AN_ID_EACH = """
from vgpud.supervision.supervisor import Supervisor
Supervisor._owner = lambda self, tenant: None
"""


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A vgpud whose workers come from its launcher; a parameter is code for its Python and theirs."""
    needs_root()
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        directory = Path(name)
        directory.chmod(0o755)  # workers of other users come to the driver's socket
        (directory / "sitecustomize.py").write_text(PERMIT_SOCKETS + getattr(request, "param", ""))
        behind = start(directory, "a", "gpus = 'h100:2'", {})
        (directory / "a.sock").chmod(0o666)
        config = f"backend = 'cuda'\nlibcuda = '{LIBRARIES}/libcuda.so.1'\n"
        config += "".join(f"[[tokens]]\nname = '{token}'\nvalue = '{value}'\n" for token, value in TOKENS.items())
        paths = os.pathsep.join([*PATHS, name])
        env = {"VGPU_ENDPOINT": str(behind.endpoint), "LD_LIBRARY_PATH": str(LIBRARIES), "PYTHONPATH": paths}
        running = start(directory, "b", config, env)
        yield running
        running.end()
        behind.end()


def client(running: Running, token: str) -> IpcClient:
    return IpcClient(str(running.endpoint), VGPU_TOKEN=TOKENS[token])


def user_ids(running: Running) -> dict[int, int]:
    """The user id of each session's worker, by session, in the order in which the sessions began."""
    sessions = running.status()["sessions"]
    found = {session["session"]: ids_of(session["worker_pid"]) for session in sessions}
    assert all(len(set(each)) == 1 for each in found.values()), "real, effective and saved are one"
    return {number: each[0] for number, each in sorted(found.items())}


def test_AT25_tenants_of_a_card_have_a_user_id_each_and_share_memory_within_it(host: Running) -> None:
    one = client(host, "a")
    one("1")
    require_own_ids(host)
    other, two = client(host, "b"), client(host, "a")
    first, foreign, second = user_ids(host).values()
    assert first == second != foreign
    assert {first, foreign} <= {*IDS}
    code, handle = one(f"get_memory({one('memory(4096)')})")
    assert code == 0
    code, address = two(f"open_memory({handle})")
    assert code == 0
    assert two(f"put({address}, b'of one tenant')") == 0
    assert other(f"open_memory({handle})")[0] != 0
    spares = wait_until(lambda: host.status()["spare_workers"])
    assert not {ids_of(pid)[0] for pid in spares} & {first, foreign}
    for each in (one, other, two):
        each.end()


@pytest.mark.control("AT25")
@pytest.mark.parametrize("host", [AN_ID_EACH], indirect=True)
def test_AT25_control_the_driver_shares_nothing_between_two_users(host: Running) -> None:
    one, two = client(host, "a"), client(host, "a")
    require_own_ids(host)
    assert len({*user_ids(host).values()}) == 2
    _, handle = one(f"get_memory({one('memory(4096)')})")
    assert two(f"open_memory({handle})")[0] != 0
    for each in (one, two):
        each.end()


def test_a_tenant_that_comes_again_gets_the_worker_that_waits(host: Running) -> None:
    """The tenant's last worker has ended, so that the waiting worker can become the tenant's: no other one is
    started.
    """
    for _ in range(2):
        spares = wait_until(lambda: host.status()["spare_workers"])
        one = client(host, "a")
        one("1")
        assert [session["worker_pid"] for session in host.status()["sessions"]] == spares
        one.end()
        wait_until(lambda: not host.status()["sessions"])
