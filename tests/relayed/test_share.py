"""File descriptors with which the driver exports physical memory, from worker to worker of the cuda backend."""

from __future__ import annotations

from tests.daemon.ipc_client import IpcClient
from tests.relayed.conftest import Relay


def test_clients_of_the_cuda_backend_pass_memory_as_descriptors(relay: Relay) -> None:
    a, b = (IpcClient(relay.env["VGPU_ENDPOINT"]) for _ in range(2))
    _, handle = a("create()")
    address = a(f"mapped({handle})")
    assert a(f"put({address}, b'over two daemons')") == 0
    code, fd = a(f"export({handle})")
    assert code == 0
    code, imported = b(f"import_from({a.process.pid}, {fd})")
    assert code == 0
    assert b(f"properties({imported})") == (0, [1, 1, 1, 0, 0, 0, 0, 0])
    assert a("cuda.cuCtxSynchronize()") == 0
    assert b(f"look(mapped({imported}), 16)") == b"over two daemons"
    for client in (a, b):
        client.end()


def test_clients_of_the_cuda_backend_share_a_pool(relay: Relay) -> None:
    a, b = (IpcClient(relay.env["VGPU_ENDPOINT"]) for _ in range(2))
    _, pool = a("pool()")
    code, fd = a(f"export_pool({pool})")
    assert code == 0
    code, imported = b(f"import_pool_from({a.process.pid}, {fd})")
    assert code == 0
    code, address = a(f"from_pool({pool}, 4096)")
    assert code == 0
    assert a(f"put({address}, b'from a pool')") == 0
    assert a("cuda.cuCtxSynchronize()") == 0
    code, data = a(f"export_pointer({address})")
    assert code == 0
    code, there = b(f"import_pointer({imported}, {data})")
    assert code == 0
    assert b(f"look({there}, 11)") == b"from a pool"
    assert b(f"free_async({there})") == 0
    for client in (b, a):
        client.end()
