"""tests/house/tidy.py looks at the files that it is given, and at nothing else."""

import subprocess
import sys
from subprocess import CompletedProcess

from tests.conftest import ROOT


def tidy(*names: str) -> CompletedProcess[str]:
    command = [sys.executable, "tests/house/tidy.py", *names]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_given_files_alone_are_checked() -> None:
    assert tidy("shim/base/vgs_mark.c").stdout == "clang-tidy: 1 of 1 files clean\n"


def test_a_file_that_is_not_checked_is_refused() -> None:
    refused = tidy("shim/base/vgs_mark.c", "tests/gpu/answers.c")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "tests/gpu/answers.c" in refused.stderr
