"""Which programs get vgpu-torch: every one whose Python may have torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from vgpud.cli.torch_overlay import is_wanted


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The packages of a Python that has no torch."""
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin/python3")  # never run
    packages = tmp_path / "lib/python3.12/site-packages"
    packages.mkdir(parents=True)
    (packages / "distutils-precedence.pth").write_text("import os; var = 'SETUPTOOLS_USE_DISTUTILS'\n")
    return packages


def wanted(site: Path) -> bool:
    return is_wanted(str(site.parents[2] / "bin/python3"), {"PATH": "/bin", "HOME": str(site.parents[2])})


def with_torch(folder: Path) -> Path:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/version.py").touch()
    return folder


def test_not_where_python_has_no_torch(site: Path) -> None:
    (site / "mine.pth").write_text("# packages of mine\n/nowhere\n")
    assert not wanted(site)


def test_where_it_has(site: Path) -> None:
    with_torch(site)
    assert wanted(site)


def test_where_a_pth_file_names_its_folder(site: Path, tmp_path: Path) -> None:
    (site / "other.pth").write_text(f"{with_torch(tmp_path / 'other')}\n")
    assert wanted(site)


def test_where_a_pth_file_adds_folders_by_code(site: Path) -> None:
    (site / "zz-outer.pth").write_text("import site; site.addsitedir('/opt/packages')\n")
    assert wanted(site)


def test_where_it_is_not_python(site: Path) -> None:
    assert is_wanted("sh", {"PATH": "/bin"})
