"""What a confined worker can open: tried in a child, as it cannot be undone."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.running import ENVIRONMENT

SCRIPT = """
import json, os, sys
from vgpud.worker.confine import Files

def attempt(path, flags):
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError as error:
        return error.errno
    return 0

Files(sys.argv[2]).confine(sys.argv[1], 1 << 20)
print(json.dumps([attempt(path, flags) for path, flags in json.loads(sys.argv[3])]))
"""


def attempts(cache: Path, tries: list[tuple[Path, int]], libcuda: str = "libcuda.so.1") -> list[str]:
    """The errors' names, '' for success, of opening each path with these flags."""
    given = json.dumps([(str(path), flags) for path, flags in tries])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(cache), libcuda, given],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""  # no word that the kernel has no Landlock
    return [errno.errorcode.get(code, "") for code in json.loads(done.stdout)]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "vgpud.toml"
    file.write_text("[[tokens]]")
    return file


def test_files_of_others_are_out_of_reach(tmp_path, secret):
    other = tmp_path / "uid-1001"
    other.mkdir()
    (other / "kernel.bin").write_bytes(b"")
    tries = [
        (secret, os.O_RDONLY),
        (other / "kernel.bin", os.O_RDONLY),
        (other / "kernel.bin", os.O_WRONLY),
        (other / "new", os.O_WRONLY | os.O_CREAT),
        (tmp_path, os.O_RDONLY | os.O_DIRECTORY),
        (Path("/etc/shadow"), os.O_RDONLY),
        (Path("/dev/shm/vgpu-test-landlock"), os.O_WRONLY | os.O_CREAT),
        (Path("/tmp/vgpu-test-landlock"), os.O_WRONLY | os.O_CREAT),
        (Path("/usr/vgpu-test-landlock"), os.O_WRONLY | os.O_CREAT),
    ]
    assert attempts(tmp_path / "uid-1000", tries) == ["EACCES"] * len(tries)


def test_what_it_needs_it_has(tmp_path):
    tries = [
        (Path("/etc/ld.so.cache"), os.O_RDONLY),
        (Path(sys.executable), os.O_RDONLY),
        (Path("/proc/self/maps"), os.O_RDONLY),
        (Path("/dev/null"), os.O_RDWR),
        (tmp_path / "uid-1000" / "new", os.O_RDWR | os.O_CREAT | os.O_TRUNC),
    ]
    assert attempts(tmp_path / "uid-1000", tries) == [""] * len(tries)


def test_the_driver_named_in_the_configuration_can_be_read(tmp_path, secret):
    driver = tmp_path / "driver"
    driver.mkdir()
    (driver / "libcuda.so.1").write_bytes(b"")
    (driver / "libnvidia-ptxjitcompiler.so.1").write_bytes(b"")
    tries = [(driver / "libcuda.so.1", os.O_RDONLY), (driver / "libnvidia-ptxjitcompiler.so.1", os.O_RDONLY)]
    assert attempts(tmp_path / "cache", [*tries, (secret, os.O_RDONLY)], str(driver / "libcuda.so.1")) == [
        "",
        "",
        "EACCES",
    ]
