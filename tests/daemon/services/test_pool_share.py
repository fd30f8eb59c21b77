"""Memory pools that clients of one tenant share by descriptors, and the pools' allocations (`make build` first)."""

from __future__ import annotations

import pytest

from tests.daemon.hostile_session import HostileSession
from tests.daemon.ipc_client import IpcClient
from tests.daemon.running import Running

INVALID_VALUE, INVALID_HANDLE, NOT_SUPPORTED = 1, 400, 801
FABRIC, WINDOWS = 8, 2
UNTOUCHED = 7  # the client's result variable before the call


def shared_pool(maker: IpcClient, importer: IpcClient) -> tuple[int, int]:
    """Create a pool and import it in another client; return its handles in the maker and in the importer."""
    code, pool = maker("pool()")
    assert code == 0
    code, fd = maker(f"export_pool({pool})")
    assert code == 0
    assert fd > 2
    code, imported = importer(f"import_pool_from({maker.process.pid}, {fd})")
    assert code == 0
    maker(f"os.close({fd})")
    return pool, imported


@pytest.mark.parametrize("nbytes", [4, 10_000, 3 << 20])
def test_two_clients_use_one_allocation(pair: tuple[IpcClient, IpcClient], nbytes: int) -> None:
    a, b = pair
    pool, imported = shared_pool(a, b)
    code, address = a(f"from_pool({pool}, {nbytes})")
    assert code == 0
    assert a(f"put({address}, b'once')") == 0
    assert a("cuda.cuCtxSynchronize()") == 0
    code, data = a(f"export_pointer({address})")
    assert code == 0
    assert a(f"export_pointer({address})") == (0, data)
    code, there = b(f"import_pointer({imported}, {data})")
    assert code == 0
    assert b(f"look({there}, 4)") == b"once"
    assert b(f"add({there}, {nbytes // 4})") == 0
    assert b("cuda.cuCtxSynchronize()") == 0
    assert a(f"look({address}, 4)") == b"pnce"
    assert b(f"free_async({there})") == 0
    assert b("cuda.cuCtxSynchronize()") == 0
    assert b(f"put({there}, b'late')") == INVALID_VALUE
    code, again = b(f"import_pointer({imported}, {data})")
    assert code == 0
    assert b(f"free({again})") == 0
    assert a(f"free_async({address})") == 0
    assert a("cuda.cuCtxSynchronize()") == 0
    assert b(f"import_pointer({imported}, {data})") == (INVALID_VALUE, UNTOUCHED)  # the allocation has been freed
    for client, handle in ((b, imported), (a, pool)):
        assert client(f"destroy_pool({handle})") == 0


def test_an_imported_pool_gives_no_memory(pair: tuple[IpcClient, IpcClient]) -> None:
    a, b = pair
    pool, imported = shared_pool(a, b)
    assert b(f"from_pool({imported}, 4096)") == (INVALID_VALUE, UNTOUCHED)
    assert b(f"cuda.cuDeviceSetMemPool(0, c_void_p({imported}))") == INVALID_VALUE
    assert b(f"export_pool({imported})") == (INVALID_VALUE, -7)
    for client, handle in ((b, imported), (a, pool)):
        assert client(f"destroy_pool({handle})") == 0


def test_what_is_refused(pair: tuple[IpcClient, IpcClient]) -> None:
    a, b = pair
    pool, imported = shared_pool(a, b)
    _, private = a("pool(0)")
    _, address = a(f"from_pool({private}, 4096)")
    assert a(f"export_pool({private})") == (INVALID_VALUE, -7)
    assert a(f"export_pointer({address})")[0] == INVALID_VALUE
    assert a(f"export_pointer({a('memory(4096)')})")[0] == INVALID_VALUE  # memory of no pool
    assert a("export_pointer(4096)")[0] == INVALID_VALUE
    assert a("export_pool(12345)") == (INVALID_VALUE, -7)
    assert a(f"export_pool({pool}, 1, 1)") == (INVALID_VALUE, -7)
    for kind in (FABRIC, WINDOWS):
        assert a(f"export_pool({pool}, {kind})") == (NOT_SUPPORTED, -7)
        assert a(f"import_pool(0, {kind})") == (NOT_SUPPORTED, UNTOUCHED)
        assert a(f"pool({kind})") == (NOT_SUPPORTED, UNTOUCHED)
    _, allocation = a("create()")
    _, fd = a(f"export({allocation})")
    for wrong in ("-1", "9999", "0", f"{fd}", "file_of(b'')", "file_of(b'vgpu pool' + bytes(71))"):
        assert a(f"import_pool({wrong})") == (INVALID_VALUE, UNTOUCHED)
    a(f"os.close({fd})")
    _, shared = a(f"from_pool({pool}, 4096)")
    _, data = a(f"export_pointer({shared})")
    _, own = b("pool()")
    assert b(f"import_pointer({own}, {data})") == (INVALID_VALUE, UNTOUCHED)  # a pool of b, not the imported one
    assert b(f"import_pointer({imported}, {bytes(64)})") == (INVALID_VALUE, UNTOUCHED)
    assert b(f"import_pointer({imported}, {data})")[0] == 0
    assert a(f"free({address})") == 0


def test_the_pools_name_ends_with_it(pair: tuple[IpcClient, IpcClient]) -> None:
    a, b = pair
    _, pool = a("pool()")
    _, fd = a(f"export_pool({pool})")
    assert a(f"destroy_pool({pool})") == 0
    assert b(f"import_pool_from({a.process.pid}, {fd})") == (INVALID_VALUE, UNTOUCHED)
    a(f"os.close({fd})")


def test_a_token_is_of_what_it_was_made_for(host: Running) -> None:
    with HostileSession(host) as hostile:
        token = int.from_bytes(hostile.ok("cuIpcGetMemHandle", dptr=hostile.memory), "little")
        with HostileSession(host) as other:
            for pool, wrong in enumerate((token, 0, 2**512 - 1), 1):
                assert other.call("cuMemPoolImportFromShareableHandle", pool=pool, token=wrong)[0] == INVALID_VALUE
            assert other.call("cuMemPoolExportToShareableHandle", pool=1)[0] != 0  # nothing was imported
            assert other.is_served()
        assert hostile.is_served()
