"""A program that imports functions which this runtime lacks gets a message at its start (GD9, GR5 of issue 13)."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from subprocess import CompletedProcess

from tests.programs.toolchain import SHARED, cuda13

Run = Callable[..., CompletedProcess[str]]
OURS = ("--cudart", "vgpu")
LINE = re.compile(r"^vgpu\[\d+\]: \S+ may call what libcudart\.so\.13 of vgpu does not .*: (.*)$", re.MULTILINE)


# Run a program with stdout and stderr on a terminal; the terminal's text is copied to stdout.
TERMINAL = [sys.executable, "-c", "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"]


def test_the_missing_functions_are_named_once_before_any_is_called(vgpu_run: Run) -> None:
    program = cuda13().build("graph_nodes", SHARED)
    text = vgpu_run([*TERMINAL, program], options=OURS).stdout.replace("\r\n", "\n")
    [names] = LINE.findall(text)
    assert "cudaGraphAddNode" in names
    assert text.index("may call") < text.index("is not implemented")
    assert "may call" not in vgpu_run([*TERMINAL, program], options=OURS, env={"VGPU_LOG": "off"}).stdout


def test_where_nobody_looks_it_is_in_the_log(vgpu_run: Run) -> None:
    """Without a terminal, a program may be parsing stderr (case D05), and most programs never call what they import."""
    program = cuda13().build("graph_nodes", SHARED)
    assert LINE.findall(vgpu_run([program], options=OURS).stderr) == []
    assert len(LINE.findall(vgpu_run([program], options=OURS, env={"VGPU_LOG": "error"}).stderr)) == 1


def test_a_program_that_finds_all_is_told_nothing(vgpu_run: Run) -> None:
    done = vgpu_run([cuda13().build("saxpy", SHARED)], options=OURS, env={"VGPU_LOG": "error"})
    assert (done.returncode, LINE.findall(done.stderr)) == (0, [])
