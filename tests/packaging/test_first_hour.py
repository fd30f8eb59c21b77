"""A newcomer's first hour: the commands that README.md prints, run as printed, in a fresh Debian.

The blocks of README.md after `<!-- hour: NAME -->` are the scripts; the program, with its deliberate mistake, lies in
docs/example. The test takes minutes and needs a network: `make test-ecosystem`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
_BLOCK = re.compile(r"<!-- hour: ([a-z-]+) -->\n```\w*\n(.*?)```", re.DOTALL)
_TIMEOUT_S = 1800
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PACKAGES = "ca-certificates,git,make,python3,python3-venv,python3-dev,gcc,g++,libc6-dev,dpkg-dev,xz-utils,binutils"


def blocks(text: str) -> dict[str, str]:
    """The scripts of a Markdown page, by name."""
    return {name: re.sub(r"\s+# .*$", "", body, flags=re.MULTILINE) for name, body in _BLOCK.findall(text)}


def test_every_step_of_the_hour_is_in_the_readme() -> None:
    assert list(blocks(README.read_text())) == ["demo", "nvcc", "own", "bug"]


def test_what_the_readme_names_is_in_the_tree() -> None:
    for path in re.findall(r"\]\(((?!http)[^)#]+)", README.read_text()):
        assert (ROOT / path).exists(), path
    targets = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([a-z-]+)", README.read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", targets, re.MULTILINE), target


def chroot(folder: Path, suite: str) -> Path:
    """A fresh Debian with the packages that README.md asks for."""
    root = folder / suite
    command = ["mmdebstrap", "--mode=root", "--variant=minbase", f"--include={_PACKAGES}", suite, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        pytest.skip(f"mmdebstrap {suite}: {done.stderr[-300:]}")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    if CERTIFICATES.exists():  # this machine's network may need certificates of its own
        shutil.copy(CERTIFICATES, root / str(CERTIFICATES).lstrip("/"))
    return root


@pytest.mark.client
@pytest.mark.ecosystem
@pytest.mark.timeout(_TIMEOUT_S * 2)
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_the_first_hour(tmp_path: Path, suite: str) -> None:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("a fresh Debian needs root and mmdebstrap")
    root = chroot(tmp_path, suite)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(root / "vgpu")], check=True, timeout=300)
    steps = blocks(README.read_text())

    def run(script: str) -> subprocess.CompletedProcess[str]:
        enter = (
            'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; mount -t tmpfs tmpfs "$1/tmp"; '
            'exec chroot "$1" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 '
            f"PIP_CERT={CERTIFICATES} SSL_CERT_FILE={CERTIFICATES} "
            'sh -ec "cd /vgpu; $2"'
        )
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", enter, "sh", str(root), script]
        return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)

    def check(name: str) -> str:
        done = run(steps[name])
        assert done.returncode == 0, f"{name}: {done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout + done.stderr

    assert "ok" in check("demo").lower()
    check("nvcc")
    assert "5.0" in check("own")
    bug = run(steps["bug"])
    assert bug.returncode != 0, bug.stdout
    assert "an illegal memory access was encountered" in bug.stdout
    reason = r"^vgpu\[\d+\]: kernel saxpy\(int, float, float const\*, float\*\) ended with error 700: write of 4 bytes"
    where = r".* \(\S*docs/example/saxpy\.cu:\d+\) at address 0x[0-9a-f]+, block: .*, thread: "
    assert re.search(reason + where + r".* past the end of an allocation of 4000 bytes", bug.stderr, re.MULTILINE), (
        bug.stderr
    )
