"""Build vgt_races: client, worker and simulator in one program: `python -m tests.races.build [--sanitize thread]`."""

import argparse
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "shim"))  # before an installed package of the name `build`

from build import GUEST_LIBRARIES, INCLUDES  # noqa: E402
from native import GEN, Toolchain, is_older  # noqa: E402

HERE = Path(__file__).parent
# So that both sides map a file at one address, and see several processors: vgt_host.c.
WRAPPED = [f"-Wl,--wrap={name}" for name in ("mmap", "munmap", "sysconf")]
# A worker exits even if a session's threads have not ended in time. This process goes on, so it waits longer for them.
SESSIONS = ("-DVGX_EXIT_TIMEOUT_S=120",)
# ThreadSanitizer has its own tables at the usual addresses of pinned and device memory.
LAYOUT = (
    "-DVGS_CLAIMS=0",
    "-DVGW_PINNED_BEGIN=0x4000000000ull",
    "-DVGW_PINNED_NBYTES=0x800000000ull",
    "-DVGW_DEVICE_MEMORY_BEGIN=0x1000000000ull",
    "-DVGW_DEVICE_MEMORY_NBYTES=0x1000000000ull",
    "-DVGX_SIM_SLOTS_MAX=200u",
    "-DVGX_SIM_SLOT_UNIT=0x4000000ull",
)


def sources() -> list[Path]:
    """Every C file of the guest's library, of the executor, of the simulator, and of this folder."""
    library = next(library for library in GUEST_LIBRARIES if library.stem == "libcuda")
    folders = ("executor", "vgpusim/device")
    worker = [path for folder in folders for path in sorted((ROOT / "daemon" / folder).glob("*.c"))]
    kernels = ROOT / "tests/vgpusim/device/vgt_kernels.c"
    return [*library.sources(), *worker, *sorted(GEN.glob("vgx_*.c")), kernels, *sorted(HERE.glob("*.c"))]


def build(sanitize: str = "") -> Path:
    """Build the program; return its path.

    Raises:
        subprocess.CalledProcessError: the compiler failed.
    """
    toolchain = Toolchain.from_environment(sanitize)
    layout = LAYOUT if "thread" in sanitize else ()
    toolchain = replace(toolchain, cflags=(*toolchain.cflags, *SESSIONS, *layout))
    folder = toolchain.objects("races")
    includes = [*INCLUDES, ROOT / "daemon/executor", ROOT / "daemon/vgpusim/device"]
    objects = list(toolchain.compile(sources(), folder, includes).values())
    target = folder / "vgt_races"
    if is_older(target, objects):
        flags = [*toolchain.cflags, *WRAPPED]
        subprocess.run([*toolchain.compiler, *flags, *map(str, objects), "-ldl", "-lm", "-o", str(target)], check=True)
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
