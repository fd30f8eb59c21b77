"""The host's package: its contents, and (marked `ecosystem`) a guest's package that computes against it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.packaging.bundle import Options, make_bundle
from deploy.packaging.guest import guest_files, make_deb
from deploy.packaging.host import make_host_deb, unit
from deploy.packaging.source import Source
from tests.packaging import guest_system
from tests.packaging.guest_system import System
from tests.packaging.isolated import ROOT, unshare_command
from tests.packaging.test_first_hour import blocks
from tests.programs.toolchain import cuda13

SOURCE = Source("1.0", epoch_s=1_700_000_000)
UNITS = ("vgpud.service", "vgpud.socket", "vgpud-vm@.service")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package made of a minimal bundle."""
    folder = tmp_path_factory.mktemp("host")
    bundle = folder / "bundle"
    for name, text in (
        ("CONTENTS", "glibc 2.35 or newer\n"),
        ("README", "of the bundle"),
        ("bin/vgpud", "#!/bin/sh\n"),
        ("bin/vgpu", "#!/bin/sh\n"),
        ("python/site/module.py", "#!/usr/bin/python3\nprint()\n"),
        ("python/site/__pycache__/module.pyc", ""),
        ("python/lib/libssl.so.3", ""),
    ):
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_text(text)
        (bundle / name).chmod(0o755)
    return make_host_deb(bundle, SOURCE, folder)


def test_GP6_it_holds_units_configuration_commands_and_manuals(package: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True, timeout=60)
    for path in (
        *(f"usr/lib/systemd/system/{name}" for name in UNITS),
        *("etc/vgpu/vgpud.toml", "usr/lib/sysusers.d/vgpud.conf", "usr/share/man/man8/vgpud.8.gz"),
        *("usr/share/man/man1/vgpu.1.gz", "usr/share/bash-completion/completions/vgpud"),
    ):
        assert (tmp_path / path).is_file(), path
    for command in ("vgpu", "vgpud"):
        assert (tmp_path / "usr/bin" / command).readlink() == Path(f"../lib/vgpud/bin/{command}")
    module = tmp_path / "usr/lib/vgpud/python/site/module.py"
    assert module.read_text().splitlines()[1:] == ["print()"]
    assert not module.read_text().startswith("#!")
    assert not list(tmp_path.rglob("__pycache__"))
    fields = subprocess.run(["dpkg-deb", "-f", package], capture_output=True, text=True, check=True).stdout
    assert "libc6 (>= 2.35)" in fields
    assert not list((tmp_path / "usr/lib/vgpud/python/lib").glob("lib*"))  # instead, Depends names system libraries
    licence = (tmp_path / "usr/share/doc/vgpud/copyright").read_text()
    assert "License: Apache-2.0" in licence


def test_its_user_is_a_lasting_one(package: Path) -> None:
    service = unit("vgpud.service")
    assert "DynamicUser" not in service
    assert "User=vgpud\nGroup=vgpud\n" in service
    assert "RuntimeDirectoryPreserve=yes" in service  # vgpud.socket needs this folder, too


def test_the_socket_is_one_that_the_configuration_listens_on() -> None:
    listen = tomllib.loads((ROOT / "deploy/vgpud.toml").read_text())["listen"]
    streams = re.findall(r"^ListenStream=(.*)$", unit("vgpud.socket"), re.MULTILINE)
    assert [f"unix:{path}" for path in streams] == listen


@pytest.mark.client
@pytest.mark.ecosystem
@pytest.mark.timeout(2400)
def test_a_guests_package_computes_against_a_hosts(tmp_path: Path) -> None:
    """Two fresh systems with one package each, set up with the commands that the documents print."""
    if reason := guest_system.why_not():
        pytest.skip(reason)
    make_bundle(tmp_path / "bundle", SOURCE, Options(), tmp_path)
    host, guest = System.make(tmp_path / "host"), System.make(tmp_path / "guest")
    printed = blocks((ROOT / "docs/packages.md").read_text())
    host.assume_yes()
    package = make_host_deb(tmp_path / "bundle", SOURCE, tmp_path)
    check_by_lintian(package)
    host.give(package)
    install, enable, status = printed["host-deb"].splitlines()
    in_exchange(host, install)
    in_exchange(host, enable.replace(" --now", ""))  # systemd does not run in the chroot
    assert (host.root / "etc/systemd/system/sockets.target.wants/vgpud.socket").is_symlink()
    assert host.check("getent", "passwd", "vgpud")
    assert host.check("vgpud", "--config", "/etc/vgpu/vgpud.toml", "--check").startswith("good:")
    enter = 'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$1" vgpud '
    options = "--config /etc/vgpu/vgpud.toml --gpus t4 --listen tcp://127.0.0.1:0"
    with subprocess.Popen(
        [*unshare_command(), "sh", "-ec", enter + options, "sh", str(host.root)], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            address = address_of(process)
            in_exchange(host, status)
            guest.assume_yes()
            package = make_deb(guest_files(), SOURCE, tmp_path)
            check_by_lintian(package)
            guest.give(package)
            program = guest.give(cuda13().build("saxpy"))
            shutil.copy(guest.exchange / Path(program).name, guest.exchange / "program")
            install, configure, doctor, remove = printed["guest-deb"].splitlines()
            before = set(os.listdir(guest.root / "usr/lib"))
            in_exchange(guest, install)
            in_exchange(guest, configure.replace("HOST:7070", address))
            assert in_exchange(guest, doctor).startswith("OK: ")
            assert guest.check(program, "5").startswith("ok saxpy")
            for command in (("devices",), ("ping",), ("smi", "-L"), ("run", "--", program), ("api", "--summary")):
                assert guest.check("vgpu", *command)
            in_exchange(guest, remove)
            assert set(os.listdir(guest.root / "usr/lib")) == before
        finally:
            process.terminate()


def address_of(process: subprocess.Popen[str]) -> str:
    """HOST:PORT on which a vgpud says that it listens, once it is ready."""
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if " ready " in line or '"ready"' in line:
            found = re.search(r"tcp://([\d.]+:\d+)", line)
            assert found, line
            return found[1]
    raise AssertionError("".join(said))


def check_by_lintian(package: Path) -> None:
    """GP9: lintian, where it is installed, reports no error and no override that hides one."""
    if shutil.which("lintian") is None:
        return
    command = ["lintian", "--tag-display-limit", "0", "--show-overrides", package]
    said = subprocess.run(command, capture_output=True, text=True, timeout=1200).stdout
    assert [line for line in said.splitlines() if line[:2] in ("E:", "O:")] == []


def in_exchange(system: System, line: str) -> str:
    """Run a shell line of a document in the system's exchange folder."""
    return system.check("sh", "-ec", f"cd /mnt; {line}")
