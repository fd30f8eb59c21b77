"""Physical memory of cuMemCreate that clients of one tenant share by descriptors (`make build` first)."""

from __future__ import annotations

from tests.daemon.hostile_session import HostileSession
from tests.daemon.ipc_client import IpcClient

INVALID_VALUE, INVALID_HANDLE, NOT_READY, NOT_SUPPORTED = 1, 400, 600, 801
FABRIC, WINDOWS = 8, 2


def put(client: IpcClient, what: str) -> None:
    """Write, and wait until every client sees the data."""
    assert client(f"put({what})") == 0
    assert client("cuda.cuCtxSynchronize()") == 0


def test_two_clients_map_one_memory(pair):
    a, b = pair
    _, handle = a("create()")
    address = a(f"mapped({handle})")
    put(a, f"{address}, b'before it is exported'")
    code, fd = a(f"export({handle})")
    assert code == 0
    assert fd > 2
    code, imported = b(f"import_from({a.process.pid}, {fd})")
    assert code == 0
    assert b(f"properties({imported})") == (0, [1, 1, 1, 0, 0, 0, 0, 0])
    there = b(f"mapped({imported})")
    assert b(f"look({there}, 21)") == b"before it is exported"
    put(b, f"{there}, b'after'")
    assert a(f"look({address}, 21)") == b"aftere it is exported"
    put(a, f"{address}, bytes(4096)")
    assert b(f"add({there}, 1024)") == 0
    assert b("cuda.cuCtxSynchronize()") == 0
    assert a(f"look({address}, 4096)") == (1).to_bytes(4, "little") * 1024
    # The maker releases the memory: the client that has imported it keeps it, and a further import fails.
    assert a(f"unmap({address})") == 0
    assert a(f"release({handle})") == 0
    assert b(f"look({there}, 4)") == bytes((1, 0, 0, 0))
    assert b(f"import_from({a.process.pid}, {fd})") == (INVALID_VALUE, 7)
    assert a(f"os.close({fd})") is None
    assert b(f"unmap({there})") == 0
    assert b(f"release({imported})") == 0


def test_memory_is_exported_while_a_stream_waits_for_a_word_of_it(pair):
    """Whoever writes the word may have to import the memory first."""
    a, b = pair
    _, handle = a("create()")
    address, stream = a(f"mapped({handle})"), a("stream()")
    wait_value, write_value, equal = 1, 2, 1
    words = f"{wait_value}, {address}, 1, {equal}, 0, 0, {write_value}, {address} + 4, 7, 0, 0, 0"
    assert a(f"cuda.cuStreamBatchMemOp_v2(c_void_p({stream}), 2, (c_uint64 * 12)({words}), 0)") == 0
    code, fd = a(f"export({handle})")
    assert code == 0
    code, imported = b(f"import_from({a.process.pid}, {fd})")
    assert code == 0
    there = b(f"mapped({imported})")
    assert a(f"cuda.cuStreamQuery(c_void_p({stream}))") == NOT_READY
    put(b, f"{there}, {(1).to_bytes(4, 'little')}")
    assert a(f"cuda.cuStreamSynchronize(c_void_p({stream}))") == 0
    assert b(f"look({there}, 8)") == (1).to_bytes(4, "little") + (7).to_bytes(4, "little")
    assert b(f"unmap({there})") == b(f"release({imported})") == 0
    assert a(f"unmap({address})") == a(f"release({handle})") == 0
    assert a(f"os.close({fd})") is None


def test_memory_is_imported_by_its_maker_and_again(pair):
    a, b = pair
    _, handle = a("create()")
    code, fd = a(f"export({handle})")
    code, again = a(f"export({handle})")
    assert code == 0
    assert fd != again  # the program closes each of them
    code, own = a(f"import_fd({fd})")
    assert code == 0
    first, second = a(f"mapped({handle})"), a(f"mapped({own})")
    put(a, f"{first}, b'one'")
    assert a(f"look({second}, 3)") == b"one"
    code, third = b(f"import_from({a.process.pid}, {again})")
    assert code == 0
    assert b(f"look(mapped({third}), 3)") == b"one"
    for address, allocation in ((first, handle), (second, own)):
        assert a(f"unmap({address})") == 0
        assert a(f"release({allocation})") == 0


def test_what_is_refused(pair):
    a, _ = pair
    _, private = a("create(0)")
    _, handle = a("create()")
    assert a(f"export({private})") == (INVALID_VALUE, -7)
    assert a("export(12345)") == (INVALID_VALUE, -7)
    assert a(f"export({handle}, 1, 1)") == (INVALID_VALUE, -7)
    for kind in (FABRIC, WINDOWS):
        assert a(f"export({handle}, {kind})") == (NOT_SUPPORTED, -7)
        assert a(f"import_fd(0, {kind})") == (NOT_SUPPORTED, 7)
    for kind in (0, -1, 3, 16):
        assert a(f"export({handle}, {kind})") == (INVALID_VALUE, -7)
    assert a(f"create({FABRIC})")[0] == NOT_SUPPORTED
    # Descriptors that vgpu did not create, or whose content is forged.
    for fd in ("-1", "9999", "0", "os.open('/dev/null', 0)", "file_of(b'')", "file_of(bytes(80))"):
        assert a(f"import_fd({fd})") == (INVALID_VALUE, 7)
    assert a("import_fd(file_of(b'vgpu allocation' + bytes(65)))") == (INVALID_VALUE, 7)
    assert a("import_fd(file_of(b'vgpu allocation' + bytes(65), 1))") == (INVALID_VALUE, 7)


def test_a_token_is_of_what_it_was_made_for(host):
    """A handle of cuIpc and an invented token import nothing."""
    with HostileSession(host) as hostile:
        token = int.from_bytes(hostile.ok("cuIpcGetMemHandle", dptr=hostile.memory), "little")
        with HostileSession(host) as other:
            for handle, wrong in enumerate((token, 0, 2**512 - 1), 1):
                assert other.call("cuMemImportFromShareableHandle", handle=handle, token=wrong)[0] == INVALID_VALUE
            assert other.call("cuMemExportToShareableHandle", handle=1)[0] == INVALID_HANDLE  # nothing was imported
            assert other.is_served()
        assert hostile.is_served()
