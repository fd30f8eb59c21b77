"""Common parts of the scripts that build C libraries and programs; they need only Python and a C compiler.

Objects whose sources, headers and command line have not changed are kept. What is linked goes to a new file that then
takes the old one's place, so that running programs keep the one they mapped.
"""

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GEN = ROOT / "build/gen"
LIBRARIES = ROOT / "build/guest"

_WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror")
# The libraries contain no path of the sources, so that the same commit gives the same bytes.
_PLACELESS = f"-ffile-prefix-map={ROOT}=."
_CFLAGS = ("-std=gnu11", "-O2", "-g", "-pthread", _PLACELESS, *_WARNINGS)
_LIBRARY_CFLAGS = ("-fPIC", "-fvisibility=hidden")
# A library's own names are bound to itself: a preloaded library that exports one of them, a wrapper of cuMemAlloc_v2 or
# another libcuda, must not become what cuGetProcAddress answers.
_LIBRARY_LDFLAGS = ("-shared", "-Wl,-Bsymbolic", "-Wl,-z,relro,-z,now", "-Wl,--as-needed")
# A launch goes through thirty small functions of a dozen files: compiled as one program it takes a third less time. The
# table of entry points declares them all with one type.
_AS_ONE_PROGRAM = ("-O2", "-flto=auto", _PLACELESS, "-Wno-lto-type-mismatch")


def _can_link(compiler: Sequence[str], flags: Sequence[str]) -> bool:
    """Whether the compiler and its linker accept the flags: some installations lack what these need."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*compiler, "-Werror", *flags, "-x", "c", "-", "-o", f"{folder}/program"]
        return subprocess.run(command, input=b"int main(void) { return 0; }", capture_output=True).returncode == 0


@dataclass(frozen=True)
class Toolchain:
    """The compiler that CC names; CFLAGS and LDFLAGS follow vgpu's flags; `sanitize`: as in -fsanitize=, or empty."""

    compiler: tuple[str, ...]
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    sanitize: str = ""

    @classmethod
    def from_environment(cls, sanitize: str = "", *, whole_program: bool = True, complete: bool = True) -> "Toolchain":
        """A toolchain of CC, CFLAGS and LDFLAGS, and the flags that all of vgpu's libraries share.

        Args:
            whole_program: optimise across files, at every link; without it, only a changed file is compiled again.
            complete: whether a library must define or link to every symbol that it uses.
        """

        def given(name: str, default: str = "") -> list[str]:
            return shlex.split(os.environ.get(name, default))

        # A sanitizer's symbols come from its preloaded runtime.
        of_sanitizer = [f"-fsanitize={sanitize}"] if sanitize else []
        defined = ["-Wl,-z,defs"] if complete and not sanitize else []
        careful = ["-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"] if sanitize else []
        if sanitize == "thread":
            careful.append(
                "-Wno-tsan"
            )  # ThreadSanitizer does not model fences; no fence here replaces an acquire or a release
        compiler = tuple(given("CC", "cc"))
        wanted = whole_program and not sanitize
        whole = _AS_ONE_PROGRAM if wanted and _can_link(compiler, _AS_ONE_PROGRAM) else ()
        cflags = (*_CFLAGS, *whole, *given("CFLAGS"), *of_sanitizer, *careful)
        return cls(compiler, cflags, (*whole, *given("LDFLAGS"), *of_sanitizer, *defined), sanitize)

    def objects(self, name: str) -> Path:
        """The folder of a library's objects, made now."""
        compiler = Path(self.compiler[0]).name
        other = [compiler] if compiler not in ("cc", "gcc") else []  # compilers keep their objects apart
        folder = ROOT / "build" / "-".join([name, *other, *filter(None, self.sanitize.split(","))])
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def compile(
        self, sources: Iterable[Path], objects: Path, includes: Iterable[Path], definitions: Iterable[str] = ()
    ) -> dict[Path, Path]:
        """Compile a library's changed sources in parallel; returns the object file of each source.

        Raises:
            subprocess.CalledProcessError: the compiler failed; its errors are on stderr.
        """
        options = [*self.cflags, *_LIBRARY_CFLAGS, *definitions, *(f"-I{folder}" for folder in includes)]

        def one(source: Path, target: Path) -> Path:
            self._make(target, [*options, "-c", str(source), "-o", str(target)], objects)
            return target

        wanted = sorted(set(sources))
        targets = [objects / f"{source.parent.name}-{source.stem}.o" for source in wanted]
        if not any(target.exists() for target in targets):  # a first build takes a while
            print(f"compiling {len(wanted)} files into {objects}", file=sys.stderr, flush=True)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return dict(zip(wanted, pool.map(one, wanted, targets), strict=True))

    def link(self, target: Path, arguments: Iterable[str | Path]) -> None:
        """Link a library. Raises subprocess.CalledProcessError."""
        fresh = _fresh(target)
        words = [*self.compiler, *_LIBRARY_LDFLAGS, *self.ldflags, *map(str, arguments), "-pthread", "-o", str(fresh)]
        subprocess.run(words, check=True)
        fresh.replace(target)

    def program(self, source: Path, target: Path, objects: Path) -> None:
        """Compile and link a program of one file, if something has changed. Raises subprocess.CalledProcessError."""
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = _fresh(target)
        if self._make(target, [*self.cflags, str(source), "-ldl", "-o", str(fresh)], objects):
            fresh.replace(target)

    def _make(self, target: Path, arguments: list[str], objects: Path) -> bool:
        """Run the compiler for `target` if something has changed; returns whether it ran."""
        depfile, command_file = objects / f"{target.stem}.d", objects / f"{target.stem}.cmd"
        command = [*self.compiler, "-MMD", "-MF", str(depfile), "-MT", str(target), *arguments]
        if _is_current(target, depfile, command, command_file):
            return False
        subprocess.run(command, check=True)
        command_file.write_text(shlex.join(command))
        return True


def is_older(target: Path, inputs: Iterable[Path]) -> bool:
    """Whether `target` must be rebuilt; this module counts as an input."""
    if not target.exists():
        return True
    made = target.stat().st_mtime_ns
    return any(path.stat().st_mtime_ns > made for path in (Path(__file__), *inputs))


def _fresh(target: Path) -> Path:
    return target.with_name(f"{target.name}.new")


def _is_current(target: Path, depfile: Path, command: Sequence[str], command_file: Path) -> bool:
    """Whether `target` was built by this very command from files that have not changed since."""
    if not (target.exists() and depfile.exists() and command_file.exists()):
        return False
    if command_file.read_text() != shlex.join(command):
        return False
    dependencies = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    built = target.stat().st_mtime_ns
    return all(Path(name).exists() and Path(name).stat().st_mtime_ns <= built for name in dependencies)


def options(description: str | None, out: Path) -> argparse.ArgumentParser:
    """The command line of a build script; `out` is the default output folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=out, help="folder of what is built")
    parser.add_argument("--sanitize", default="", help="sanitizers, as in -fsanitize=")
    return parser


def run(script: str, body: Callable[[], None]) -> int:
    """Exit code of a build script: 0, or 1 after one line about what failed."""
    try:
        body()
    except FileNotFoundError as error:
        print(
            f"{script}: {error.filename or error} not found: a C compiler is needed (on Debian and Ubuntu, apt-get "
            "install gcc libc6-dev), and `python -m protocol.gen` first",
            file=sys.stderr,
        )
    except subprocess.CalledProcessError as error:
        print(f"{script}: {shlex.join(map(str, error.cmd))} failed", file=sys.stderr)
    else:
        return 0
    return 1
