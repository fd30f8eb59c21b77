"""Systems that cannot run vgpu's libraries are refused before any write; files that other users can write are found."""

from __future__ import annotations

from pathlib import Path

import pytest
from vgpu_guest.system_kind import user_writable

from tests.guest.install.conftest import Vgpu
from tests.guest.install.snapshot import snapshot


def program(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00" + machine.to_bytes(2, "little") + bytes(44)


@pytest.mark.parametrize(
    ("machine", "loader", "says"),
    [(183, "lib/ld-linux-aarch64.so.1", "a system for aarch64"), (62, "lib/ld-musl-x86_64.so.1", "is not glibc")],
)
def test_GP4_another_architecture_or_c_library(
    root: Path, payload: Path, run: Vgpu, machine: int, loader: str, says: str
) -> None:
    (root / "bin").mkdir()
    (root / "bin/sh").write_bytes(program(machine))
    (root / loader).write_bytes(program(machine))
    before = snapshot(root)
    assert says in run("install", "--root", root, "--from", payload, code=1).output
    assert snapshot(root) == before


def test_a_system_of_our_kind(root: Path, payload: Path, run: Vgpu) -> None:
    (root / "bin").mkdir()
    (root / "bin/sh").write_bytes(program(62))
    (root / "lib64").mkdir()
    (root / "lib64/ld-linux-x86-64.so.2").write_bytes(program(62))
    run("install", "--root", root, "--from", payload)


def test_GP5_who_can_write_what_root_would_run(tmp_path: Path) -> None:
    file = tmp_path / "vgpu"
    file.write_text("")
    file.chmod(0o777)
    assert user_writable(str(file)) == str(file)
    assert user_writable("/bin/sh") == ""
    link = tmp_path / "link"
    link.symlink_to("/bin/sh")
    assert user_writable(str(link)) == ""
