"""The guest's package in a Debian 12 of its own: installed, upgraded, used, removed, with dpkg and with tar."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.packaging.contents import Contents, File
from deploy.packaging.guest import Guest, guest_files, make_archive, make_deb
from deploy.packaging.source import Source
from tests.daemon.running import Running
from tests.guest.elf_file import compile_library
from tests.packaging import guest_system
from tests.packaging.guest_system import System
from tests.programs.toolchain import cuda13

pytestmark = pytest.mark.client
SOURCE = Source("1.0", epoch_s=1_700_000_000)
OURS = "/usr/lib/vgpu/libcuda.so.1"
THEIRS = "/usr/lib/x86_64-linux-gnu/libcuda.so.1"


@pytest.fixture(scope="session")
def guest() -> Guest:
    return guest_files()


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> System:
    """A system without any trace of vgpu."""
    if reason := guest_system.why_not():
        pytest.skip(reason)
    return System.make(tmp_path_factory.mktemp("system"))


@pytest.fixture
def system(fresh: System) -> Iterator[System]:
    """The system; after each test the package is gone, which the next test relies on."""
    before = fresh.files()
    yield fresh
    fresh.run("dpkg", "--purge", "vgpu-guest")
    assert fresh.files() == before


@pytest.fixture
def deb(guest: Guest, tmp_path: Path) -> Path:
    return make_deb(guest, SOURCE, tmp_path)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The endpoint of a vgpud with a simulated GPU."""
    config = tmp_path / "vgpud.toml"
    config.write_text(f'listen = ["tcp://127.0.0.1:0"]\nadmin = ""\ngpus = "t4"\ncache_dir = "{tmp_path}/cache"\n')
    running = Running.start(config, tmp_path, "log")
    try:
        running.wait_ready()
        yield str(running.endpoint)
    finally:
        running.end()


def winners(system: System, soname: str) -> list[str]:
    """The files of that soname in the loader's cache, in order: the first wins. /lib is a link to /usr/lib."""
    lines = [line.split() for line in system.check("ldconfig", "-p").splitlines()]
    return ["/usr" + line[-1].removeprefix("/usr") for line in lines if line[0] == soname]


@pytest.mark.timeout(700)  # the first test waits for mmdebstrap, and for the compiler
def test_a_cuda_program_computes_with_the_package_alone(system: System, deb: Path, address: str) -> None:
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
    system.check("vgpu", "install", "--endpoint", address)
    program = system.give(cuda13().build("saxpy"))
    assert system.check(program, "5").startswith("ok saxpy")
    doctor = system.run("vgpu", "doctor", "--", program)
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr


def test_removing_the_package_gives_the_tree_back(system: System, deb: Path) -> None:
    before = system.files()
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
    assert winners(system, "libcuda.so.1") == [OURS]
    assert system.check("dpkg", "--verify", "vgpu-guest") == ""
    system.check("dpkg", "--remove", "vgpu-guest")
    assert system.files() == before
    assert "vgpu-guest" not in system.check("dpkg-query", "--show", "--showformat=${Package}\n")


def test_another_packages_driver_stays_and_comes_second(system: System, deb: Path, tmp_path: Path) -> None:
    """L06, D17: the other driver is not replaced and comes second; after removal programs get it again."""
    theirs = compile_library(tmp_path / "libcuda.so.1")
    content = theirs.read_bytes()
    planted = system.root / THEIRS.lstrip("/")
    planted.write_bytes(content)
    try:
        system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
        assert winners(system, "libcuda.so.1") == [OURS, THEIRS]
        system.check("dpkg", "--remove", "vgpu-guest")
        assert winners(system, "libcuda.so.1") == [THEIRS]
        assert planted.read_bytes() == content
    finally:
        planted.unlink()
        system.check("ldconfig")
        (system.root / "var/cache/ldconfig/aux-cache").unlink()


def changed(guest: Guest) -> Guest:
    """The package of another commit, whose libcuda has other bytes."""
    contents = Contents()
    for path, file in guest.files.files.items():
        is_library = path.endswith("/libcuda.so.580.159.04")
        contents.files[path] = File(file.content + b"\0later", file.mode) if is_library else file
    return replace(guest, files=contents)


def test_an_upgrade_renews_what_was_installed(system: System, deb: Path, guest: Guest, tmp_path: Path) -> None:
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
    later = make_deb(changed(guest), Source("1.1", epoch_s=1_700_000_001), tmp_path)
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(later))
    assert (system.root / OURS.lstrip("/")).read_bytes().endswith(b"\0later")
    assert system.run("vgpu", "repair").stdout.startswith("nothing was missing")


def test_an_upgrade_installs_nothing_where_it_was_uninstalled(
    system: System, deb: Path, guest: Guest, tmp_path: Path
) -> None:
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
    system.check("vgpu", "uninstall")
    later = make_deb(guest, Source("1.1", epoch_s=1_700_000_001), tmp_path)
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(later))
    assert winners(system, "libcuda.so.1") == []
    system.check("dpkg", "--remove", "vgpu-guest")
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))  # a new installation, unlike an upgrade
    assert winners(system, "libcuda.so.1") == [OURS]


def test_an_endpoint_that_its_owner_changed_survives_removal(system: System, deb: Path) -> None:
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
    system.check("vgpu", "install", "--endpoint", "tcp://127.0.0.1:7070")
    conf = system.root / "etc/vgpu/guest.conf"
    conf.write_text("endpoint = tcp://127.0.0.1:9\n")
    system.check("dpkg", "--remove", "vgpu-guest")
    assert conf.read_text() == "endpoint = tcp://127.0.0.1:9\n"
    assert winners(system, "libcuda.so.1") == []
    system.check("dpkg", "--force-unsafe-io", "--install", system.give(deb))
    assert conf.read_text() == "endpoint = tcp://127.0.0.1:9\n"
    assert winners(system, "libcuda.so.1") == [OURS]
    system.check("dpkg", "--force-unsafe-io", "--remove", "vgpu-guest")
    conf.unlink()
    conf.parent.rmdir()


def test_the_archive_installs_from_wherever_it_lies(system: System, guest: Guest, tmp_path: Path) -> None:
    """It needs no python3-click, since the archive has its own; uninstall leaves only the unpacked folder."""
    archive = make_archive(guest, SOURCE, tmp_path)
    subprocess.run(["tar", "-C", system.exchange, "-xf", archive], check=True)
    command = "/mnt/vgpu-guest-1.0-linux-x86_64/bin/vgpu"
    before = system.files()
    hidden = system.root / "usr/lib/python3/dist-packages/click"
    hidden.rename(hidden.with_name("no-click"))
    try:
        system.check(command, "install")
        assert winners(system, "libcuda.so.1") == [OURS]
        system.check(command, "uninstall")
    finally:
        hidden.with_name("no-click").rename(hidden)
    assert system.files() == before
    unpacked = system.exchange / "vgpu-guest-1.0-linux-x86_64"
    assert not list(unpacked.rglob("__pycache__"))
