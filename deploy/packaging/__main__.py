"""`python -m deploy.packaging guest` and `bundle`: from what is built, into build/packages."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from .binary import TooNewError
from .bundle import NBYTES_CAP, NBYTES_CAP_WITH_GUEST, BundleError, Options, make_bundle, pack
from .debian import DebianError
from .guest import GuestError, guest_files, make_archive, make_deb
from .host import make_host_deb
from .source import ROOT, describe_source
from .virtual_machine import NoMachineError
from .wheels import WheelError


def main() -> int:
    """Make the package that the command line names. Returns the exit code, 0 or 1."""
    parser = argparse.ArgumentParser(prog="python -m deploy.packaging", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/packages", help="folder of what is made")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("guest", help="vgpu for guests, as a .deb and as a .tar.gz")
    commands.add_parser("host", help="vgpud for hosts with apt, as a .deb: the bundle, the units, the configuration")
    bundle = commands.add_parser("bundle", help="vgpud, vgpu and all they need in one relocatable folder")
    bundle.add_argument("--without-simulator", action="store_true", help="for hosts with a real GPU: no LLVM")
    bundle.add_argument("--without-programs", action="store_true", help="no compiled CUDA programs")
    bundle.add_argument("--vm", action="store_true", help="QEMU and a guest, to boot without a network")
    bundle.add_argument("--folder", action="store_true", help="do not make an archive of it")
    options = parser.parse_args()
    try:
        made = {"guest": _guest, "host": _host, "bundle": _bundle}[options.command](options)
    except (BundleError, GuestError, NoMachineError, DebianError, WheelError, TooNewError) as error:
        print(f"packaging: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"packaging: {' '.join(map(str, error.cmd))[:200]} failed", file=sys.stderr)
        return 1
    for path in made:
        size = "" if path.is_dir() else f" ({path.stat().st_size / 1e6:.1f} MB)"
        print(f"{path}{size}")
    return 0


def _guest(options: argparse.Namespace) -> list[Path]:
    source = describe_source()
    options.out.mkdir(parents=True, exist_ok=True)
    guest = guest_files()
    return [make_deb(guest, source, options.out), make_archive(guest, source, options.out)]


def _host(options: argparse.Namespace) -> list[Path]:
    source = describe_source()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out) as scratch:
        folder = Path(scratch) / "vgpud"
        make_bundle(folder, source, Options(), Path(scratch))
        return [make_host_deb(folder, source, options.out)]


def _bundle(options: argparse.Namespace) -> list[Path]:
    source = describe_source()
    kind = ("-without-simulator" if options.without_simulator else "") + ("-vm" if options.vm else "")
    name = f"vgpu-{source.file_version}-linux-x86_64{kind}"
    options.out.mkdir(parents=True, exist_ok=True)
    programs = None if options.without_programs else _programs()
    with tempfile.TemporaryDirectory(dir=options.out) as scratch:
        folder = Path(scratch) / name
        guest = (programs or _programs(["saxpy"])) if options.vm else None
        made = Options(simulator=not options.without_simulator, programs=programs, guest=guest)
        make_bundle(folder, source, made, Path(scratch))
        if options.folder:
            shutil.rmtree(options.out / name, ignore_errors=True)
            return [folder.rename(options.out / name)]
        archive = options.out / f"{name}.tar.xz"
        pack(folder, archive, source, NBYTES_CAP_WITH_GUEST if options.vm else NBYTES_CAP)
        return [archive]


def _programs(names: list[str] | None = None) -> dict[str, Path]:
    """Name to test program, for all or the given names, compiled by NVIDIA's compiler from PyPI."""
    from tests.programs.toolchain import HERE, PTX, RELOCATABLE, cuda13

    compiler = cuda13()
    names = names or [path.stem for path in sorted(HERE.glob("*.cu")) if "." not in path.stem]
    several = {path.name.split(".")[0] for path in HERE.glob("*.*.cu")}  # programs linked from several files
    return {name: compiler.build(name, RELOCATABLE if name in several else PTX) for name in names}


if __name__ == "__main__":
    sys.exit(main())
