"""CUDA_VISIBLE_DEVICES (cases D04, D09, D10)."""

from pathlib import Path

import pytest

from tests.shim.client import run
from tests.shim.fake_daemon import FakeDaemon, device, frame, welcome

REPORT = """
result, n, names = cuda.cuInit(0), c_int(), []
if result == 0:
    ok(cuda.cuDeviceGetCount(byref(n)))
    for i in range(n.value):
        name = create_string_buffer(64)
        ok(cuda.cuDeviceGetName(name, 64, i))
        names.append(name.value.decode()[-1])
print(result, "".join(names))
"""

UUID = ["GPU-" + device(i)["uuid"].hex() for i in range(3)]


@pytest.mark.parametrize(
    ("visible", "shown"),
    [
        (None, "012"),
        ("", ""),
        ("-1", ""),
        ("0,-1,1", "0"),
        ("0,0", ""),
        ("1,0,1", ""),
        ("1,0", "10"),
        (" 2 , 1 ", "21"),
        ("0,zzz", "0"),
        ("zzz", ""),
        ("NoDevFiles", ""),
        ("0,7,1", "0"),
        ("7", ""),
        (UUID[1][:8], "1"),
        (UUID[1][:8].upper().replace("GPU", "GPU"), "1"),
        (f"{UUID[2][:6]},0", "20"),
        ("GPU-ffffffff", ""),
        ("GPU-", ""),
        ("0,", "0"),
        (f"1,{UUID[1][:8]}", ""),
        ("MIG-GPU-0/1/0", ""),
        ("99999999999999999999", ""),
    ],
)
def test_table(tmp_path: Path, visible: str | None, shown: str) -> None:
    with FakeDaemon(tmp_path / "s", lambda: frame(welcome(3))) as daemon:
        env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        result, *names = run(daemon.url, REPORT, **env).split()
    assert "".join(names) == shown
    assert int(result) == (0 if shown else 100)


@pytest.mark.parametrize("visible", ["", "-1", "zzz", "0,0", " "])
def test_d10_no_connection_where_nothing_can_be_shown(tmp_path: Path, visible: str) -> None:
    with FakeDaemon(tmp_path / "s") as daemon:
        assert run(daemon.url, "print(cuda.cuInit(0))", CUDA_VISIBLE_DEVICES=visible).strip() == "100"
        assert daemon.connections == []
