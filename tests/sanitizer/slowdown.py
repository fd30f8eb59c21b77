"""How much slower the profiler and each tool make the kernels of tests/bench:
`python -m tests.sanitizer.slowdown`. Medians; the plain
run and the tools take turns on the same machine."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "daemon")]

from vgpud.cli.private_daemon import PrivateDaemon  # noqa: E402

from tests.bench import kernels  # noqa: E402

TURNS = 3
TOOLS = ("plain", "profile", "memcheck", "initcheck", "racecheck", "synccheck")
SETTINGS = {"plain": "", "profile": "profile = true\n"}


def main() -> None:
    """Print a row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", type=Path, help="tests/bench/kernels.cu, compiled elsewhere")
    parser.add_argument("--processors", type=int, help="how many to use (all)")
    options = parser.parse_args()
    if options.processors:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.processors])
    program = options.program or kernels.BUILT / "kernels"
    if not program.exists():
        kernels.build()
    times: dict[str, dict[str, list[float]]] = {tool: {} for tool in TOOLS}
    with ExitStack() as stack:
        endpoints = {}
        for tool in TOOLS:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="vgpu-slowdown-")))
            config = folder / "vgpud.toml"
            config.write_text(f'cache_dir = "{folder}"\n' + SETTINGS.get(tool, f'sanitize = ["{tool}"]\n'))
            endpoints[tool] = stack.enter_context(PrivateDaemon("h100", config=config, log=folder / "log")).endpoint
        for _ in range(TURNS):
            for tool, endpoint in endpoints.items():
                env = {**os.environ, "VGPU_ENDPOINT": str(endpoint), "LD_LIBRARY_PATH": f"{ROOT}/build/guest"}
                done = subprocess.run([program], env=env, capture_output=True, text=True, timeout=600, check=True)
                for line in done.stdout.splitlines():
                    name, seconds, *_ = line.split()
                    times[tool].setdefault(name, []).append(float(seconds))
    print(f"{'kernel':<12}{'plain':>12}" + "".join(f"{tool:>12}" for tool in TOOLS[1:]))
    for name, plain in times["plain"].items():
        base = statistics.median(plain)
        ratios = "".join(f"{statistics.median(times[tool][name]) / base:>11.1f}x" for tool in TOOLS[1:])
        print(f"{name:<12}{base * 1e3:>9.2f} ms{ratios}")


if __name__ == "__main__":
    main()
