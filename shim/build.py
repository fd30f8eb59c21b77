"""Compile the guest library: `python shim/build.py` makes daemon/vgpud/_lib/libcuda.so.580.159.04 and its links.

Used by the Makefile and by setup.py, so it needs nothing but Python and a C compiler. Objects whose sources, headers
and command line have not changed are kept.
"""

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GEN = ROOT / "build/gen"
RELEASE = "580.159.04"  # the driver release we answer as; file names carry it, as NVIDIA's do

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
CFLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", *WARNINGS]
INCLUDES = [f"-I{path}" for path in (GEN, ROOT / "protocol/c", ROOT / "shim/common", ROOT / "shim/cuda")]
LDFLAGS = [
    "-shared",
    "-Wl,-soname,libcuda.so.1",
    f"-Wl,--version-script={GEN / 'libcuda.map'}",
    "-Wl,-z,relro,-z,now",
    "-Wl,--as-needed",
]


def sources() -> list[Path]:
    """All C files of the library: generated ones first."""
    return [
        *sorted(GEN.glob("vgs_*.c")),
        *sorted((ROOT / "shim/common").glob("*.c")),
        *sorted((ROOT / "shim/cuda").glob("*.c")),
    ]


def is_current(target: Path, depfile: Path, command: list[str], command_file: Path) -> bool:
    """Whether `target` was built by this very command from files that have not changed since."""
    if not (target.exists() and depfile.exists() and command_file.exists()):
        return False
    if command_file.read_text() != shlex.join(command):
        return False
    dependencies = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime_ns
    return all(Path(name).exists() and Path(name).stat().st_mtime_ns <= built for name in dependencies)


def compile_one(source: Path, objects: Path, compiler: list[str], flags: list[str]) -> tuple[Path, bool]:
    """Compile one file if needed.

    Returns:
        The object file, and whether it was compiled now.
    Raises:
        subprocess.CalledProcessError: the compiler refused; it has said why on stderr.
    """
    target = objects / f"{source.parent.name}-{source.stem}.o"
    depfile, command_file = target.with_suffix(".d"), target.with_suffix(".cmd")
    command = [*compiler, *flags, *INCLUDES, "-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(target)]
    if is_current(target, depfile, command, command_file):
        return target, False
    subprocess.run(command, check=True)
    command_file.write_text(shlex.join(command))
    return target, True


def link(library: Path, objects: list[Path], compiler: list[str], flags: list[str]) -> None:
    """Link to a new file and move it into place, so that running programs keep the library they mapped."""
    fresh = library.with_suffix(".new")
    subprocess.run([*compiler, *flags, *map(str, objects), "-pthread", "-o", str(fresh)], check=True)
    os.replace(fresh, library)
    for name in ("libcuda.so.1", "libcuda.so"):
        alias = library.parent / name
        alias.unlink(missing_ok=True)
        alias.symlink_to(library.name)


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "daemon/vgpud/_lib", help="folder of the library")
    parser.add_argument("--sanitize", default="", help="sanitizers, as in -fsanitize=")
    options = parser.parse_args()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags, ldflags = (
        [*CFLAGS, *shlex.split(os.environ.get("CFLAGS", ""))],
        [*LDFLAGS, *shlex.split(os.environ.get("LDFLAGS", ""))],
    )
    if options.sanitize:
        flags += [f"-fsanitize={options.sanitize}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
        ldflags.append(f"-fsanitize={options.sanitize}")
    else:
        ldflags.append("-Wl,-z,defs")  # a sanitizer's symbols come from its preloaded runtime
    if not sources():
        print("shim/build.py: no sources; run `python -m protocol.gen` first", file=sys.stderr)
        return 1
    objects = ROOT / "build" / ("shim" if not options.sanitize else "shim-" + options.sanitize.replace(",", "-"))
    objects.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            results = list(pool.map(lambda source: compile_one(source, objects, compiler, flags), sources()))
        library = options.out / f"libcuda.so.{RELEASE}"
        inputs = [GEN / "libcuda.map", Path(__file__), *(built for built, _ in results)]
        if not library.exists() or any(path.stat().st_mtime_ns > library.stat().st_mtime_ns for path in inputs):
            link(library, [built for built, _ in results], compiler, ldflags)
    except FileNotFoundError as error:
        print(
            f"shim/build.py: {error.filename or error} not found: on Debian and Ubuntu, apt-get install gcc libc6-dev",
            file=sys.stderr,
        )
        return 1
    except subprocess.CalledProcessError as error:
        print(f"shim/build.py: {shlex.join(map(str, error.cmd))} failed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
