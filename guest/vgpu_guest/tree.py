"""A tree of files that is walked from a root without following a link: the tree may be under another user's control.

Every path is relative to the root, and every folder of a path is opened separately with O_NOFOLLOW (openat(2)): a link
among them is an error, even a link that another user creates at this moment.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS_CAP = 40  # the kernel's limit
SUFFIX = ".vgpu-new"  # of temporary files beside their final path


class TreeError(OSError):
    """A failed operation in the tree; the message names the path."""


class Tree:
    """Reads and changes a tree. Methods raise TreeError, or FileNotFoundError if a file does not exist.

    `step` is called before each change with the change's name: tests end the process in it.
    """

    def __init__(self, root: Path, step: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._step = step or (lambda _name: None)
        try:
            self._fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise TreeError(error.errno, f"{root}: {error.strerror}") from error

    def close(self) -> None:
        """Close the root's descriptor."""
        os.close(self._fd)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def show(self, path: str) -> str:
        """The path including the root, for messages."""
        return str(self.root / path)

    @property
    def is_live(self) -> bool:
        """Whether this is the running system's own root."""
        return os.path.samestat(os.fstat(self._fd), os.stat("/"))

    # Reading

    def status(self, path: str) -> os.stat_result | None:
        """lstat; None if the file does not exist."""
        try:
            with self._parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read(self, path: str, cap: int) -> bytes:
        """A regular file's content. Raises ValueError if it is longer than `cap` bytes."""
        with self.open(path) as fd:
            content = b""
            while len(content) <= cap and (piece := os.read(fd, min(1 << 20, cap + 1 - len(content)))):
                content += piece
        if len(content) > cap:
            raise ValueError(f"{self.show(path)} is longer than {cap} bytes")
        return content

    @contextmanager
    def open(self, path: str) -> Iterator[int]:
        """A descriptor of a regular file, for reading."""
        with self._parent(path) as (folder, name):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise TreeError(errno.EINVAL, f"{self.show(path)} is not a regular file")
                yield fd
            finally:
                os.close(fd)

    def read_link(self, path: str) -> str:
        """A link's target."""
        with self._parent(path) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def names(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        with self._folder(path) as fd:
            return sorted(os.listdir(fd))

    def names_if_any(self, path: str) -> list[str]:
        """The names in a folder, sorted; none where it cannot be read."""
        try:
            return self.names(path)
        except OSError:
            return []

    def space(self, path: str) -> tuple[int, int, int]:
        """The file system that would hold `path`: its device, free bytes and free inodes."""
        parts = path.split("/")[:-1]
        for length in range(len(parts), -1, -1):
            try:
                with self._folder("/".join(parts[:length])) as fd:
                    free = os.fstatvfs(fd)
                    inodes = free.f_favail if free.f_files else 1 << 30  # some file systems have no inode count
                    return os.fstat(fd).st_dev, free.f_bavail * free.f_frsize, inodes
            except FileNotFoundError:
                continue
        raise TreeError(errno.ENOENT, f"{self.root} is gone")

    def follow(self, path: str) -> str:
        """The target of `path` when links are followed as if the root were `/`, for reading files that may be links.

        Raises:
            FileNotFoundError, TreeError: the target does not exist, or the links form a cycle.
        """
        waiting, done = path.split("/")[::-1], list[str]()
        links = 0
        while waiting:
            part = waiting.pop()
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            status = self.status("/".join([*done, part]))
            if status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.show(path))
            if not stat.S_ISLNK(status.st_mode):
                done.append(part)
                continue
            links += 1
            if links > _LINKS_CAP:
                raise TreeError(errno.ELOOP, f"{self.show(path)}: {os.strerror(errno.ELOOP)}")
            target = self.read_link("/".join([*done, part]))
            done = [] if target.startswith("/") else done
            waiting += target.split("/")[::-1]
        return "/".join(done)

    # Changing

    def make_folder(self, path: str, mode: int) -> None:
        """mkdir with exactly this mode."""
        with self._parent(path) as (folder, name):
            self._step(f"mkdir {path}")
            os.mkdir(name, 0o700, dir_fd=folder)
            fd = os.open(name, _FOLDER, dir_fd=folder)
            try:
                os.fchmod(fd, mode)
            finally:
                os.close(fd)
            os.fsync(folder)

    def change_mode(self, path: str, mode: int) -> None:
        """chmod of a folder."""
        with self._folder(path) as fd:
            self._step(f"chmod {path}")
            os.fchmod(fd, mode)

    def write(self, path: str, content: Iterator[bytes], mode: int, *, replace: bool) -> None:
        """Write a file atomically: under a temporary name beside `path`, synced to disk, then renamed.

        Args:
            replace: whether an existing file may be replaced; else FileExistsError.
        """
        with self._parent(path) as (folder, name):
            fresh = f".{name}{SUFFIX}"
            self._step(f"write {path}")
            _unlink(fresh, folder)
            fd = os.open(
                fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder
            )
            try:
                try:
                    for piece in content:
                        while piece:
                            piece = piece[os.write(fd, piece) :]
                    os.fchmod(fd, mode)
                    os.fsync(fd)
                finally:
                    os.close(fd)
                self._place(fresh, name, folder, path, replace)
            except OSError:
                _unlink(fresh, folder)
                raise

    def link(self, path: str, target: str, *, replace: bool) -> None:
        """Put a symbolic link at `path`."""
        with self._parent(path) as (folder, name):
            fresh = f".{name}{SUFFIX}"
            self._step(f"symlink {path}")
            _unlink(fresh, folder)
            os.symlink(target, fresh, dir_fd=folder)
            try:
                self._place(fresh, name, folder, path, replace)
            except OSError:
                _unlink(fresh, folder)
                raise

    def rename(self, path: str, to: str) -> None:
        """Move within one folder; `to` is not replaced unless it is an empty folder."""
        with self._parent(path) as (folder, name):
            self._step(f"rename {path}")
            os.rename(name, to.rsplit("/", 1)[-1], src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def remove(self, path: str) -> None:
        """Remove a file or link."""
        with self._parent(path) as (folder, name):
            self._step(f"unlink {path}")
            os.unlink(name, dir_fd=folder)
            os.fsync(folder)

    def remove_folder(self, path: str) -> bool:
        """Remove a folder if it is empty; returns whether it was."""
        with self._parent(path) as (folder, name):
            self._step(f"rmdir {path}")
            try:
                os.rmdir(name, dir_fd=folder)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    return False
                raise
            os.fsync(folder)
            return True

    def remove_unfinished(self, path: str) -> None:
        """Remove what a killed `write` or `link` left beside `path`."""
        with suppress(FileNotFoundError), self._parent(path) as (folder, name):
            _unlink(f".{name}{SUFFIX}", folder)

    def _place(self, fresh: str, name: str, folder: int, path: str, replace: bool) -> None:
        self._step(f"place {path}")
        if replace or not self._place_new(fresh, name, folder, path):
            os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)

    def _place_new(self, fresh: str, name: str, folder: int, path: str) -> bool:
        """Give a written file its name unless that exists by now: link(2), unlike rename(2), does not replace.

        Returns False on a file system without hard links, where the caller renames after a mere check.
        """
        try:
            os.link(fresh, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            with suppress(FileNotFoundError):
                os.stat(name, dir_fd=folder, follow_symlinks=False)
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from error
            return False
        self._step(f"placed {path}")
        os.unlink(fresh, dir_fd=folder)
        return True

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        head, _, name = path.rpartition("/")
        if name in ("", ".", ".."):
            raise TreeError(errno.EINVAL, f"{path!r} is not a path in a tree")
        with self._folder(head) as fd:
            try:
                yield fd, name
            except FileNotFoundError:
                raise
            except OSError as error:
                if isinstance(error, TreeError):
                    raise
                what = "is a link" if error.errno == errno.ELOOP else error.strerror
                raise TreeError(error.errno, f"{self.show(path)}: {what}") from error

    @contextmanager
    def _folder(self, path: str) -> Iterator[int]:
        fd = os.dup(self._fd)
        try:
            done: list[str] = []
            for part in path.split("/") if path else []:
                if part in ("", ".", ".."):
                    raise TreeError(errno.EINVAL, f"{path!r} is not a path in a tree")
                done.append(part)
                fd = self._enter(fd, part, "/".join(done))
            yield fd
        finally:
            os.close(fd)

    def _enter(self, fd: int, part: str, path: str) -> int:
        try:
            below = os.open(part, _FOLDER, dir_fd=fd)
        except FileNotFoundError:
            raise
        except OSError as error:
            try:
                is_link = stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode)
            except OSError:
                is_link = False
            what = "is a link, which is not followed" if is_link else f"{error.strerror}"
            raise TreeError(error.errno, f"{self.show(path)}: {what}") from error
        os.close(fd)
        return below


def _unlink(name: str, folder: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
