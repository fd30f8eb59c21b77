"""Compile the runtime libraries: `python shim/build_cudart.py` makes libcudart.so.11.0, .12 and .13.

They lie in vgpud/_lib/cudart/11, 12 and 13: a program may be given one without the others. One source, compiled three
times with the generated headers of a major each. Used by the Makefile and by setup.py, so it
needs nothing but Python and a C compiler; what has not changed is kept.
"""

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from build import CFLAGS, ROOT, is_current

GEN = ROOT / "build/gen/cudart"
SONAMES = {11: "libcudart.so.11.0", 12: "libcudart.so.12", 13: "libcudart.so.13"}
# Not built from shim/cudart: the log, the mark, and the words for the driver's errors.
SHARED = [
    ROOT / "shim/common/vgs_log.c",
    ROOT / "shim/common/vgs_mark.c",
    ROOT / "shim/cuda/vgs_error_text.c",
    GEN / "vgs_rt_driver_names.c",
]
LDFLAGS = ["-shared", "-Wl,-z,relro,-z,now", "-Wl,--as-needed"]


def sources(major: int) -> list[Path]:
    """All C files of one library: generated ones first."""
    return [*sorted((GEN / str(major)).glob("*.c")), *sorted((ROOT / "shim/cudart").glob("*.c")), *SHARED]


def compile_one(source: Path, major: int, objects: Path, compiler: list[str], flags: list[str]) -> Path:
    """Compile one file for one major if needed; returns the object file.

    Raises:
        subprocess.CalledProcessError: the compiler refused; it has said why on stderr.
    """
    target = objects / f"{major}-{source.stem}.o"
    depfile, command_file = target.with_suffix(".d"), target.with_suffix(".cmd")
    folders = (
        GEN / str(major),
        GEN,
        ROOT / "protocol/c",
        ROOT / "shim/common",
        ROOT / "shim/cuda",
        ROOT / "shim/cudart",
    )
    command = [*compiler, *flags, *(f"-I{folder}" for folder in folders)]
    command += ["-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(target)]
    if not is_current(target, depfile, command, command_file):
        subprocess.run(command, check=True)
        command_file.write_text(shlex.join(command))
    return target


def link(library: Path, major: int, objects: list[Path], compiler: list[str], flags: list[str]) -> None:
    """Link to a new file and move it into place, so that running programs keep the library they mapped."""
    fresh = library.with_suffix(".new")
    names = [f"-Wl,-soname,{SONAMES[major]}", f"-Wl,--version-script={GEN / str(major) / 'libcudart.map'}"]
    subprocess.run([*compiler, *flags, *names, *map(str, objects), "-pthread", "-ldl", "-o", str(fresh)], check=True)
    os.replace(fresh, library)


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "daemon/vgpud/_lib/cudart", help="folder of the libraries")
    parser.add_argument("--sanitize", default="", help="sanitizers, as in -fsanitize=")
    options = parser.parse_args()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags = [*CFLAGS, *shlex.split(os.environ.get("CFLAGS", ""))]
    ldflags = [*LDFLAGS, *shlex.split(os.environ.get("LDFLAGS", ""))]
    if options.sanitize:
        flags += [f"-fsanitize={options.sanitize}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
        ldflags.append(f"-fsanitize={options.sanitize}")
    else:
        ldflags.append("-Wl,-z,defs")  # a sanitizer's symbols come from its preloaded runtime
    objects = ROOT / "build" / ("cudart" if not options.sanitize else "cudart-" + options.sanitize.replace(",", "-"))
    objects.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        for major, soname in SONAMES.items():
            with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
                compiled = pool.map(lambda s, m=major: compile_one(s, m, objects, compiler, flags), sources(major))
                built = list(compiled)
            library = options.out / str(major) / soname
            library.parent.mkdir(parents=True, exist_ok=True)
            inputs = [GEN / str(major) / "libcudart.map", Path(__file__), *built]
            if not library.exists() or any(path.stat().st_mtime_ns > library.stat().st_mtime_ns for path in inputs):
                link(library, major, built, compiler, ldflags)
    except FileNotFoundError as error:
        what = error.filename or error
        print(
            f"shim/build_cudart.py: {what} not found; a compiler is needed, and `python -m protocol.gen` first",
            file=sys.stderr,
        )
        return 1
    except subprocess.CalledProcessError as error:
        print(f"shim/build_cudart.py: {shlex.join(map(str, error.cmd))} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
