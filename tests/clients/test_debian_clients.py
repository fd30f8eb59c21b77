"""Unmodified programs from Debian that look for a GPU."""

import os
import shutil
import xml.etree.ElementTree as ET
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import Run
from tests.vm import packages

pytestmark = pytest.mark.client


def installed(program: str, package: str) -> str:
    """The program's path, installed now if possible; otherwise skip the test and name the missing package."""
    if not shutil.which(program) and os.geteuid() == 0 and shutil.which("apt-get"):
        with packages.locked(), suppress(RuntimeError):
            packages.refresh_lists()
            packages.apt("apt-get", *packages.INSTALL, package)
    path = shutil.which(program)
    if not path:
        pytest.skip(f"{program} is not here: apt-get install {package}")
    return path


def test_boinc_detects_the_devices(vgpu_run: Run, tmp_path: Path) -> None:
    """BOINC opens libcuda.so by its unversioned name, and calls cuCtxCreate and cuCtxDestroy without their suffixes."""
    boinc = installed("boinc", "boinc-client")
    vgpu_run([boinc, "--detect_gpus", "--dir", tmp_path], gpu="h100,t4")
    root = ET.fromstring((tmp_path / "coproc_info.xml").read_text())
    devices = [(d.findtext("name"), d.findtext("major"), d.findtext("minor")) for d in root.iter("coproc_cuda")]
    names = [(n.strip(), a, b) for n, a, b in devices if n]
    assert names == [("NVIDIA H100 PCIe", "9", "0"), ("Tesla T4", "7", "5")]
