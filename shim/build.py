"""Compile the guest libraries: `python shim/build.py` makes libcuda and libnvidia-ml, and their links, in build/guest.

Used by the Makefile and by setup.py.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

from native import GEN, LIBRARIES, ROOT, Toolchain, is_older, options, run

RELEASE = "580.159.04"  # the driver release that the libraries report; part of file names, as in NVIDIA's
INCLUDES = [
    *(GEN, GEN / "nvml", ROOT / "protocol/c"),
    *(ROOT / "shim" / name for name in ("base", "connect", "channel", "cuda", "nvml", "notice")),
]


@dataclass(frozen=True)
class Library:
    """One guest library. It needs no other guest library: shared code is linked into each."""

    stem: str
    generated: Path  # folder of its generated C files and version script
    folders: tuple[str, ...]  # of its C files, below shim/
    notice: tuple[str, ...] = ()  # files of shim/notice

    @property
    def map(self) -> Path:
        """The version script."""
        return self.generated / f"{self.stem}.map"

    def sources(self) -> list[Path]:
        """All its C files: generated ones first."""
        return [
            *sorted(self.generated.glob("vgs_*.c")),
            *(path for name in self.folders for path in sorted((ROOT / "shim" / name).glob("*.c"))),
            *sorted(path for name in self.notice for path in (ROOT / "shim/notice").glob(f"{name}.c")),
        ]


GUEST_LIBRARIES = (
    Library("libcuda", GEN, ("base", "connect", "channel", "cuda"), notice=("vgs_notice*",)),
    Library("libnvidia-ml", GEN / "nvml", ("base", "connect", "nvml")),
)


def link(library: Library, target: Path, objects: list[Path], toolchain: Toolchain) -> None:
    """Link the library, and create the symbolic links by which loaders find it."""
    toolchain.link(target, [f"-Wl,-soname,{library.stem}.so.1", f"-Wl,--version-script={library.map}", *objects])
    for name in (f"{library.stem}.so.1", f"{library.stem}.so"):
        alias = target.parent / name
        alias.unlink(missing_ok=True)
        alias.symlink_to(target.name)


def build(out: Path, toolchain: Toolchain) -> None:
    """Build the libraries, and the probe that `vgpu doctor` runs on them, into `out`."""
    objects = toolchain.objects("shim")
    out.mkdir(parents=True, exist_ok=True)
    built = toolchain.compile(
        (source for library in GUEST_LIBRARIES for source in library.sources()), objects, INCLUDES
    )
    for library in GUEST_LIBRARIES:
        parts = [built[source] for source in library.sources()]
        target = out / f"{library.stem}.so.{RELEASE}"
        if is_older(target, [library.map, Path(__file__), *parts]):
            link(library, target, parts, toolchain)
    toolchain.program(ROOT / "shim/probe/vgs_probe.c", out / "vgpu-probe", objects)


def main() -> int:
    """Build what the command line asks for; 0 or 1."""
    given = options(__doc__, LIBRARIES).parse_args()
    return run("shim/build.py", lambda: build(given.out, Toolchain.from_environment(given.sanitize)))


if __name__ == "__main__":
    sys.exit(main())
