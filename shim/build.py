"""Compile the guest libraries: `python shim/build.py` makes libcuda and libnvidia-ml, and their links, in vgpud/_lib.

Used by the Makefile and by setup.py, so it needs nothing but Python and a C compiler. Objects whose sources, headers
and command line have not changed are kept.
"""

import argparse
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GEN = ROOT / "build/gen"
RELEASE = "580.159.04"  # the driver release we answer as; file names carry it, as NVIDIA's do

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
# Where the sources lie is kept out of the libraries: the same commit gives the same bytes.
PREFIX = f"-ffile-prefix-map={ROOT}=."
CFLAGS = ["-std=gnu11", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-pthread", PREFIX, *WARNINGS]
INCLUDES = [
    f"-I{path}"
    for path in (
        GEN,
        GEN / "nvml",
        ROOT / "protocol/c",
        ROOT / "shim/common",
        ROOT / "shim/cuda",
        ROOT / "shim/nvml",
        ROOT / "shim/notice",
    )
]
LDFLAGS = ["-shared", "-Wl,-z,relro,-z,now", "-Wl,--as-needed"]


@dataclass(frozen=True)
class Library:
    """One guest library. It is complete alone: what several need of shim/common is linked into each."""

    stem: str
    generated: Path  # folder of its generated C files and version script
    folder: str  # of its own C files
    common: tuple[str, ...] = ("*",)  # files of shim/common
    notice: tuple[str, ...] = ()  # files of shim/notice

    @property
    def map(self) -> Path:
        """The version script."""
        return self.generated / f"{self.stem}.map"

    def sources(self) -> list[Path]:
        """All its C files: generated ones first."""
        return [
            *sorted(self.generated.glob("vgs_*.c")),
            *sorted(path for name in self.common for path in (ROOT / "shim/common").glob(f"{name}.c")),
            *sorted(path for name in self.notice for path in (ROOT / "shim/notice").glob(f"{name}.c")),
            *sorted((ROOT / self.folder).glob("*.c")),
        ]


LIBRARIES = (
    Library("libcuda", GEN, "shim/cuda", notice=("vgs_notice*",)),
    Library(
        "libnvidia-ml",
        GEN / "nvml",
        "shim/nvml",
        ("vgs_endpoint", "vgs_hello", "vgs_inventory", "vgs_log", "vgs_mark", "vgs_msgpack", "vgs_socket", "vgs_stub"),
    ),
)


def is_current(target: Path, depfile: Path, command: list[str], command_file: Path) -> bool:
    """Whether `target` was built by this very command from files that have not changed since."""
    if not (target.exists() and depfile.exists() and command_file.exists()):
        return False
    if command_file.read_text() != shlex.join(command):
        return False
    dependencies = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime_ns
    return all(Path(name).exists() and Path(name).stat().st_mtime_ns <= built for name in dependencies)


def compile_one(source: Path, objects: Path, compiler: list[str], flags: list[str]) -> Path:
    """Compile one file if needed; returns its object file.

    Raises:
        subprocess.CalledProcessError: the compiler refused; it has said why on stderr.
    """
    target = objects / f"{source.parent.name}-{source.stem}.o"
    depfile, command_file = target.with_suffix(".d"), target.with_suffix(".cmd")
    command = [*compiler, *flags, *INCLUDES, "-MMD", "-MF", str(depfile), "-c", str(source), "-o", str(target)]
    if is_current(target, depfile, command, command_file):
        return target
    subprocess.run(command, check=True)
    command_file.write_text(shlex.join(command))
    return target


def link(library: Library, target: Path, objects: list[Path], compiler: list[str], flags: list[str]) -> None:
    """Link to a new file and move it into place, so that running programs keep the library they mapped."""
    fresh = target.with_suffix(".new")
    named = [f"-Wl,-soname,{library.stem}.so.1", f"-Wl,--version-script={library.map}"]
    subprocess.run([*compiler, *flags, *named, *map(str, objects), "-pthread", "-o", str(fresh)], check=True)
    os.replace(fresh, target)
    for name in (f"{library.stem}.so.1", f"{library.stem}.so"):
        alias = target.parent / name
        alias.unlink(missing_ok=True)
        alias.symlink_to(target.name)


def build_probe(out: Path, objects: Path, compiler: list[str], flags: list[str]) -> None:
    """The program that `vgpu doctor` asks the libraries with, beside them."""
    source, target = ROOT / "shim/probe/vgs_probe.c", out / "vgpu-probe"
    depfile, command_file = objects / "vgpu-probe.d", objects / "vgpu-probe.cmd"
    fresh = target.with_suffix(".new")
    command = [*compiler, *flags, "-MMD", "-MF", str(depfile), "-MT", str(target), str(source)]
    command += ["-ldl", "-o", str(fresh)]
    if not is_current(target, depfile, command, command_file):
        subprocess.run(command, check=True)
        os.replace(fresh, target)
        command_file.write_text(shlex.join(command))


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "daemon/vgpud/_lib", help="folder of the libraries")
    parser.add_argument("--sanitize", default="", help="sanitizers, as in -fsanitize=")
    options = parser.parse_args()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    flags, ldflags = (
        [*CFLAGS, *shlex.split(os.environ.get("CFLAGS", ""))],
        [*LDFLAGS, *shlex.split(os.environ.get("LDFLAGS", ""))],
    )
    if options.sanitize:
        flags += [f"-fsanitize={options.sanitize}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
        if options.sanitize == "thread":  # it sees no fences; none of ours stands for an acquire or a release
            flags.append("-Wno-tsan")
        ldflags.append(f"-fsanitize={options.sanitize}")
    else:
        ldflags.append("-Wl,-z,defs")  # a sanitizer's symbols come from its preloaded runtime
    if not all(library.map.exists() for library in LIBRARIES):
        print("shim/build.py: no sources; run `python -m protocol.gen` first", file=sys.stderr)
        return 1
    objects = ROOT / "build" / ("shim" if not options.sanitize else "shim-" + options.sanitize.replace(",", "-"))
    objects.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        sources = sorted({source for library in LIBRARIES for source in library.sources()})
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            built = dict(
                zip(
                    sources,
                    pool.map(lambda source: compile_one(source, objects, compiler, flags), sources),
                    strict=True,
                )
            )
        for library in LIBRARIES:
            parts = [built[source] for source in library.sources()]
            target = options.out / f"{library.stem}.so.{RELEASE}"
            inputs = [library.map, Path(__file__), *parts]
            if not target.exists() or any(path.stat().st_mtime_ns > target.stat().st_mtime_ns for path in inputs):
                link(library, target, parts, compiler, ldflags)
        build_probe(options.out, objects, compiler, flags)
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
