"""Compile the profiling libraries: `python shim/build_cupti.py` makes libcupti.so.12 and .13.

They lie in build/guest/cupti/12 and 13. One source, compiled twice with the generated layouts of a major each. Used by
the Makefile and by setup.py.
"""

import sys
from pathlib import Path

from native import GEN, LIBRARIES, ROOT, Toolchain, is_older, options, run

GENERATED = GEN / "cupti"
MAJORS = (12, 13)
INCLUDES = [GENERATED, ROOT / "protocol/c", *(ROOT / "shim" / name for name in ("base", "connect", "cupti"))]
SHARED = [ROOT / "shim/base/vgs_log.c", ROOT / "shim/base/vgs_mark.c", GENERATED / "vgs_cupti_tables.c"]


def build(out: Path, toolchain: Toolchain) -> None:
    """Build both into folders of `out`."""
    for major in MAJORS:
        generated, soname = GENERATED / str(major), f"libcupti.so.{major}"
        sources = [*sorted(generated.glob("*.c")), *sorted((ROOT / "shim/cupti").glob("*.c")), *SHARED]
        built = toolchain.compile(sources, toolchain.objects(f"cupti-{major}"), [generated, *INCLUDES])
        parts, script = [built[source] for source in sources], generated / "libcupti.map"
        library = out / str(major) / soname
        library.parent.mkdir(parents=True, exist_ok=True)
        if is_older(library, [script, Path(__file__), *parts]):
            # libcuda keeps pointers to its functions: it stays loaded.
            words: list[str | Path] = [
                f"-Wl,-soname,{soname}",
                f"-Wl,--version-script={script}",
                "-Wl,-z,nodelete",
                *parts,
                "-ldl",
            ]
            toolchain.link(library, words)


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    given = options(__doc__, LIBRARIES / "cupti").parse_args()
    return run("shim/build_cupti.py", lambda: build(given.out, Toolchain.from_environment(given.sanitize)))


if __name__ == "__main__":
    sys.exit(main())
