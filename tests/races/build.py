"""Build vgt_races: client, worker and simulator in one program: `python -m tests.races.build [--sanitize thread]`.

Objects whose sources, headers and command line have not changed are kept, under build/races-SANITIZER.
"""

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shim.build import GEN, LIBRARIES, compile_one

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
FLAGS = ["-std=gnu11", "-O1", "-g", "-pthread", "-fno-omit-frame-pointer", "-fvisibility=hidden"]
INCLUDES = [f"-I{ROOT / folder}" for folder in ("daemon/executor", "daemon/simulator")]
# Both ends at one address, and processors to spare: see vgt_host.c.
WRAPPED = [f"-Wl,--wrap={name}" for name in ("mmap", "munmap", "sysconf")]
# ThreadSanitizer has its own tables where pinned and device memory lie; it sees no fences, none of which stands for an
# acquire or a release.
LAYOUT = [
    "-DVGW_PINNED_BEGIN=0x4000000000ull",
    "-DVGW_PINNED_NBYTES=0x1000000000ull",
    "-DVGX_SIM_ARENA_BASE=0x1000000000ull",
    "-DVGX_SIM_ARENA_NBYTES=0x1000000000ull",
]


def sources() -> list[Path]:
    """Every C file of the guest's library, of the executor and of the simulator, and ours."""
    library = next(library for library in LIBRARIES if library.stem == "libcuda")
    worker = [path for folder in ("executor", "simulator") for path in sorted((ROOT / "daemon" / folder).glob("*.c"))]
    kernels = ROOT / "tests/simulator/vgt_kernels.c"
    return [*library.sources(), *worker, *sorted(GEN.glob("vgx_*.c")), kernels, *sorted(HERE.glob("*.c"))]


def build(sanitize: str = "") -> Path:
    """The program's path.

    Raises:
        subprocess.CalledProcessError: the compiler refused.
    """
    folder = ROOT / "build" / f"races-{sanitize.replace(',', '-') or 'plain'}"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = [*FLAGS, *INCLUDES]
    if sanitize:
        flags.append(f"-fsanitize={sanitize}")
    if "thread" in sanitize:
        flags += [*LAYOUT, "-Wno-tsan"]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        objects = list(pool.map(lambda source: compile_one(source, folder, compiler, flags), sources()))
    target = folder / "vgt_races"
    if not target.exists() or any(path.stat().st_mtime_ns > target.stat().st_mtime_ns for path in objects):
        command = [*compiler, *flags, *WRAPPED, *map(str, objects), "-ldl", "-lm", "-o", str(target)]
        subprocess.run(command, check=True)
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitize", default="thread", help="as in -fsanitize=; empty: none")
    try:
        print(build(parser.parse_args().sanitize))
    except subprocess.CalledProcessError:
        sys.exit(1)


if __name__ == "__main__":
    main()
