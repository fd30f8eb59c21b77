"""Profiles and access lists that deny a process existing files. AppArmor itself is not needed: in a mount namespace
of the doctor, a bind mount replaces the process's attr/current in /proc."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import merged
from tests.guest.doctor.tree import DOCTOR, NOBODY, Told, Tree
from tests.guest.elf_file import compile_c

SLEEP = "#include <unistd.h>\nint main(void) { sleep(600); return 0; }"


def deny(file: Path, uid: int) -> None:
    """Add an access control list that denies reading to `uid` alone; the mode bits do not show it."""
    owner, user, group, mask, other, undefined = 0x01, 0x02, 0x04, 0x10, 0x20, 0xFFFFFFFF
    entries = [
        (owner, 7, undefined),
        (user, 0, uid),
        (group, 5, undefined),
        (mask, 7, undefined),
        (other, 5, undefined),
    ]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"this file system has no access lists ({error.strerror})")


@pytest.fixture
def confined(tree: Tree, tmp_path: Path) -> Iterator[Tree]:
    compile_c(tree.path(tree.program), SLEEP)
    environment = {"LD_LIBRARY_PATH": "/usr/lib/vgpu", "VGPU_ENDPOINT": tree.environment["VGPU_ENDPOINT"]}

    def enter() -> None:
        os.chroot(tree.root)
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)

    process = subprocess.Popen([tree.program], env=environment, preexec_fn=enter, cwd="/")
    tree.pid = process.pid  # type: ignore[attr-defined]
    yield tree
    process.kill()
    process.wait()


def doctor_under(tree: Tree, profile: str, tmp_path: Path) -> Told:
    """Run `vgpu doctor --pid` where /proc says that `profile` confines the process."""
    word = tmp_path / "profile"
    word.write_text(f"{profile}\n")
    pid = tree.pid  # type: ignore[attr-defined]
    script = f'mount --bind "{word}" /proc/{pid}/attr/current && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", *DOCTOR, "--json", "--pid", str(pid)]
    env = {"PYTHONPATH": merged(None)["PYTHONPATH"], "PATH": os.environ["PATH"]}
    result = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    if "unshare failed" in result.stderr or "mount:" in result.stderr:
        pytest.skip(f"no mount namespaces here: {result.stderr.strip()}")
    return Told(result.returncode, json.loads(result.stdout), result.stderr)


def test_a_profile_that_denies_nothing_is_only_told(confined: Tree, tmp_path: Path) -> None:
    told = doctor_under(confined, "/usr/bin/program (enforce)", tmp_path)
    assert told.verdict == "ok", told.everything
    assert "AppArmor profile: /usr/bin/program (enforce)" in told.answer["evidence"]


def test_I07_a_denial_names_the_profile_and_the_audit_line(confined: Tree, tmp_path: Path) -> None:
    deny(confined.path("usr/lib/vgpu/libcuda.so.580.159.04"), NOBODY)
    line = 'audit: apparmor="DENIED" operation="open" profile="gpuapp" name="/usr/lib/vgpu/libcuda.so.1" comm="program"'
    confined.write("var/log/kern.log", f"old\n{line}\n")
    told = doctor_under(confined, "gpuapp (enforce)", tmp_path)
    assert (told.code, told.verdict) == (30, "library-denied"), told.everything
    assert "AppArmor profile gpuapp (enforce) denies it" in told.answer["text"]
    assert any(line in evidence for evidence in told.answer["evidence"])


def test_I07_a_snaps_profile_is_the_verdict(confined: Tree, tmp_path: Path) -> None:
    told = doctor_under(confined, "snap.ollama.listener (enforce)", tmp_path)
    assert (told.code, told.verdict) == (30, "snap-confined"), told.everything
    assert "snap.ollama.listener" in told.answer["text"]


def test_an_access_list_without_a_profile(confined: Tree, tmp_path: Path) -> None:
    deny(confined.path("usr/lib/vgpu/libcuda.so.580.159.04"), NOBODY)
    told = confined.doctor("--pid", str(confined.pid))  # type: ignore[attr-defined]
    assert told.verdict == "library-denied", told.everything
    assert f"uid {NOBODY} may not read it" in told.answer["text"]
