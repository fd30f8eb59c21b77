"""The files of a package: names, modes and contents, independent of the machine that builds it."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GZIP_LEVEL = 9


@dataclass(frozen=True, slots=True)
class File:
    """A regular file, or a symbolic link if `target` is set."""

    content: bytes = b""
    mode: int = 0o644
    target: str = ""


class Contents:
    """Relative path to file. Adding a path twice is an error."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}

    def add(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Add a regular file."""
        self._put(path, File(content.encode() if isinstance(content, str) else content, mode))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._put(path, File(target=target))

    def add_tree(self, path: str, folder: Path, pattern: str = "*") -> None:
        """Add the regular files below `folder` that match, without __pycache__."""
        for file in sorted(folder.rglob(pattern)):
            if file.is_file() and "__pycache__" not in file.parts:
                self.add(f"{path}/{file.relative_to(folder).as_posix()}", file.read_bytes())

    def merge(self, path: str, other: Contents) -> None:
        """Add all files of `other` below `path`; "" is the top."""
        for name, file in other.files.items():
            self._put(f"{path}/{name}" if path else name, file)

    def _put(self, path: str, file: File) -> None:
        if path in self.files or path.startswith("/") or ".." in PurePosixPath(path).parts:
            raise ValueError(f"{path} is there already, or no path in a package")
        self.files[path] = file

    def folders(self) -> list[str]:
        """All parent folders of the files, parents first."""
        found = {str(parent) for path in self.files for parent in PurePosixPath(path).parents}
        return sorted(found - {"."})

    @property
    def nbytes(self) -> int:
        """The total size of all regular files."""
        return sum(len(file.content) for file in self.files.values())

    def regular(self) -> Iterator[tuple[str, File]]:
        """The regular files, sorted by path."""
        return ((path, file) for path, file in sorted(self.files.items()) if not file.target)

    def md5sums(self) -> str:
        """Digests as dpkg stores them (deb-md5sums(5)); they detect damage, not attacks."""
        hashes = ((hashlib.md5(file.content, usedforsecurity=False).hexdigest(), path) for path, file in self.regular())
        return "".join(f"{digest}  {path}\n" for digest, path in hashes)

    def write(self, folder: Path, epoch_s: int) -> None:
        """Write all files below `folder`, which must not exist, with modes independent of the umask."""
        folder.mkdir(parents=True)
        for name in self.folders():
            (folder / name).mkdir()
        for name, file in sorted(self.files.items()):
            path = folder / name
            if file.target:
                path.symlink_to(file.target)
                os.utime(path, (epoch_s, epoch_s), follow_symlinks=False)
            else:
                path.write_bytes(file.content)
                path.chmod(file.mode)
                os.utime(path, (epoch_s, epoch_s))
        for path in (*(folder / name for name in reversed(self.folders())), folder):
            path.chmod(0o755)
            os.utime(path, (epoch_s, epoch_s))

    def tar_gz(self, top: str, epoch_s: int) -> bytes:
        """A .tar.gz of all files, below the folder `top`; the same contents give the same bytes."""
        whole = io.BytesIO()
        with tarfile.open(fileobj=whole, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for name in (top, *(f"{top}/{folder}" for folder in self.folders())):
                archive.addfile(_member(name, epoch_s, tarfile.DIRTYPE, 0o755))
            for name, file in sorted(self.files.items()):
                kind = tarfile.SYMTYPE if file.target else tarfile.REGTYPE
                member = _member(f"{top}/{name}", epoch_s, kind, 0o777 if file.target else file.mode)
                member.linkname, member.size = file.target, len(file.content)
                archive.addfile(member, io.BytesIO(file.content))
        return compress(whole.getvalue())


def _member(name: str, epoch_s: int, kind: bytes, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.mtime = kind, mode, epoch_s
    member.uname = member.gname = "root"
    return member


def compress(content: bytes) -> bytes:
    """Compress with gzip, without file name and time, so that the bytes are reproducible."""
    return gzip.compress(content, GZIP_LEVEL, mtime=0)
