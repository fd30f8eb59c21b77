"""One relocatable folder with vgpud, vgpu, a Python for them and everything that they import."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .binary import is_elf, newest_glibc
from .python import VERSION, make_python
from .source import ROOT, Source
from .virtual_machine import make_machine
from .wheels import install_wheels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILES = Path(__file__).resolve().parent / "files"
NBYTES_CAP = 60 * 1000 * 1000
NBYTES_CAP_WITH_GUEST = 100 * 1000 * 1000
_TOOL_TIMEOUT_S = 600
_LIBRARY_GLOBS = (
    "lib*.so*",
    "cudart/*/lib*.so*",
    "compiler/lib*.so*",
    "compiler/unversioned/lib*.so",
    "cupti/*/lib*.so*",
    "notice/lib*.so",
    "bench/calls",
    "vgpu-probe",
    "torch/*/METADATA",
    "torch/*/*.*",
    "torch/*/*/*.*",
)


class BundleError(Exception):
    """The bundle cannot be built; the text names what is missing or superfluous."""


@dataclass(frozen=True, slots=True)
class Options:
    """The contents of the bundle besides vgpud and vgpu."""

    simulator: bool = True
    programs: Mapping[str, Path] | None = None  # name in the bundle to compiled CUDA program
    guest: Mapping[str, Path] | None = None  # programs for a bootable guest; None: the bundle has no guest


def make_bundle(folder: Path, source: Source, options: Options, scratch: Path) -> None:
    """Fill `folder`, which must not exist.

    Args:
        scratch: an empty folder for temporary files.
    Raises:
        BundleError, DebianError, WheelError, TooNewError: the text says why.
    """
    python = folder / "python"
    versions = {"vgpu": source.version}
    versions |= make_python(python, scratch)
    versions |= install_wheels(python / "site", VERSION, simulator=options.simulator, scratch=scratch)
    _copy_vgpu(python / "site")
    _copy_commands(folder)
    for name, program in (options.programs or {}).items():
        (folder / "share/vgpu/programs").mkdir(exist_ok=True)
        shutil.copy(program, folder / "share/vgpu/programs" / name)
    _strip(path for path in folder.rglob("*") if is_elf(path))
    glibc = ".".join(map(str, newest_glibc(folder)))
    _write_texts(folder, source, glibc, versions, options)
    _compile(python)
    if options.guest is not None:  # last, because it has its own glibc, which newest_glibc() must not see
        make_machine(folder / "vm", folder / "bin/vgpu-vm", options.guest)


def _copy_vgpu(site: Path) -> None:
    executors = sorted((ROOT / "daemon/vgpud").glob("_executor*.so"))
    if len(executors) != 1 or not (ROOT / "build/guest/libcuda.so.1").exists():
        raise BundleError("nothing is built, or several executors are there: run `make clean build`")
    for package in (ROOT / "daemon/vgpud", ROOT / "daemon/vgpusim", ROOT / "guest/vgpu_guest"):
        left_out = shutil.ignore_patterns("__pycache__", "_executor*", "*.[ch]")
        shutil.copytree(package, site / package.name, ignore=left_out)
    # cffi compiles the executor for the limited API, so it works with every CPython 3, although its name has a version.
    shutil.copy(executors[0], site / "vgpud/_executor.abi3.so")
    libraries = ROOT / "build/guest"
    for pattern in _LIBRARY_GLOBS:
        for file in sorted(libraries.glob(pattern)):
            target = site / "vgpu_guest/_lib" / file.relative_to(libraries)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target, follow_symlinks=False)


def _copy_commands(folder: Path) -> None:
    (folder / "bin").mkdir()
    for command, arguments in (("vgpu", 'prog_name="vgpu"'), ("vgpud", "")):
        text = (FILES / "bundle-command.sh").read_text()
        text = text.replace("@COMMAND@", command).replace("@ARGUMENTS@", arguments)
        (folder / "bin" / command).write_text(text)
        (folder / "bin" / command).chmod(0o755)
    share = folder / "share/vgpu"
    share.mkdir(parents=True)
    for file in (ROOT / "deploy/vgpud.toml", FILES / "cuda.toml", ROOT / "deploy/nvidia-smi"):
        shutil.copy(file, share / file.name)
    for name in ("vgpud.service", "vgpud.socket", "vgpud-vm@.service"):
        unit = (ROOT / "deploy" / name).read_text()
        (share / name).write_text(unit.replace("/usr/bin/vgpu", "/opt/vgpu/bin/vgpu"))


def _strip(files: Iterable[Path]) -> None:
    names = [str(file) for file in files]
    subprocess.run(["strip", "--strip-unneeded", *names], check=True, timeout=_TOOL_TIMEOUT_S)


def _write_texts(folder: Path, source: Source, glibc: str, versions: Mapping[str, str], options: Options) -> None:
    what = "" if options.simulator else "Without the simulator's compiler: for hosts with a real GPU.\n"
    what += "" if options.guest is None else "With a guest: bin/vgpu-vm boots it and runs CUDA programs in it.\n"
    text = (FILES / "bundle-readme.txt").read_text()
    text = text.replace("@VERSION@", source.version).replace("@GLIBC@", glibc).replace("@WHAT@\n", what)
    (folder / "README").write_text(text)
    lines = (f"{name} {version}\n" for name, version in sorted(versions.items()))
    (folder / "CONTENTS").write_text(f"glibc {glibc} or newer\n{''.join(lines)}")


def _compile(python: Path) -> None:
    """Compile to byte code that has no time stamps or paths of this machine and is not checked against the sources."""
    options = ["-q", "-j", "0", "--invalidation-mode", "unchecked-hash", "-s", str(python), "-p", "python"]
    for folder in (python / f"lib/python{VERSION}", python / "site"):
        command = [str(python / "bin/python3"), "-m", "compileall", *options, str(folder)]
        subprocess.run(command, check=True, timeout=_TOOL_TIMEOUT_S)


def pack(folder: Path, target: Path, source: Source, nbytes_cap: int = NBYTES_CAP) -> None:
    """Make the archive of a bundle.

    Raises:
        BundleError: it is larger than `nbytes_cap`.
    """

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = source.epoch_s
        if not member.issym():
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    partial = target.with_suffix(".partial")
    # Blocks of a fixed size give the same bytes for every number of cores.
    command = ["xz", "--threads=0", "--block-size=96MiB", "--x86", "--lzma2=preset=6,dict=64MiB", "--stdout"]
    with partial.open("wb") as out, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out) as xz:
        assert xz.stdin is not None
        with tarfile.open(fileobj=xz.stdin, mode="w|", format=tarfile.GNU_FORMAT) as archive:
            for path in (folder, *sorted(folder.rglob("*"))):
                name = path.relative_to(folder.parent).as_posix()
                archive.add(path, arcname=name, recursive=False, filter=plain)
        xz.stdin.close()
        if xz.wait():
            raise BundleError("xz failed")
    nbytes = partial.stat().st_size
    if nbytes > nbytes_cap:
        partial.unlink()
        raise BundleError(f"{target.name} would have {nbytes} bytes, more than the {nbytes_cap} promised")
    partial.rename(target)
