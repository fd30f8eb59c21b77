"""`vgpu sim census`: which kernels would run, and why the others would not."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from vgpud.cli.sim import sim
from vgpusim import census
from vgpusim.image.error import ImageError

KERNELS = Path(__file__).parent / "codegen/kernels"
HEADER = ".version 9.0\n.target sm_{sm}\n.address_size 64\n"
ENTRY = ".visible .entry {name}() {{ .reg .b32 %r<3>; .reg .pred %p; {body} ret; }}\n"


def text_of(tmp_path: Path, *bodies: str, sm: str = "90") -> Path:
    path = tmp_path / "some.ptx"
    entries = (ENTRY.format(name=f"k{i}", body=body) for i, body in enumerate(bodies))
    path.write_text(HEADER.format(sm=sm) + "".join(entries))
    return path


def test_accepted_and_refused_kernels(tmp_path: Path) -> None:
    refused = "tcgen05.wait::ld.sync.aligned;"
    path = text_of(tmp_path, "mov.u32 %r1, 1;", refused, "mov.u32 %r1, 2;", refused)
    taken = census.take(path, (13, 0))
    assert (taken.modules, taken.kernels, taken.read, taken.accepted) == (1, 4, 4, 2)
    assert taken.refused == {"tcgen05.wait::ld.sync.aligned": 2}
    assert taken.share == 0.5


def test_a_sample_is_the_same_each_time(tmp_path: Path) -> None:
    path = text_of(tmp_path, *["mov.u32 %r1, 1;"] * 9)
    first, second = census.take(path, (13, 0), 2), census.take(path, (13, 0), 2)
    assert first == second
    assert first.kernels == 9
    assert first.read <= 8


def test_compiled_kernels_of_nvcc() -> None:
    taken = census.take(KERNELS / "basic_sm75.ptx", (9, 0))
    assert taken.read == taken.accepted > 3


def test_what_holds_no_ptx_for_the_device(tmp_path: Path) -> None:
    with pytest.raises(ImageError):
        census.take(text_of(tmp_path, "", sm="120"), (9, 0))
    (tmp_path / "empty").touch()
    with pytest.raises(ImageError):
        census.take(tmp_path / "empty", (9, 0))


def test_command(tmp_path: Path) -> None:
    path = str(text_of(tmp_path, "mov.u32 %r1, 1;", "tcgen05.wait::ld.sync.aligned;"))
    done = CliRunner().invoke(sim, ["census", path])
    assert done.exit_code == 1
    assert "50.0%" in done.output
    assert "tcgen05.wait::ld.sync.aligned x1" in done.output
    done = CliRunner().invoke(sim, ["census", "--json", path])
    assert done.exit_code == 1
    assert json.loads(done.output)[0]["refused"] == {"tcgen05.wait::ld.sync.aligned": 1}
    done = CliRunner().invoke(sim, ["census", "--json", "--cc", "9.0", str(KERNELS / "basic_sm90.ptx")])
    assert done.exit_code == 0
    assert json.loads(done.output)[0]["refused"] == {}
    assert CliRunner().invoke(sim, ["census", "--cc", "nine", path]).exit_code == 2
