"""/etc/vgpu/notice.conf, and the environment variables that override it."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shim.notice.conftest import LINE, Installed, Machine

Loader = Callable[[str], list[str | Path]]


@pytest.fixture
def said(installed: Installed, loader: Loader, machine: Machine) -> Callable[..., str]:
    """`said(conf)` is the stderr of a blocked program under that configuration."""

    def run(conf: str, drop: tuple[str, ...] = (), **env: str) -> str:
        (machine.home / "notice.conf").write_text(conf)
        (machine.home / "vgpu-notice").unlink(missing_ok=True)
        environment = machine.environment(installed.folder, VGT_RESULT="100", **env)
        command = ["env", *(f"-u{name}" for name in drop), *loader("proc")]
        done = machine.run(command, None, **environment)
        assert done.returncode == 0
        return done.stderr

    return run


Said = Callable[..., str]


def test_vgpu_notice_0_is_off(said: Said) -> None:
    assert said("", VGPU_NOTICE="0") == ""
    assert said("", VGPU_NOTICE="1") == LINE
    assert said("", VGPU_NOTICE="") == LINE


def test_marker_message_and_their_defaults(said: Said, machine: Machine, tmp_path: Path) -> None:
    other = tmp_path / "other marker"
    conf = f"# ours\n marker = {other} \n message = First line.\nmessage=Second = line.\nnonsense\nunknown = 1\n"
    assert said(conf, drop=("VGPU_NOTICE_FILE",)) == ""  # the marker file does not exist yet
    other.write_text("\n")
    assert said(conf, drop=("VGPU_NOTICE_FILE",)) == "GPU access: First line.\nGPU access: Second = line.\n"
    other.write_text("The marker's own.\n")
    assert said(conf, drop=("VGPU_NOTICE_FILE",)) == "GPU access: The marker's own.\n"
    machine.marker.write_text("")
    assert said("").startswith("GPU access: GPUs are switched off for you on this machine")


def test_a_marker_that_is_no_file(said: Said, machine: Machine) -> None:
    machine.marker.unlink()
    machine.marker.mkdir()
    assert said("") == ""
    machine.marker.rmdir()
    os.mkfifo(machine.marker)
    assert said("") == ""


@pytest.mark.parametrize("conf", [None, "\0\0\0", "=\n==\n", "message" * 5000, "exempt = \nexempt\n", "x" * 20000])
def test_a_broken_configuration_does_no_harm(said: Said, machine: Machine, conf: str | None) -> None:
    assert said(conf or "", **({} if conf is not None else {"VGPU_NOTICE_CONF": "/nonexistent"})) == LINE


def test_GP11_exempt_groups(said: Said) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    for entry in (f"@{group}", f"@{os.getgid()}", f"nobody, @{group}"):
        assert said(f"exempt = {entry}\n") == "", entry
    for entry in (group + "x", "@no-such-group", "@", f"@{os.getgid() + 4321}"):
        assert said(f"exempt = {entry}\n") == LINE, entry


def test_exempt_users(said: Said) -> None:
    uid, name = os.getuid(), pwd.getpwuid(os.getuid()).pw_name
    for entry in (f"{uid}", name, f"nobody, {name}", f"other {uid}"):
        assert said(f"exempt = {entry}\n") == "", entry
    assert said(f"exempt = nobody\nexempt = {name}\n") == ""
    for entry in ("", "nobody", f"{uid}1", f"{name}x", "someone"):
        assert said(f"exempt = {entry}\n", LOGNAME="someone") == LINE, entry  # LOGNAME must not count as the name
