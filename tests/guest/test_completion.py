"""Shells complete vgpu's commands."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner
from vgpu_guest.cli import vgpu

from tests.conftest import merged
from tests.patience import PATIENCE_S


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str) -> None:
    result = CliRunner().invoke(vgpu, ["completion", shell])
    assert result.exit_code == 0
    assert "_VGPU_COMPLETE" in result.output


def test_the_command_answers_what_the_script_asks() -> None:
    program = "from vgpu_guest.cli import vgpu; vgpu(prog_name='vgpu')"
    asked = {"_VGPU_COMPLETE": "bash_complete", "COMP_WORDS": "vgpu rep", "COMP_CWORD": "1", "PATH": os.defpath}
    done = subprocess.run(
        [sys.executable, "-c", program], env=merged(asked), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout.split() == ["plain,repair"], done.stderr
