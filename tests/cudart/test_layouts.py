"""The committed layouts equal those in NVIDIA's headers. (The compiler checks at every build that vgpu's structs follow
the committed layouts.)"""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cudart.runtimes import MAJORS, ROOT, Major

LAYOUTS = ROOT / "protocol/data/cudart-layouts.tsv"
HERE = Path(__file__).parent


def described(major: Major) -> list[tuple[str, str, int]]:
    """(struct, field, offset) of one major; the offset of the field `.` is the struct's size."""
    rows = [line.split("\t") for line in LAYOUTS.read_text().splitlines() if not line.startswith("#")]
    column = 3 + MAJORS.index(major)
    return [(row[0], row[1], int(row[column])) for row in rows if row[column] != "-"]


def c_name(struct: str) -> str:
    return struct if struct.endswith("_t") or struct == "dim3" else f"struct {struct}"


@pytest.mark.client
@pytest.mark.timeout(700)
@pytest.mark.parametrize("major", MAJORS, ids=lambda major: str(major.number))
def test_D01_layouts_are_those_of_the_headers(major: Major, tmp_path: Path) -> None:
    rows = described(major)
    assert len(rows) > 200
    lines = ["#include <stddef.h>", '#include "cuda_runtime_api.h"']
    for struct, field, offset in rows:
        value = f"sizeof({c_name(struct)})" if field == "." else f"offsetof({c_name(struct)}, {field})"
        lines.append(f'_Static_assert({value} == {offset}, "{struct}.{field}");')
    (tmp_path / "crt").mkdir()
    shutil.copy(HERE / "vgt_host_defines.h", tmp_path / "crt/host_defines.h")
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    include = major.include()
    assert (include / "driver_types.h").exists(), f"{include} has no headers"
    command = ["cc", "-std=gnu11", "-fsyntax-only", "-w", f"-I{tmp_path}", f"-I{include}", str(source)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr[:3000]


@pytest.mark.parametrize(
    ("major", "nbytes", "fields"),
    [
        (MAJORS[0], 728, {"major": 360, "minor": 364, "multiProcessorCount": 388, "pciBusID": 584}),
        (MAJORS[1], 1032, {"major": 360, "multiProcessorCount": 388, "integrated": 396, "sharedMemPerBlockOptin": 696}),
        (MAJORS[2], 1008, {"major": 360, "multiProcessorCount": 384, "integrated": 388, "sharedMemPerBlockOptin": 672}),
    ],
    ids=["11", "12", "13"],
)
def test_D01_device_properties_differ_by_major(major: Major, nbytes: int, fields: dict[str, int]) -> None:
    """The numbers are from public reports, so that a changed layout is noticed even without NVIDIA's headers."""
    found = {field: offset for struct, field, offset in described(major) if struct == "cudaDeviceProp"}
    assert found["."] == nbytes
    assert {name: found[name] for name in fields} == fields
