"""pytest for CI: what fails is run once more, alone, with the machine to itself.

A test that fails again fails the run. One that passes then is named at the end, and its first failure stands above: it
depends on the machine's speed or on chance, and is mended before other work. More than MOST failures are not chance,
and neither is a run that did not end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

MOST = 3
_FAILED = Path(".pytest_cache/v/cache/lastfailed")  # of pytest's cache plugin
_TESTS_FAILED = 1  # pytest's exit status, when it has run everything


def run(*arguments: str) -> int:
    """Pytest's exit status."""
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def main(arguments: list[str]) -> int:
    """The exit status for these arguments of pytest."""
    _FAILED.unlink(missing_ok=True)
    if (code := run(*arguments)) != _TESTS_FAILED:
        return code
    failed: list[str] = sorted(json.loads(_FAILED.read_text()))
    if len(failed) > MOST:
        return code
    if (code := run(*failed)) == 0:
        sys.stdout.write(
            "PASSED ONLY WHEN RUN AGAIN, to be mended first:\n" + "".join(f"  {name}\n" for name in failed)
        )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
