"""Compile the runtime libraries: `python shim/build_cudart.py` makes libcudart.so.11.0, .12 and .13.

They lie in build/guest/cudart/11, 12 and 13: a program may be given one without the others. One source, compiled three
times with the generated headers of a major each. Used by the Makefile and by setup.py.
"""

import sys
from pathlib import Path

from native import GEN, LIBRARIES, ROOT, Toolchain, is_older, options, run

GENERATED = GEN / "cudart"
SONAMES = {11: "libcudart.so.11.0", 12: "libcudart.so.12", 13: "libcudart.so.13"}
INCLUDES = [GENERATED, ROOT / "protocol/c", *(ROOT / "shim" / name for name in ("base", "connect", "cudart"))]
# The log, the mark, the texts of the driver's errors, and their names.
SHARED = [*sorted((ROOT / "shim/base").glob("*.c")), GENERATED / "vgs_rt_driver_names.c"]


def build(out: Path, toolchain: Toolchain) -> None:
    """Build the three into folders of `out`."""
    for major, soname in SONAMES.items():
        generated = GENERATED / str(major)
        sources = [*sorted(generated.glob("*.c")), *sorted((ROOT / "shim/cudart").glob("*.c")), *SHARED]
        built = toolchain.compile(sources, toolchain.objects(f"cudart-{major}"), [generated, *INCLUDES])
        parts, script = [built[source] for source in sources], generated / "libcudart.map"
        library = out / str(major) / soname
        library.parent.mkdir(parents=True, exist_ok=True)
        if is_older(library, [script, Path(__file__), *parts]):
            toolchain.link(library, [f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}", *parts, "-ldl"])


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    given = options(__doc__, LIBRARIES / "cudart").parse_args()
    return run("shim/build_cudart.py", lambda: build(given.out, Toolchain.from_environment(given.sanitize)))


if __name__ == "__main__":
    sys.exit(main())
