"""cuGetProcAddress against what driver 580 answered (protocol/data), name by name and version by version."""

import subprocess
from pathlib import Path

from tests.shim.client import LIBRARY, ROOT, run

DATA = ROOT / "protocol/data"

ASK = """
functions = {}
for line in open(sys.argv[1] if len(sys.argv) > 1 else os.environ["ROWS"]):
    base, flag, *steps = line.split()
    for index, step in enumerate(steps):
        version, name = step.split(":")
        pfn, status = c_void_p(1), c_int(-7)
        result = cuda.cuGetProcAddress_v2(base.encode(), byref(pfn), int(version), c_uint64(int(flag)), byref(status))
        old = c_void_p(1)
        old_result = cuda.cuGetProcAddress(base.encode(), byref(old), int(version), c_uint64(int(flag)))
        if name == "null":
            assert (result, pfn.value, status.value, old_result) == (0, None, 2, 500), (line, result, status.value)
        else:
            want = ctypes.cast(getattr(cuda, name), c_void_p).value
            assert (result, pfn.value, status.value) == (0, want, 0), (line, step, result, pfn.value, status.value)
            assert (old_result, old.value) == (0, want), line
print("all")
"""


def test_l07_every_version_of_every_name(tmp_path: Path) -> None:
    rows = []
    for line in (DATA / "proc-address-580.tsv").read_text().splitlines():
        base, flag, *steps = line.split("\t") if "\t" in line else ("", "")
        if not base:
            continue
        kept = [step for step in steps if "error" not in step]
        rows.append("\t".join([base, flag, *kept]))
    assert len(rows) > 900
    file = tmp_path / "rows"
    file.write_text("\n".join(rows))
    assert run(None, ASK, ROWS=str(file)).strip() == "all"


def test_l08_empty_and_unknown_names() -> None:
    run(
        None,
        """
        for name in (b"", b"cuNothing", b"cuMemAlloc_v2", b"cuInit_ptsz"):
            pfn, status = c_void_p(1), c_int(-7)
            assert cuda.cuGetProcAddress_v2(name, byref(pfn), 12000, c_uint64(0), byref(status)) == 0
            assert (pfn.value, status.value) == (None, 1)
            pfn = c_void_p(1)
            assert cuda.cuGetProcAddress_v2(name, byref(pfn), 12000, c_uint64(0), None) == 0
            assert pfn.value is None
        pfn, status = c_void_p(1), c_int(-7)
        assert cuda.cuGetProcAddress_v2(b"cuInit", byref(pfn), 13010, c_uint64(0), byref(status)) == 1
        assert (pfn.value, status.value) == (1, -7)
        assert cuda.cuGetProcAddress_v2(None, byref(pfn), 12000, c_uint64(0), byref(status)) == 1
        assert cuda.cuGetProcAddress_v2(b"cuInit", None, 12000, c_uint64(0), byref(status)) == 1
        assert cuda.cuGetProcAddress_v2(b"cuInit", byref(pfn), 12000, c_uint64(9), byref(status)) == 1
        """,
    )


def test_l03_exports_are_the_drivers() -> None:
    """Every name of NVIDIA's library exists (r01: unimplemented functions return an error); vgpu adds only three
    names of its own."""
    wanted = set((DATA / "libcuda-580-exports.txt").read_text().split()) | {
        "vgpuDeviceIsSimulated",
        "vgpuHostAlias",
        "vgpuProfiling",
    }
    table = subprocess.run(["nm", "-D", "--defined-only", str(LIBRARY)], capture_output=True, text=True, check=True)
    assert {line.split()[2] for line in table.stdout.splitlines()} == wanted


def test_r01_unimplemented_names_refuse() -> None:
    run(
        None,
        """
        sys.path[:0] = [os.environ["DAEMON"]]
        from vgpud._gen.api import ENTRIES
        count = 0
        for entry in ENTRIES:
            if entry.travel == "not implemented":
                assert getattr(cuda, entry.name)(None, None, None, None) == 801, entry.name
                count += 1
        assert count > 50
        """,
        DAEMON=str(ROOT / "daemon"),
    )
