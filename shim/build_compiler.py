"""Compile the libraries in front of NVIDIA's compilers: `python shim/build_compiler.py` makes libnvrtc.so.12 and .13,
libnvJitLink.so.12 and .13 in build/guest/compiler.

`vgpu run` preloads them for programs on simulated devices. One source for each, compiled for each major. Used by the
Makefile and by setup.py.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from native import GEN, LIBRARIES, ROOT, Toolchain, is_older, options, run

MAJORS = (12, 13)
INCLUDES = [GEN, ROOT / "protocol/c", ROOT / "shim/base", ROOT / "shim/compiler"]
COMMON = [ROOT / "shim/base/vgs_log.c", *(ROOT / f"shim/compiler/{name}.c" for name in ("vgs_arch", "vgs_real"))]


@dataclass(frozen=True)
class Compiler:
    """One of NVIDIA's compiler libraries, and vgpu's library in front of it."""

    stem: str
    sources: tuple[str, ...]
    variable: str  # environment variable with the path of NVIDIA's file
    package: str  # folder of NVIDIA's PyPI package for CUDA 12
    exports: str

    def definitions(self, major: int) -> list[str]:
        folder = f"/nvidia/{self.package}/lib"
        named = f'-DVGS_STEM="{self.stem}.so."', f'-DVGS_PATH_VARIABLE="{self.variable}"', f'-DVGS_PYPI="{folder}"'
        return [f"-DVGS_MAJOR={major}", *named]


COMPILERS = (
    Compiler("libnvrtc", ("vgs_nvrtc",), "VGPU_NVRTC", "cuda_nvrtc", "nvrtc*;"),
    Compiler(
        "libnvJitLink",
        ("vgs_nvjitlink", "vgs_linked"),
        "VGPU_NVJITLINK",
        "nvjitlink",
        "nvJitLink*; __nvJitLink*;",
    ),
)


def build(out: Path, toolchain: Toolchain) -> None:
    """Build the four libraries into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for compiler in COMPILERS:
        sources = [*(ROOT / f"shim/compiler/{name}.c" for name in compiler.sources), *COMMON]
        for major in MAJORS:
            objects, soname = toolchain.objects(f"{compiler.stem}-{major}"), f"{compiler.stem}.so.{major}"
            script, library = objects / "exports.map", out / soname
            text = f"{soname} {{ global: vgpuCompilerStandIn; {compiler.exports} local: *; }};\n"
            if not script.exists() or script.read_text() != text:
                script.write_text(text)
            built = toolchain.compile(sources, objects, INCLUDES, compiler.definitions(major))
            if is_older(library, [script, Path(__file__), *built.values()]):
                named = [f"-Wl,-soname,{soname}", f"-Wl,--version-script={script}"]
                toolchain.link(library, [*named, *built.values(), "-ldl"])
    build_unversioned(out, toolchain)


def build_unversioned(out: Path, toolchain: Toolchain) -> None:
    """An empty libnvrtc.so that needs the newest one: a wheel holds no links. `vgpu run` gives its folder to programs
    that find no such name."""
    library, needed = out / "unversioned/libnvrtc.so", out / f"libnvrtc.so.{max(MAJORS)}"
    library.parent.mkdir(exist_ok=True)
    if is_older(library, [needed, Path(__file__)]):
        needs = ["-Wl,--no-as-needed", str(needed), "-Wl,-rpath,$ORIGIN/.."]
        toolchain.link(library, [f"-Wl,-soname,{library.name}", *needs])


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    given = options(__doc__, LIBRARIES / "compiler").parse_args()
    return run("shim/build_compiler.py", lambda: build(given.out, Toolchain.from_environment(given.sanitize)))


if __name__ == "__main__":
    sys.exit(main())
