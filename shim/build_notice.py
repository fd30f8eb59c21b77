"""Compile the notice for other vendors' drivers: `python shim/build_notice.py` makes notice/libvgpu-notice.so and
notice/libvgpu-next.so in build/guest.

The first is a libcuda.so.1 in front of another (shim/notice/vgs_next_libcuda.c), found at the path that --next gives.
The second, which it needs, holds nothing but that path, as a DT_AUXILIARY: the loader maps the driver behind the notice
if it exists and continues without it otherwise, so that programs keep running after a driver was removed. vgpu's own
libcuda contains the notice and needs neither. Used by the Makefile and by setup.py.
"""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from build import INCLUDES
from native import LIBRARIES, ROOT, Toolchain, options, run

SOURCES = sorted((ROOT / "shim/notice").glob("*.c"))
# Absolute: the loader refuses $ORIGIN in programs that run with more rights than their user's.
NEXT = "/usr/lib/vgpu/notice/next/libcuda.so.1"
STUB = "libvgpu-next.so"
NAMES = ("cuInit", "cuGetProcAddress", "cuGetProcAddress_v2")


def build(out: Path, after: str, toolchain: Toolchain) -> None:
    """Build both into `out`; the notice is put in front of the libcuda at the path `after`."""
    objects, folder = toolchain.objects("shim"), ROOT / "build/notice"
    for path in (out, folder):
        path.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:  # tests build for different paths, perhaps concurrently
        fcntl.flock(lock, fcntl.LOCK_EX)
        parts = toolchain.compile(SOURCES, objects, INCLUDES).values()
        stub, script = out / STUB, folder / "libvgpu-notice.map"
        empty = ["-shared", "-nostdlib", "-xc", os.devnull, f"-Wl,-soname,{STUB},--auxiliary,{after}", "-o", str(stub)]
        subprocess.run([*toolchain.compiler, *empty], check=True)
        script.write_text("{\n  global:\n" + "".join(f"    {name};\n" for name in NAMES) + "  local:\n    *;\n};\n")
        # The loader ignores $ORIGIN in programs that run with more rights than their user's. There it finds the second
        # library as it finds the notice: through its cache (set-up --loader).
        named = [f"-Wl,-soname,libcuda.so.1,--version-script={script},--enable-new-dtags,-rpath,$ORIGIN"]
        needed = ["-Wl,--push-state,--no-as-needed", str(stub), "-Wl,--pop-state"]
        toolchain.link(out / "libvgpu-notice.so", [*named, *parts, *needed])


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    parser = options(__doc__, LIBRARIES / "notice")
    parser.add_argument("--next", default=NEXT, help=f"path of the libcuda it stands before (default: {NEXT})")
    given = parser.parse_args()
    toolchain = Toolchain.from_environment(given.sanitize)
    return run("shim/build_notice.py", lambda: build(given.out, given.next, toolchain))


if __name__ == "__main__":
    sys.exit(main())
