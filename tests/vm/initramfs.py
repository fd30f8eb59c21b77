"""The guest's first file system: busybox, our init, the modules it loads and what a test adds, as a newc cpio archive.

Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel.
"""

import hashlib
import lzma
import os
import re
import stat
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.patience import PATIENCE_S
from tests.pypi import CACHE
from tests.vm.packages import Kernel, busybox, kernel

INIT = Path(__file__).with_name("init.sh")
MODULES = (
    "virtio_pci",
    "virtio_console",
    "vmw_vsock_virtio_transport",
    "vsock_loopback",
    "virtiofs",
    "overlay",
)
FOLDERS = ("bin", "dev", "etc", "host", "lib", "lib/modules", "lib64", "mnt", "proc", "root", "run", "sys", "tmp")


class Archive:
    """A cpio archive in the making. Names are relative, without a leading slash; parents are made as needed."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._names: set[str] = set()

    def _add(self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        if name in self._names:
            return
        parent = os.path.dirname(name)
        if parent:
            self.folder(parent)
        self._names.add(name)
        self._parts.append(entry(len(self._names), name, mode, data, device))

    def folder(self, name: str) -> None:
        self._add(name, stat.S_IFDIR | 0o755)

    def file(self, name: str, data: bytes, mode: int = 0o644) -> None:
        self._add(name, stat.S_IFREG | mode, data)

    def link(self, name: str, target: str) -> None:
        self._add(name, stat.S_IFLNK | 0o777, target.encode())

    def device(self, name: str, major: int, minor: int) -> None:
        self._add(name, stat.S_IFCHR | 0o600, device=(major, minor))

    def bytes(self) -> bytes:
        return b"".join(self._parts) + entry(0, "TRAILER!!!", 0)


def entry(inode: int, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> bytes:
    """One member: a header of thirteen 8-digit hexadecimal fields, the name and the data, each padded to 4 bytes."""
    path = name.encode() + b"\0"
    fields = (inode, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)


def module_order(modules: Path, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """(name, contents) of the modules and their dependencies; each module follows those that it needs."""
    paths = {
        re.sub(r"\.ko(\.xz)?$", "", path.name).replace("-", "_"): path
        for path in sorted((modules / "kernel").rglob("*.ko*"))
    }
    order: dict[str, bytes] = {}

    def visit(name: str) -> None:
        if name in order or name not in paths:
            return  # loaded already, or built into the kernel
        data = paths[name].read_bytes()
        if paths[name].suffix == ".xz":
            data = lzma.decompress(data)
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in filter(None, depends[1].decode().split(",") if depends else ()):
            visit(other.replace("-", "_"))
        order[name] = data

    for name in wanted:
        visit(name.replace("-", "_"))
    return list(order.items())


def needed_libraries(program: Path) -> list[Path]:
    """What the dynamic linker would load for an ELF file of this host."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", said)]


def build(files: Mapping[str, Path] | None = None, modules: Iterable[str] = ()) -> Path:
    """The archive, rebuilt only when something in it has changed.

    Args:
        files: files to add, by their absolute path in the guest; the libraries of ELF files are added with them.
        modules: kernel modules to load besides MODULES; one that is built in, or does not exist, is skipped.
    """
    wanted = (*MODULES, *modules)
    found = kernel()
    key = hashlib.sha256(repr((wanted, str(found.image), Archive.__module__)).encode())
    for part in (INIT, Path(__file__), *(files or {}).values()):
        key.update(part.read_bytes())
    key.update(repr(sorted(files or {})).encode())
    target = CACHE / "vm" / f"initramfs-{key.hexdigest()[:16]}.cpio"
    if not target.exists():
        partial = target.with_suffix(f".{os.getpid()}")
        partial.write_bytes(contents(found, files or {}, wanted))
        partial.rename(target)
    return target


def contents(found: Kernel, files: Mapping[str, Path], modules: Iterable[str]) -> bytes:
    archive = Archive()
    for name in FOLDERS:
        archive.folder(name)
    archive.device("dev/console", 5, 1)
    archive.file("bin/busybox", busybox().read_bytes(), 0o755)
    archive.link("bin/sh", "busybox")
    archive.file("init", INIT.read_bytes(), 0o755)
    order = module_order(found.modules, modules)
    for name, data in order:
        archive.file(f"lib/modules/{name}.ko", data)
    archive.file("etc/modules", "".join(f"{name}\n" for name, _ in order).encode())
    for name, source in files.items():
        archive.file(name.lstrip("/"), source.read_bytes(), 0o755 if os.access(source, os.X_OK) else 0o644)
        for library in needed_libraries(source):
            archive.file(str(library).lstrip("/"), library.read_bytes(), 0o755)
    return archive.bytes()
