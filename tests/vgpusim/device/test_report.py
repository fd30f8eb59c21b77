"""Which findings the sanitizer reports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_kernel_with_many_findings_hides_no_other(library_path: Path) -> None:
    """In a process of its own, as findings are counted by process."""
    script = f"import ctypes; assert ctypes.CDLL({str(library_path)!r}).vgt_reports_of_two_kernels() == 10500"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
