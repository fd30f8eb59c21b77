"""The guest's packages, without installing them: their contents, and that every build gives the same bytes."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from vgpu_guest.cli import CLIENT_COMMANDS, COMMANDS, vgpu

from deploy.packaging.binary import OLDEST_GUEST_GLIBC, TooNewError, glibc_needed, newest_glibc, stripped
from deploy.packaging.guest import Guest, copyright_text, guest_files, make_archive, make_deb
from deploy.packaging.manual import manual_page
from deploy.packaging.source import Source, describe_source
from tests.packaging.isolated import ROOT
from tests.pypi import packages

SOURCE = Source("1.0~git202601010000.01234567", epoch_s=1_700_000_000)
OLDEST_PYTHON = (3, 10)  # Ubuntu 22.04's
OLDEST_CLICK = "8.0.3"  # Ubuntu 22.04's


@pytest.fixture(scope="module")
def guest() -> Guest:
    # Python leaves a __pycache__ in a checkout where Triton's plug-in was used; the package must not contain it.
    (ROOT / "daemon/vgpud/cli/standin/python/vgpu_triton/__pycache__").mkdir(exist_ok=True)
    return guest_files()


@pytest.mark.client
def test_the_same_commit_gives_the_same_bytes(guest: Guest, tmp_path: Path) -> None:
    made = []
    for name, umask in (("one", 0o022), ("two", 0o077)):
        before = os.umask(umask)
        try:
            (tmp_path / name).mkdir()
            made.append(
                [make_deb(guest, SOURCE, tmp_path / name), make_archive(guest_files(), SOURCE, tmp_path / name)]
            )
        finally:
            os.umask(before)
    for one, two in zip(*made, strict=True):
        assert one.name == two.name
        assert one.read_bytes() == two.read_bytes()


def test_a_compiler_that_cannot_link_all_as_one_program_links_it_in_parts(tmp_path: Path) -> None:
    """Some compilers are installed without what -flto needs; the libraries are slower then."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-flto*) exit 1 ;; esac\nexec cc "$@"\n')
    compiler.chmod(0o755)
    command = [sys.executable, ROOT / "shim/build_notice.py", "--out", tmp_path / "out"]
    subprocess.run(command, check=True, timeout=100, cwd=ROOT, env={**os.environ, "CC": str(compiler)})
    assert b"cuInit\0" in stripped(tmp_path / "out/libvgpu-notice.so")


def test_libraries_do_not_say_where_they_were_built(tmp_path: Path) -> None:
    """The smallest library, built in this checkout and in another folder, is the same."""
    other = tmp_path / "another place"
    for part in ("shim", "protocol/c"):
        shutil.copytree(ROOT / part, other / part, ignore=shutil.ignore_patterns("__pycache__"))
    found = []
    for root in (ROOT, other):
        out = tmp_path / f"out-{root.name}"
        command = [sys.executable, root / "shim/build_notice.py", "--out", out]
        subprocess.run(command, check=True, timeout=100, cwd=root)
        found.append(stripped(out / "libvgpu-notice.so"))
    assert found[0] == found[1]


def test_every_library_runs_on_the_oldest_glibc(guest: Guest, tmp_path: Path) -> None:
    guest.files.write(tmp_path / "files", 0)
    needed = glibc_needed((tmp_path / "files").rglob("*.so*"))
    assert len(needed) >= 5
    assert set(needed.values()) - {(0, 0)}
    assert max(needed.values()) == guest.glibc <= OLDEST_GUEST_GLIBC


def test_a_library_for_a_newer_glibc_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "new.c"
    source.write_text("#include <stdlib.h>\nunsigned vgt_new(void) { return arc4random(); }\n")  # since glibc 2.36
    built = subprocess.run(
        ["cc", "-shared", "-fPIC", source, "-o", tmp_path / "libnew.so"], capture_output=True, text=True
    )
    if built.returncode or "arc4random" in built.stderr:
        pytest.skip("this machine's own glibc has no newer function to try with")
    with pytest.raises(TooNewError, match=r"libnew\.so needs glibc 2\.36, and 2\.35 is promised"):
        newest_glibc(tmp_path)


def test_the_guests_python_is_old_enough() -> None:
    """ast checks the syntax for the oldest Python that is supported, mypy checks the imported modules."""
    folder = ROOT / "guest/vgpu_guest"
    for file in folder.rglob("*.py"):
        ast.parse(file.read_text(), file.name, feature_version=OLDEST_PYTHON)
    version = ".".join(map(str, OLDEST_PYTHON))
    command = [sys.executable, "-m", "mypy", "--python-version", version, "--no-warn-unused-ignores", str(folder)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.client
def test_the_commands_work_with_the_oldest_click(tmp_path: Path) -> None:
    oldest = packages(f"click=={OLDEST_CLICK}")
    for arguments in (["--help"], *([name, "--help"] for name in COMMANDS)):
        script = "from vgpu_guest.cli import vgpu; vgpu(prog_name='vgpu')"
        environment = {"PYTHONPATH": f"{oldest}:{ROOT / 'guest'}", "PATH": os.defpath}
        command = [sys.executable, "-c", script, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert result.returncode == 0, result.stderr
        assert result.stdout.startswith("Usage: vgpu")


def test_each_command_has_all_that_it_imports(guest: Guest, tmp_path: Path) -> None:
    """The package contains only some modules of vgpud, among them all that each command imports."""
    guest.files.write(tmp_path / "files", 0)
    for name in COMMANDS | CLIENT_COMMANDS:
        command = [sys.executable, tmp_path / "files/lib/vgpu-guest", name, "--help"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert result.stdout.startswith(f"Usage: vgpu {name} "), result.stderr


def test_GP2_nobody_is_told_to_install_a_name_that_is_not_ours() -> None:
    told = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "deploy").rglob("*"),
        *(ROOT / "guest").rglob("*.py"),
    ]
    for file in told:
        if file.suffix not in (".pyc", ".so") and file.is_file():
            names = re.findall(r"pip3? install (?:-\S+ )*[\"']?(vgpu[\w-]*)", file.read_text())
            assert not names, (file, names)


def test_GP3_the_licence_is_said_everywhere() -> None:
    assert (ROOT / "LICENSE").read_text().lstrip().startswith("Apache License")
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text()
    assert "License: Apache-2.0" in copyright_text()


def test_the_manual_names_every_command_and_option() -> None:
    page = manual_page(vgpu, SOURCE)
    for name in COMMANDS:
        command = vgpu.get_command(click.Context(vgpu), name)
        assert command is not None
        assert f'.SS "vgpu {name} ' in page
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert option.replace("-", r"\-") in page


def test_a_changed_checkout_has_a_version_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "daemon/vgpud").mkdir(parents=True)
    module = tmp_path / "daemon/vgpud/__init__.py"
    module.write_text('__version__ = "1.2.3"\n')

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
        environment = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-02T03:04:05Z"}
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, env=environment)

    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    source = describe_source(tmp_path)
    assert source.version.startswith("1.2.3~git202601020304.")
    assert source.epoch_s == 1_767_323_045
    module.write_text('__version__ = "1.2.3"\n# changed\n')
    assert describe_source(tmp_path).version == f"{source.version}+changed"
    git("commit", "-am", "two")
    git("tag", "v1.2.3")
    assert describe_source(tmp_path).version == "1.2.3"
