"""How much slower the profiler and each tool make the kernels of tests/bench: `python -m tests.sanitizer.slowdown
[KERNEL...]` prints two rows for each kernel, by processor time and by the clock, as soon as they are measured.

A number is the least of the kernel's launches under the tool, divided by that of plain runs, which are measured before
and after the tools; the mean of the two counts. By the clock initcheck is slower still on several processors, as it
runs on one thread, and so is racecheck where blocks have no barriers; on a busy machine only processor time says
something. What is not begun within --seconds is left out."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon")]

from vgpud.cli.private_daemon import PrivateDaemon  # noqa: E402

from tests.bench import kernels  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vgpu_guest.endpoint import UnixEndpoint

KERNELS = (
    *("saxpy", "matmul", "reduction", "reduction_tree", "histogram"),
    *("copy_bytes", "copy_halves", "copy_words", "copy_wide"),
)
TOOLS = ("profile", "memcheck", "initcheck", "racecheck", "synccheck")
SETTINGS = {"plain": "", "profile": "profile = true\n"}


def processes(endpoint: UnixEndpoint) -> list[Path]:
    """The folders in /proc of the vgpud behind the endpoint and of its workers."""
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[path.name] = (path / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if str(Path(endpoint.path).parent).encode() in (path / "cmdline").read_bytes().split(b"\0"):
                found.append(path.name)
        except OSError:
            continue  # it has ended
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid and child not in found]
    return [Path("/proc") / pid for pid in found]


def processor_s(folders: Sequence[Path]) -> dict[Path, float]:
    """The processor time that each thread of these processes has used so far."""
    used_s = {}
    for folder in folders:
        with suppress(OSError):  # the process has ended
            for thread in folder.glob("task/*/schedstat"):
                with suppress(OSError):  # the thread has ended
                    used_s[thread] = int(thread.read_text().split()[0]) / 1e9
    return used_s


def measure(program: Path, kernel: str, endpoint: UnixEndpoint) -> tuple[float, float]:
    """Run a kernel, in a process of its own. Returns the least processor time and duration of a launch in seconds."""
    env = {**os.environ, "VGPU_ENDPOINT": str(endpoint), "LD_LIBRARY_PATH": f"{ROOT}/build/guest", "BENCH_STEPS": "1"}
    launches = []
    with subprocess.Popen([program, kernel], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        line = run.stdout.readline()
        folders = processes(endpoint)
        while True:
            before_s = processor_s(folders)
            try:
                run.stdin.write("\n")
                run.stdin.flush()
            except BrokenPipeError:
                with suppress(BrokenPipeError):
                    run.stdin.close()
                break
            line = run.stdout.readline()
            if not line or line.startswith(kernel):
                break
            after_s = processor_s(folders)
            used_s = sum(after_s[thread] - before_s.get(thread, 0) for thread in after_s)
            launches.append((used_s, float(line)))
    if not launches or run.returncode:
        raise SystemExit(f"slowdown: {kernel} failed")
    return min(used_s for used_s, _ in launches), min(wall_s for _, wall_s in launches)


def main() -> None:
    """Print the rows of each kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", default=KERNELS, metavar="KERNEL", help=f"some of: {' '.join(KERNELS)}")
    parser.add_argument("--program", type=Path, help="tests/bench/kernels.cu, compiled elsewhere")
    parser.add_argument("--processors", type=int, help="how many to use (all)")
    parser.add_argument("--seconds", type=float, default=140, help="begin no measurement later than this (140)")
    options = parser.parse_args()
    begin = time.monotonic()
    if options.processors:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.processors])
    program = options.program or kernels.BUILT / "kernels"
    if not options.program:
        kernels.build_cuda(kernels.BUILT, "kernels")
    with ExitStack() as stack:
        endpoints = {}
        for tool in ("plain", *TOOLS):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-slowdown-")))
            config = folder / "vgpud.toml"
            config.write_text(f'cache_dir = "{folder}"\n' + SETTINGS.get(tool, f'sanitize = ["{tool}"]\n'))
            endpoints[tool] = stack.enter_context(PrivateDaemon("h100", config=config, log=folder / "log")).endpoint
        print(f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f} before")
        print(f"{'kernel':<28}{'plain':>12}" + "".join(f"{tool:>12}" for tool in TOOLS), flush=True)
        for kernel in options.kernels:
            if time.monotonic() - begin > options.seconds:
                print(f"{kernel:<16}  left out: --seconds are over")
                continue
            times = {tool: measure(program, kernel, endpoint) for tool, endpoint in endpoints.items()}
            again = measure(program, kernel, endpoints["plain"])
            for i, what in enumerate(("processors", "wall")):
                plain = (times["plain"][i] + again[i]) / 2
                ratios = "".join(f"{times[tool][i] / plain:>11.1f}x" for tool in TOOLS)
                print(f"{kernel:<16}{what:<12}{plain * 1e3:>9.2f} ms{ratios}", flush=True)


if __name__ == "__main__":
    main()
