"""A guest in the bundle: QEMU with its own C library, Debian's kernel, and an initramfs with CUDA programs.

QEMU is copied from the build machine; bin/vgpu-vm boots the guest with vgpud on any host, without network or KVM.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from .source import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILES = Path(__file__).resolve().parent / "files"
# Files that QEMU loads by name; QEMU's other files are for devices that this guest does not have.
_MODULES = ("accel-tcg-x86_64.so",)
_FIRMWARE = ("bios-256k.bin", "linuxboot_dma.bin", "kvmvapic.bin")
_MODULE_FOLDER = Path("/usr/lib/x86_64-linux-gnu/qemu")
_FIRMWARE_FOLDERS = (Path("/usr/share/qemu"), Path("/usr/share/seabios"))
_DPKG_TIMEOUT_S = 60


class NoMachineError(Exception):
    """QEMU is not available; the text says why."""


def make_machine(folder: Path, command: Path, programs: Mapping[str, Path]) -> None:
    """Put QEMU, a kernel and an initramfs into `folder`, and the script that boots them at `command`.

    Args:
        programs: name to CUDA program of the guest.
    Raises:
        NoMachineError: this machine is not a Debian system, or QEMU is missing and cannot be installed.
    """
    # The VM tests have functions that find or download QEMU and the kernel.
    from tests.vm import initramfs, packages

    if reason := packages.missing():
        raise NoMachineError(reason)
    qemu = Path(packages.qemu())
    for name in ("lib", "share"):
        (folder / name).mkdir(parents=True)
    shutil.copy(qemu, folder / "qemu")
    shutil.copy(FILES / "qemu-command.sh", folder / "qemu-system-x86_64")
    (folder / "qemu-system-x86_64").chmod(0o755)
    modules = [_MODULE_FOLDER / name for name in _MODULES]
    libraries = {library for binary in (qemu, *modules) for library in initramfs.needed_libraries(binary)}
    for file in (*libraries, *modules):
        shutil.copy(file, folder / "lib" / file.name)  # including the loader
    for name in _FIRMWARE:
        found = next((path / name for path in _FIRMWARE_FOLDERS if (path / name).exists()), None)
        if found is None:
            raise NoMachineError(f"QEMU's firmware {name} is in none of {', '.join(map(str, _FIRMWARE_FOLDERS))}")
        shutil.copy(found, folder / "share" / name)
    kernel = packages.kernel().image
    shutil.copy(kernel, folder / "vmlinuz")
    unpacked = [kernel.parents[1] / "usr/share/doc", packages.unpacked(packages.BUSYBOX_PACKAGE) / "usr/share/doc"]
    _copy_terms(folder / "licenses", _packages_of({qemu, *libraries, *modules}), unpacked)
    files = {f"/programs/{name}": path for name, path in programs.items()}
    files["/usr/lib/vgpu/libcuda.so.1"] = ROOT / "build/guest/libcuda.so.1"
    # Not compressed: the whole archive is compressed, and it contains most of these files already.
    shutil.copy(initramfs.build(files), folder / "initramfs")
    shutil.copy(FILES / "vm_check.py", folder / "vm_check.py")
    shutil.copy(FILES / "vm-command.sh", command)
    command.chmod(0o755)


def _packages_of(files: Iterable[Path]) -> set[str]:
    """The Debian packages that own these files, according to dpkg."""
    # /lib is a link to /usr/lib; dpkg lists a file under only one of the two paths.
    names = {name for file in files for path in (file, file.resolve()) for name in _both_names(str(path))}
    command = ["dpkg-query", "--search", *sorted(names)]
    listing = subprocess.run(command, capture_output=True, text=True, timeout=_DPKG_TIMEOUT_S, check=False).stdout
    return {line.partition(": ")[0].partition(":")[0] for line in listing.splitlines() if ": /" in line}


def _both_names(path: str) -> tuple[str, str]:
    bare = "/" + path.removeprefix("/usr").lstrip("/")
    return bare, f"/usr{bare}"


def _copy_terms(target: Path, names: Iterable[str], folders: Iterable[Path]) -> None:
    """Copy the copyright file of each package whose files are in the bundle."""
    target.mkdir()
    notices = {name: Path("/usr/share/doc") / name / "copyright" for name in names}
    notices |= {path.parent.name: path for folder in folders for path in folder.glob("*/copyright")}
    for name, notice in notices.items():
        if notice.is_file():
            shutil.copyfile(notice, target / name)
