"""What a VM is made of, from Debian: QEMU installed, a stock kernel and busybox unpacked into the tests' cache.

`missing()` returns why this machine cannot boot a VM; with root on Debian the functions install what they need.
"""

import fcntl
import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.pypi import CACHE

APT_TIMEOUT_S = 300
QEMU_PACKAGE = "qemu-system-x86"
KERNEL_PACKAGE = "linux-image-cloud-amd64"  # depends on the actual kernel package, whose name contains its version
BUSYBOX_PACKAGE = "busybox-static"
INSTALL = ("-o", "DPkg::Lock::Timeout=60", "-y", "-q", "--no-install-recommends", "install")
VIRTIOFSD = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")


@dataclass(frozen=True)
class Kernel:
    """A bootable image and the folder of its modules."""

    image: Path
    modules: Path

    @property
    def release(self) -> str:
        return self.modules.name


def missing() -> str | None:
    """Why no VM can be booted here; None if one can, perhaps after an installation."""
    if platform.machine() != "x86_64":
        return f"the VM tests boot an x86-64 guest on an x86-64 host, this is {platform.machine()}"
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return "the VM tests take kernel and busybox from Debian with apt-get, which is not here"
    if os.geteuid() != 0 and (shutil.which("qemu-system-x86_64") is None or virtiofsd_path() is None):
        return f"QEMU is not here and only root may install it: apt-get install --no-install-recommends {QEMU_PACKAGE}"
    return None


def virtiofsd_path() -> str | None:
    return next((path for path in VIRTIOFSD if Path(path).exists()), None)


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock that allows one installation at a time on this machine."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / ".lock-vm").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def apt(*arguments: str, cwd: Path | None = None) -> str:
    """Run apt-get (or apt-cache) and return what it printed. Raises RuntimeError with what it said."""
    result = subprocess.run(
        [*arguments],
        cwd=cwd,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=APT_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    )
    if result.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed:\n{result.stdout[-1000:]}{result.stderr[-1000:]}")
    return result.stdout


@functools.cache
def refresh_lists() -> None:
    if os.geteuid() == 0:
        apt("apt-get", "-o", "DPkg::Lock::Timeout=60", "-q", "update")


def qemu() -> str:
    """Path of qemu-system-x86_64, which is installed now if it is missing."""
    with locked():
        if shutil.which("qemu-system-x86_64") is None or virtiofsd_path() is None:
            refresh_lists()
            apt("apt-get", *INSTALL, QEMU_PACKAGE)
    path = shutil.which("qemu-system-x86_64")
    if path is None:
        raise RuntimeError(f"{QEMU_PACKAGE} was installed and brought no qemu-system-x86_64")
    return path


@functools.cache
def qemu_version() -> tuple[int, int]:
    """QEMU's version, as in (7, 2): some devices depend on it."""
    said = subprocess.run([qemu(), "--version"], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", said)
    assert found, said
    return int(found[1]), int(found[2])


def unpacked(package: str) -> Path:
    """The files of a Debian package, not installed, in a folder of the cache."""
    target = CACHE / "vm" / package
    with locked():
        if target.exists():
            return target
        refresh_lists()
        partial = target.with_name(f"{package}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        # By default apt, run by root, downloads as the user _apt, who may not write to this folder.
        apt("apt-get", "-o", "APT::Sandbox::User=root", "-q", "download", package, cwd=partial)
        (archive,) = partial.glob("*.deb")
        subprocess.run(["dpkg", "-x", archive, partial], check=True, timeout=APT_TIMEOUT_S)
        archive.unlink()
        partial.rename(target)
    return target


def kernel() -> Kernel:
    """Debian's kernel for virtual machines."""
    kept = sorted((CACHE / "vm").glob("linux-image-*-cloud-amd64"))
    if kept:
        root = kept[-1]
    else:
        with locked():
            refresh_lists()
        depends = apt("apt-cache", "depends", KERNEL_PACKAGE)
        found = re.search(r"Depends: (linux-image-\S+-cloud-amd64)\s", depends)
        if found is None:
            raise RuntimeError(f"{KERNEL_PACKAGE} of this machine's archive names no kernel:\n{depends[-500:]}")
        root = unpacked(found[1])
    (image,) = (root / "boot").glob("vmlinuz-*")
    lib = next(path for path in (root / "lib/modules", root / "usr/lib/modules") if path.exists())
    return Kernel(image, next(lib.iterdir()))


def busybox() -> Path:
    """A statically linked busybox."""
    root = unpacked(BUSYBOX_PACKAGE)
    return next(path for path in (root / "bin/busybox", root / "usr/bin/busybox") if path.exists())
