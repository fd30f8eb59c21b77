"""Lines of the executor that the search and tests with workers of their own execute: the latter, what needs a driver or
a confined process.

`python -m tests.fuzz.worker_lines [--search SECONDS] [--unite FILE] [TESTS ...]` (`make worker-lines`) builds the
extension with gcov in a copy of the checkout, runs the tests there, then the search (in_process.py), and prints of
every file what each of them and both together execute, and the floor: of the search (floor.tsv), or of both
(floor_workers.tsv). With `--no-tests --unite FILE` the tests' lines are those that were saved. The counts of
all processes are one file
(workers/vgt_shared_counts.c). `--save FILE` keeps the lines, as on a machine with a card, for `--unite`. Behind `--`
are pytest's arguments, as `-- -m gpu tests/gpu` on a card.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vgpud.cli.descendants import Descendants

from tests.fuzz.in_process import measure_lines
from tests.fuzz.lines import ROOT, Lines, executed_lines, table, united

PARTS = ("daemon", "guest", "protocol", "shim", "tests")
TESTS = (
    "tests/relayed",
    "tests/daemon/worker",
    "tests/daemon/executor",
    "tests/daemon/supervision/test_warm_workers.py",
)
BATCHES = -20
HERE = Path(__file__).parent
COUNTED = "--coverage -fprofile-update=atomic -O0 -fdata-sections -Wno-maybe-uninitialized"
WRITE = "import vgpud._executor"
REPORT_S = 10.0  # for pytest to report when it is interrupted


def copy_checkout(folder: Path) -> None:
    """Hard links, but for what is built anew."""
    for part in PARTS:
        shutil.copytree(ROOT / part, folder / part, copy_function=os.link, symlinks=True)
    for name in ("deploy", "pyproject.toml", "setup.py", "Makefile"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    for name in ("gen", "guest"):  # not as one link: the loader would find the checkout's libraries beside them
        shutil.copytree(ROOT / "build" / name, folder / "build" / name, copy_function=os.link, symlinks=True)


def build(folder: Path, counts: Path) -> Path:
    """Build the extension of the copy; return the folder of its objects. Raises CalledProcessError."""
    shutil.copy(HERE / "workers/vgt_shared_counts.c", folder / "daemon/executor")
    linked = f"-Wl,--wrap=__gcov_exit -Wl,-T,{HERE}/workers/vgt_shared_counts.ld"
    flags = f"{COUNTED} -DVGT_COUNTS_FILE='\"{counts}\"' {linked}"
    script = folder / "daemon/executor/build_ffi.py"
    subprocess.run([sys.executable, str(script)], check=True, cwd=folder, env=os.environ | {"VGPU_CFLAGS": flags})
    [objects] = [path for path in (folder / "build").iterdir() if path.name.startswith("executor")]
    return objects


def run(tests: list[str], limit_s: float | None) -> tuple[int, Lines]:
    """Run the tests in a copy, at most for `limit_s`; return pytest's exit status and the lines that all processes have
    executed."""
    folder = ROOT / "build" / f"worker-lines-{os.getpid()}"  # hard links need one file system
    counts = folder / "counts"
    temporary = Path(tempfile.mkdtemp(prefix="vgpu-lines-"))  # not in the copy, whose files workers may read
    folder.mkdir(parents=True)
    try:
        counts.touch(mode=0o666)
        counts.chmod(0o666)  # processes of other users map it
        copy_checkout(folder)
        objects = build(folder, counts)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment["PYTHONPATH"] = os.pathsep.join(
            [*(str(folder / part) for part in ("daemon", "guest", ".")), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={temporary}", *tests]
        status = run_limited(command, folder, environment, limit_s)
        environment["VGT_WRITE_COUNTS"] = "1"
        subprocess.run([sys.executable, "-c", WRITE], cwd=folder, env=environment, check=True)
        return status, executed_lines(objects, folder)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(temporary, ignore_errors=True)


def run_limited(command: list[str], folder: Path, environment: dict[str, str], limit_s: float | None) -> int:
    """Run a command; return its exit status, or 1 if it was ended after `limit_s`, with all that it has started."""
    below = Descendants()
    with subprocess.Popen(command, cwd=folder, env=environment) as process:
        try:
            return process.wait(limit_s)
        except subprocess.TimeoutExpired:
            print(f"the tests are ended after {limit_s} s", flush=True)
            end(process, below)
            return 1


def end(process: subprocess.Popen[bytes], below: Descendants) -> None:
    """Interrupt a program, then kill it with all that it has started: a worker that goes on would change the counts,
    and has files of the copy open."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(REPORT_S)
    except subprocess.TimeoutExpired:
        process.kill()
    process.wait()  # here, as Descendants reaps it without keeping its exit status
    while below.pids(process.pid):
        below.signal(process.pid, signal.SIGKILL)
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz.worker_lines")
    parser.add_argument("tests", nargs="*", default=TESTS, help=" ".join(TESTS))
    parser.add_argument("--search", type=float, default=BATCHES, metavar="SECONDS", help="below 0: that many batches")
    parser.add_argument("--no-tests", action="store_true", help="only --unite")
    parser.add_argument("--limit-s", type=float, help="of the tests")
    parser.add_argument("--save", type=Path, help="file of the lines")
    parser.add_argument("--unite", type=Path, nargs="*", default=[], help="files of --save, of the same sources")
    given = parser.parse_args()
    status, of_workers = (0, {}) if given.no_tests else run(list(given.tests), given.limit_s)
    if given.save:
        given.save.write_text(json.dumps(of_workers))
    for path in given.unite:
        saved = json.loads(path.read_text())
        of_workers = united(
            of_workers, {name: {int(line): hit for line, hit in seen.items()} for name, seen in saved.items()}
        )
    of_search: Lines = {}
    if given.search:
        [of_search] = measure_lines(given.search, seed=1)
    lines, lacking = table(of_search, of_workers)
    print("\n".join(lines))
    print(f"below the floor: {lacking}" if lacking else "all files reach their floor")
    return status or bool(lacking)


if __name__ == "__main__":
    sys.exit(main())
