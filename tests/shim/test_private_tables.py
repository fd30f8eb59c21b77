"""The private tables that NVIDIA's runtimes request; these tests compute the integrity answer independently."""

import struct
from pathlib import Path

from tests.shim.client import ROOT, run
from tests.shim.fake_daemon import FakeDaemon, frame, welcome
from tests.shim.md2 import hmac_md2, md2

TABLES = {
    "6bd5fb6c5bf4e74a8987d93912fd9df9": 104,
    "a094798c2e742e7493f20800200c0a66": 56,
    "42d85a8123f6cb478298f6e78a3aecdc": 32,
    "d4082055bde6704b8d34ba123c66e1f2": 24,
    "263e88607cd2614392f6bbd5006dfa7e": 32,
    "21318c60971432488ca641ff7324c8f2": 760,
    "1734dc26800d47458726c0f1e7dd8bca": 136,
    "6e163fbeb958444d835ce182aff1991e": 792,
}
REFUSED = ["f8cff95121468b4eb9e2fb469e7c0dd9", "69a28e9f24498b47b030c5da330ea4e9", "00" * 16]

TABLE = """
def table(uuid):
    t = ctypes.POINTER(c_void_p)()
    ok(cuda.cuGetExportTable(byref(t), bytes.fromhex(uuid)))
    return t
def slot(uuid, index, *types):
    return ctypes.CFUNCTYPE(c_int, *types)(table(uuid)[index])
"""


def test_md2_of_the_rfc() -> None:
    """RFC 1319, appendix A.5: the tests' own MD2 is correct."""
    assert md2(b"").hex() == "8350e5a3e24c153df2275c9f80692773"
    assert md2(b"message digest").hex() == "ab4f496bfb2a530b219ff33031fe06b0"
    assert md2(b"1234567890" * 8).hex() == "d5976f79d83d3a0dc9806c3c66f3efd8"


def test_l01_sizes_and_refusals() -> None:
    for uuid, nbytes in TABLES.items():
        run(None, TABLE + f"assert table({uuid!r})[0] == {nbytes}; assert all(table({uuid!r})[1:{nbytes // 8}])")
    run(
        None,
        f"""
        for uuid in {REFUSED!r}:
            t = c_void_p(1)
            assert cuda.cuGetExportTable(byref(t), bytes.fromhex(uuid)) != 0 and t.value is None
        """,
    )


def test_integrity(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "s", lambda: frame(welcome(3))) as daemon:
        output = run(
            daemon.url,
            TABLE
            + """
ok(cuda.cuInit(0))
check = slot("d4082055bde6704b8d34ba123c66e1f2", 1, c_uint, c_uint64, ctypes.POINTER(c_uint64))
answers = []
for version in (13000, 13001, 13002):
    answer = (c_uint64 * 2)()
    ok(check(version, 1700000000, answer))
    answers += list(answer)
print(*answers, os.getpid(), threading.get_ident() & 0xffffffff,
      ctypes.cast(table("6bd5fb6c5bf4e74a8987d93912fd9df9"), c_void_p).value,
      ctypes.cast(table("d4082055bde6704b8d34ba123c66e1f2"), c_void_p).value,
      table("d4082055bde6704b8d34ba123c66e1f2")[1])
""",
        )
    values = [int(text) for text in output.split()]
    assert values[0:4] == [0x3341181C03CB675C, 0x8ED383AA1F4CD1E8, 0x1841181C03CB675C, 0x8ED383AA1F4CD1E8]
    pid, thread, interface, table, function = values[6:]
    message = struct.pack("<4I4Q", 13000, 13002, pid, thread, interface, table, function, 1700000000)
    for index, entry in enumerate(welcome(3)["inventory"]["devices"]):
        message += entry["uuid"] + struct.pack("<3i", 0, index, 6)
    key = bytes.fromhex("146addae53a9a752aa0841360bf55a9f")
    assert struct.pack("<2Q", *values[4:6]) == hmac_md2(key, message)


def test_context_local_storage(tmp_path: Path) -> None:
    with FakeDaemon(tmp_path / "s") as daemon:
        run(
            daemon.url,
            TABLE
            + """
CLS = "c693336e1121df11a8c368f355d89593"
DESTROY = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p)
put = slot(CLS, 0, c_void_p, c_void_p, c_void_p, DESTROY)
delete = slot(CLS, 1, c_void_p, c_void_p)
get = slot(CLS, 2, ctypes.POINTER(c_void_p), c_void_p, c_void_p)
value = c_void_p(9)
assert get(byref(value), None, 1) == 3
ok(cuda.cuInit(0))
assert get(byref(value), None, 1) == 201 and value.value == 9
primary = c_void_p()
ok(slot("6bd5fb6c5bf4e74a8987d93912fd9df9", 2, ctypes.POINTER(c_void_p), c_int)(byref(primary), 0))
assert primary.value
assert slot("6bd5fb6c5bf4e74a8987d93912fd9df9", 2, ctypes.POINTER(c_void_p), c_int)(byref(primary), 5) == 101
ok(cuda.cuCtxSetCurrent(primary))
ctx = context()
assert ctx.value == primary.value
assert get(byref(value), None, 1) == 400
gone = []
note = DESTROY(lambda *a: gone.append(a))
ok(put(None, 1, 55, note))
ok(put(ctx, 2, 66, note))
ok(get(byref(value), ctx, 1))
assert value.value == 55
ok(delete(None, 1))
assert delete(None, 1) == 400 and not gone
ok(cuda.cuDevicePrimaryCtxReset_v2(0))
assert gone == [(ctx.value, 2, 66)]
assert get(byref(value), ctx, 2) == 400
""",
        )


def test_the_answer_of_the_library_needs_no_daemon() -> None:
    """L01: the tables exist before cuInit, because NVIDIA's runtimes request some of them that early."""
    run(None, TABLE + "table('6bd5fb6c5bf4e74a8987d93912fd9df9')")
    assert (ROOT / "shim/cuda/vgs_private_tables.c").exists()
