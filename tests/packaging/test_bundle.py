"""The bundle, unpacked under an unusual path of a machine that has no Python and none of vgpu's files."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from vgpud.cli import steering

from deploy.packaging.bundle import BundleError, pack
from deploy.packaging.debian import release_name
from deploy.packaging.python import RELEASE
from deploy.packaging.source import Source
from tests.packaging.isolated import ROOT, python_and_checkout, run_without, why_not
from tests.programs.toolchain import cuda13
from tests.vm import packages

pytestmark = [
    pytest.mark.client,
    pytest.mark.skipif(release_name() != RELEASE, reason=f"the bundle is made on Debian 12 ({RELEASE})"),
]
MAKE_TIMEOUT_S = 400

Run = Callable[..., CompletedProcess[str]]


def make(out: Path, *options: str) -> Path:
    command = [sys.executable, "-m", "deploy.packaging", "--out", str(out), "bundle", "--without-programs", *options]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=MAKE_TIMEOUT_S)
    assert made.returncode == 0, made.stderr
    (path,) = out.iterdir()
    return path


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole bundle, in a folder whose name has spaces, quotes, a dollar sign and non-ASCII letters."""
    out = tmp_path_factory.mktemp("bundle")
    made = make(out / "made", "--folder", *([] if packages.missing() else ["--vm"]))
    place = out / "Größe $HOME 'x'"
    made.rename(place)
    return place


@pytest.fixture(scope="module")
def run(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`run("bin/vgpu", ...)` runs a command of the bundle as on a machine without vgpu's files."""
    if reason := why_not():
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("home")

    def run(name: str | Path, *arguments: str | Path, **env: str) -> CompletedProcess[str]:
        environment = {"HOME": str(home), **env}
        return run_without(python_and_checkout(), [bundle / name, *arguments], environment)

    return run


@pytest.fixture(scope="module")
def saxpy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CUDA program, outside of the checkout."""
    return Path(shutil.copy(cuda13().build("saxpy"), tmp_path_factory.mktemp("programs") / "saxpy"))


@pytest.mark.timeout(700)
def test_a_cuda_program_computes_without_a_python_on_the_machine(run: Run, saxpy: Path) -> None:
    result = run("bin/vgpu", "run", "--", saxpy, "7")
    assert (result.returncode, result.stdout[:8]) == (0, "ok saxpy"), result.stderr


def test_its_guest_boots_and_computes_without_the_machines_qemu(bundle: Path, tmp_path: Path) -> None:
    if reason := why_not() or packages.missing():
        pytest.skip(reason)
    of_qemu = ("/usr/share/qemu", "/usr/share/seabios", "/usr/lib/x86_64-linux-gnu/qemu", "/usr/lib/qemu")
    hidden = [*python_and_checkout(), *filter(Path.is_dir, map(Path, of_qemu))]
    result = run_without(hidden, [bundle / "bin/vgpu-vm", "saxpy"], {"HOME": str(tmp_path)})
    assert result.returncode == 0, result.stdout + result.stderr
    assert "saxpy: exit 0: ok saxpy" in result.stdout
    assert (bundle / "vm/licenses/qemu-system-x86").exists()


def test_a_command_linked_into_the_path_finds_its_bundle(run: Run, bundle: Path, tmp_path: Path) -> None:
    link = tmp_path / "vgpu"
    link.symlink_to(bundle / "bin/vgpu")
    result = run(link, "profiles")
    assert "h100" in result.stdout, result.stderr


def test_the_daemon_reads_its_configuration(run: Run) -> None:
    result = run("bin/vgpud", "--config", "/dev/null", "--check")
    assert result.returncode == 0, result.stderr


def test_a_program_gets_the_environment_of_its_user(run: Run) -> None:
    """Nothing of the bundle's own Python may reach it; nothing of the user's Python may reach the bundle's."""
    given = {"PATH": os.defpath, "LD_LIBRARY_PATH": "/opt/mine", "PYTHONHOME": "/nowhere", "PYTHONPATH": "/elsewhere"}
    result = run("bin/vgpu", "run", "--cudart", "program", "--no-cupti", "--", "/usr/bin/env", **given)
    assert result.returncode == 0, result.stderr
    seen = dict(line.split("=", 1) for line in result.stdout.splitlines())
    library_path = seen.pop("LD_LIBRARY_PATH").split(":")
    assert library_path[-1] == "/opt/mine"
    assert [Path(entry).name for entry in library_path[:-1]] == ["_lib"]
    assert seen.pop("VGPU_ENDPOINT").startswith("unix:")
    # Added to the user's PYTHONPATH: PyTorch's overlay and Triton's plug-in, for any Python that has these packages.
    theirs, *added = seen["PYTHONPATH"].split(os.pathsep)
    assert sorted(Path(entry).parts[-2:] for entry in added) == [("_lib", "torch"), ("standin", "python")]
    seen["PYTHONPATH"] = theirs
    compilers = [Path(entry) for entry in seen.pop("LD_PRELOAD").split(":")]
    assert [entry.name for entry in compilers] == list(steering.COMPILERS)
    assert all(entry.is_file() and entry.parent.name == "compiler" for entry in compilers)
    del given["LD_LIBRARY_PATH"], seen["HOME"]
    for setting in steering.settings([(13, 0)]):  # the settings for the default device
        seen.pop(setting.name)
    standin, _, seen["PATH"] = seen["PATH"].partition(":")
    assert standin.endswith("/standin/bin")
    assert {key: value for key, value in seen.items() if key != "PWD"} == given


def test_nothing_is_written_into_the_bundle(run: Run, bundle: Path) -> None:
    def listing() -> dict[Path, tuple[int, int]]:
        return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in bundle.rglob("*")}

    before = listing()
    assert run("bin/vgpu", "api").returncode == 0
    assert listing() == before


def test_every_distribution_brings_its_terms(bundle: Path) -> None:
    distributions = list((bundle / "python/site").glob("*.dist-info"))
    assert len(distributions) > 5
    assert (bundle / "python/licenses/libpython3.11-stdlib").exists()
    for line in ("llvmlite", "libssl3", "vgpu"):
        assert f"\n{line} " in (bundle / "CONTENTS").read_text()


def test_the_machine_of_these_tests_has_no_checkout_and_no_python() -> None:
    if reason := why_not():
        pytest.skip(reason)
    for path in (ROOT / "Makefile", sys.executable, os.__file__):
        assert run_without([], ["test", "-e", path], {}).returncode == 0
        assert run_without(python_and_checkout(), ["test", "-e", path], {}).returncode == 1


def test_a_bundle_without_the_simulator_has_no_llvm(tmp_path: Path) -> None:
    folder = make(tmp_path / "made", "--without-simulator", "--folder")
    assert (folder / "python/site/vgpud/_executor.abi3.so").exists()
    assert not list(folder.rglob("*llvm*"))
    assert "for hosts with a real GPU" in (folder / "README").read_text()


def test_an_archive_names_root_alone_and_keeps_links_and_modes(tmp_path: Path) -> None:
    folder = tmp_path / "vgpu-1"
    folder.mkdir()
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o700)
    (folder / "link").symlink_to("program")
    archives = [tmp_path / "a.tar.xz", tmp_path / "b.tar.xz"]
    for archive in archives:
        pack(folder, archive, Source("1", epoch_s=1_700_000_000))
    listed = subprocess.run(["tar", "--verbose", "-tf", archives[0]], capture_output=True, text=True, check=True)
    lines = [line.split(None, 5) for line in listed.stdout.splitlines()]
    assert {(line[1], line[3]) for line in lines} == {("root/root", "2023-11-14")}
    assert [(line[0], line[5]) for line in lines] == [
        ("drwxr-xr-x", "vgpu-1/"),
        ("lrwxrwxrwx", "vgpu-1/link -> program"),
        ("-rwxr-xr-x", "vgpu-1/program"),
    ]
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_an_archive_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vgpu-1").mkdir()
    with pytest.raises(BundleError, match="more than the 10 promised"):
        pack(tmp_path / "vgpu-1", tmp_path / "a.tar.xz", Source("1", epoch_s=0), nbytes_cap=10)
    assert list(tmp_path.iterdir()) == [tmp_path / "vgpu-1"]
