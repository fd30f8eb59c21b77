"""What the doctor says of an earlier `vgpu install`."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import merged
from tests.guest.doctor.tree import Tree


@pytest.fixture
def installed(tree: Tree) -> Tree:
    """A tree with vgpu's libraries as `vgpu install --root` puts them; no environment variable leads to them."""
    for file in sorted(tree.path("usr/lib/vgpu").iterdir()):
        file.unlink()
    tree.path("usr/lib/vgpu").rmdir()
    tree.path("usr/lib/x").mkdir(parents=True)
    vgpu = [sys.executable, "-c", "from vgpu_guest.cli import vgpu; vgpu()"]
    endpoint = tree.environment.pop("VGPU_ENDPOINT")
    command = [*vgpu, "install", "--root", str(tree.root), "--endpoint", endpoint]
    env = {"PYTHONPATH": merged(None)["PYTHONPATH"], "PATH": os.environ["PATH"]}
    tree.write("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n")
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    del tree.environment["LD_LIBRARY_PATH"]
    return tree


def test_what_install_made_is_ok_without_any_environment(installed: Tree) -> None:
    told = installed.doctor()
    assert told.verdict == "ok", told.everything
    assert told.answer["endpoint"]["source"] == "/etc/vgpu/guest.conf"


def test_I01_drift_is_told_precisely_and_repair_mends_it(installed: Tree) -> None:
    installed.path("usr/lib/vgpu/libcuda.so.580.159.04").unlink()
    told = installed.doctor()
    assert (told.code, told.verdict) == (10, "library-drift"), told.everything
    assert told.answer["text"].startswith("/usr/lib/vgpu/libcuda.so.580.159.04 is missing")
    assert told.answer["mend"] == "sudo vgpu repair"


def test_D17_a_driver_package_after_us_is_flagged(installed: Tree) -> None:
    """A package puts NVIDIA's driver into a folder that the loader searches before vgpu's."""
    installed.library("usr/lib/nvidia/libcuda.so.1")
    installed.write("etc/ld.so.conf", "/usr/lib/nvidia\ninclude /etc/ld.so.conf.d/*.conf\n")
    installed.ldconfig()
    told = installed.doctor()
    assert told.verdict == "library-foreign", told.everything
    assert told.answer["libs"]["libcuda.so.1"]["resolved"] == "/usr/lib/nvidia/libcuda.so.1"
