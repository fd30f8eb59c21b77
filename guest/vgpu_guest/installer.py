"""Applying a plan to a tree, and undoing it: completely or not at all, and resumable after being killed at any step.
The manifest is written first and lists what will be created; nothing else is ever changed. Each file is written under a
temporary name and renamed. Files that refer to others (the loader's configuration, a unit's drop-in) are created after
those and removed before them, so that no program ever looks for a missing file.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .layout import SYSTEM, Layout
from .manifest import INSTALLED, INSTALLING, Entry, Manifest, Request, load_manifest
from .tree import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .plan import Item
    from .tree import Tree

_LOCK_TIMEOUT_S = 10.0
_MARGIN_NBYTES = 1 << 20  # left free on each file system, for the manifest and the growth of the loader's cache
_PIECE_NBYTES = 1 << 20
_WAY_OUT = "remove it, or, where an installation's manifest was lost, run vgpu repair"


class InstallError(Exception):
    """Nothing was done, or the work is incomplete; one line says why."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference from the manifest."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"/{self.path} {self.what}"


class Installer:
    """One tree's installation."""

    def __init__(self, tree: Tree, layout: Layout = SYSTEM, refresh: Callable[[], None] = lambda: None) -> None:
        self.tree = tree
        self.layout = layout
        self.refresh = refresh  # rebuilding the loader's cache after its configuration has changed

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other installers out. Raises InstallError if another one does not end in time."""
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        fd = os.open(self.tree.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline:
                        raise InstallError(f"another process holds a lock on {self.tree.root}: try again") from error
                    time.sleep(0.1)
            yield
        finally:
            os.close(fd)

    def adopt(self, manifest: Manifest) -> None:
        """Write a manifest of the existing files, to replace a lost or damaged one."""
        self._clear_unfinished_manifest()
        is_first = self.tree.status(self.layout.manifest) is None
        self._write_manifest(manifest, is_first=is_first)

    # The present state

    def manifest(self) -> Manifest | None:
        """The manifest, if something is installed."""
        return load_manifest(self.tree, self.layout)

    def findings(self, manifest: Manifest) -> list[Finding]:
        """How the tree differs from the manifest. Configuration files may be changed by their owner."""
        found = []
        for entry in manifest.entries:
            try:
                what = self.difference(entry)
            except PermissionError:
                if entry.kind != "configuration":
                    raise
                continue  # only the owner of the configuration can read it
            if what and not (entry.kind == "configuration" and what == "was changed"):
                found.append(Finding(entry.path, what))
        return found

    def difference(self, entry: Entry) -> str:
        """How the file at an entry's path differs from the entry; "" if it does not."""
        status = self.tree.status(entry.path)
        if status is None:
            return "is missing"
        kind = stat.S_IFMT(status.st_mode)
        if entry.kind == "directory":
            if kind != stat.S_IFDIR:
                return "is not a folder any more"
            return "" if stat.S_IMODE(status.st_mode) == entry.mode else "has another mode"
        if entry.kind == "link":
            if kind != stat.S_IFLNK:
                return "is no link any more"
            target = self.tree.read_link(entry.path)
            return "" if target == entry.target else f"is a link to {target}"
        if kind != stat.S_IFREG:
            return "is not a file any more"
        if status.st_size != entry.nbytes or self._sha256(entry.path) != entry.sha256:
            return "was changed"
        return "" if stat.S_IMODE(status.st_mode) == entry.mode else "has another mode"

    def _sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        with self.tree.open(path) as fd:
            while piece := os.read(fd, _PIECE_NBYTES):
                digest.update(piece)
        return digest.hexdigest()

    # Installing

    def missing_work(self, items: list[Item], old: Manifest | None) -> list[Item]:
        """The items that do not exist yet, after a check that each may be created.

        Raises:
            InstallError: another program's file is in the way, or there is not enough space.
        """
        owned = {entry.path: entry for entry in old.entries} if old else {}
        work = []
        for item in items:
            entry = item.entry
            what = self.difference(entry)
            if not what:
                if entry.path not in owned:
                    raise InstallError(f"{self.tree.show(entry.path)} is there and not of vgpu install: {_WAY_OUT}")
                continue
            before = owned.get(entry.path)
            if what != "is missing" and (before is None or (before.pending and self.difference(before))):
                raise InstallError(f"{self.tree.show(entry.path)} is there and not of vgpu install: {_WAY_OUT}")
            status = self.tree.status(entry.path)
            if status is not None and stat.S_ISDIR(status.st_mode):
                raise InstallError(f"{self.tree.show(entry.path)} is a folder now: remove it")
            if entry.kind == "configuration" and before is not None and what == "was changed":
                if before == entry:
                    continue  # changed by its owner after it was installed
                if self.difference(before) == "was changed":
                    raise InstallError(f"{self.tree.show(entry.path)} was changed by hand: change the endpoint there")
            work.append(item)
        self._check_space(work)
        return work

    def _check_space(self, work: list[Item]) -> None:
        needed: dict[int, list[Entry]] = {}
        for item in work:
            needed.setdefault(self.tree.space(item.entry.path)[0], []).append(item.entry)
        for entries in needed.values():
            _, free_nbytes, free_inodes = self.tree.space(entries[0].path)
            nbytes = _MARGIN_NBYTES + sum(-(-entry.nbytes // 4096) * 4096 for entry in entries)
            inodes = 16 + 2 * len(entries)
            folder = self.tree.show(entries[0].path.rpartition("/")[0])
            if nbytes > free_nbytes:
                raise InstallError(f"no space: {folder} needs {nbytes >> 10} KiB, {free_nbytes >> 10} KiB are free")
            if inodes > free_inodes:
                raise InstallError(f"no space: {folder} needs {inodes} inodes, {free_inodes} are free")

    def folders(self, items: list[Item], old: Manifest | None) -> list[Entry]:
        """The folders that are made for items, or were made by an earlier installation; parents first."""
        owned = {entry.path for entry in old.entries if entry.kind == "directory"} if old else set()
        paths = {self.layout.manifest: None} | {item.entry.path: None for item in items}
        found: dict[str, Entry] = {}
        for path in paths:
            parts = path.split("/")[:-1]
            for length in range(1, len(parts) + 1):
                folder = "/".join(parts[:length])
                if folder in found:
                    continue
                status = self.tree.status(folder)
                if status is None or folder in owned:
                    found[folder] = Entry(folder, "directory", 0o755)
                elif not stat.S_ISDIR(status.st_mode):
                    what = "a link" if stat.S_ISLNK(status.st_mode) else "no folder"
                    raise InstallError(f"{self.tree.show(folder)} is {what}: nothing is put there")
        return list(found.values())

    def install(self, request: Request, release: str, items: list[Item], caches: tuple[str, ...]) -> bool:
        """Make the tree have these items, and remove those that an earlier request had and this one does not.

        Args:
            caches: the loader's files that do not exist yet and will be created.
        Returns:
            Whether anything was changed.
        Raises:
            InstallError: nothing was changed, or changes were undone, or an earlier installation is half replaced.
            TreeError, ManifestError: likewise.
        """
        self._clear_unfinished_manifest()
        old = self.manifest()
        if old is not None and old.state == INSTALLING:
            self._clear_unfinished(old)
        folders = self.folders(items, old)
        work = self.missing_work(items, old)
        owned = {entry.path: entry for entry in old.entries} if old else {}
        wanted = {entry.path: entry for entry in [*folders, *(item.entry for item in items)]}
        stale = [entry for path, entry in owned.items() if path not in wanted]
        caches = old.caches if old else caches
        final = Manifest(INSTALLED, release, request, tuple(wanted.values()), caches)
        absent = [entry for entry in folders if self.difference(entry)]
        if final == old and not work and not stale and not absent:
            return False
        entries = [*(replace(e, pending=not self._is_made(owned.get(e.path))) for e in wanted.values()), *stale]
        intent = Manifest(INSTALLING, release, request, tuple(entries), caches)
        try:
            self._write_manifest(intent, is_first=old is None)
            self._make(absent, work, owned)
            self._remove(stale[::-1], purge=False)
            self.refresh()
            self._write_manifest(final)
        except BaseException as error:
            self._take_back(old, intent, work, owned, error)
            raise
        return True

    def _make(self, folders: list[Entry], work: list[Item], owned: dict[str, Entry]) -> None:
        for entry in folders:
            if self.tree.status(entry.path) is None:
                self.tree.make_folder(entry.path, entry.mode)
            else:
                self.tree.change_mode(entry.path, entry.mode)
        for item in work:
            entry = item.entry
            replaceable = self._is_made(owned.get(entry.path))
            if entry.kind == "link":
                self.tree.link(entry.path, entry.target, replace=replaceable)
            else:
                self.tree.write(entry.path, item.content(), entry.mode, replace=replaceable)

    def _is_made(self, before: Entry | None) -> bool:
        """Whether vgpu installed the file at an entry's path. False for an entry that an interrupted installation did
        not create."""
        return before is not None and not (before.pending and self.tree.status(before.path) is None)

    def _take_back(
        self, old: Manifest | None, intent: Manifest, work: list[Item], owned: dict[str, Entry], error: BaseException
    ) -> None:
        """After a failure: restore the earlier state, unless files of an earlier installation were already replaced."""
        reason = _reason(error) if isinstance(error, OSError) else ""
        if old is not None and (old.state != INSTALLED or any(item.entry.path in owned for item in work)):
            if reason:
                raise InstallError(f"{reason}; the earlier installation is half replaced: install again") from error
            return
        with suppress(OSError):
            if old is not None:
                self._remove([entry for entry in intent.entries if entry.pending][::-1], purge=False)
                self.refresh()
                self._write_manifest(old)
            else:
                self._clear_unfinished_manifest()
                if self.manifest() is not None:
                    self._uninstall(intent, purge=False)
        if reason:
            raise InstallError(f"{reason}; what was done was taken back") from error

    # Uninstalling

    def uninstall(self, *, purge: bool = False) -> list[str] | None:
        """Remove everything in the manifest.

        Args:
            purge: also remove files that were changed since.
        Returns:
            The files that were changed and therefore kept; None if nothing was installed.
        """
        self._clear_unfinished_manifest()
        manifest = self.manifest()
        if manifest is None:
            return None
        return self._uninstall(manifest, purge=purge)

    def _uninstall(self, manifest: Manifest, *, purge: bool) -> list[str]:
        files = [entry for entry in manifest.entries if entry.kind != "directory"]
        kept = self._remove(files[::-1], purge=purge)
        folders = [entry for entry in manifest.entries if entry.kind == "directory"]
        chain = [entry for entry in folders if self.layout.manifest.startswith(f"{entry.path}/")]
        self.refresh()
        for path in manifest.caches:
            self._remove_cache(path)
        self._remove([entry for entry in folders if entry not in chain][::-1], purge=purge)
        if kept:
            rest = tuple(entry for entry in manifest.entries if entry.kind == "directory" or entry.path in kept)
            self._write_manifest(replace(manifest, request=Request(), entries=rest))
        else:
            self._remove_manifest(chain)
        return kept

    def _remove(self, entries: list[Entry], *, purge: bool) -> list[str]:
        """Remove installed entries; returns the paths that were kept because they were changed."""
        kept = []
        for entry in entries:
            status = self.tree.status(entry.path)
            if entry.kind == "directory":
                if status is not None and stat.S_ISDIR(status.st_mode):
                    self.tree.remove_folder(entry.path)
                continue
            self.tree.remove_unfinished(entry.path)
            if status is None:
                continue
            what = self.difference(entry)
            if not what or what == "has another mode" or (purge and not stat.S_ISDIR(status.st_mode)):
                self.tree.remove(entry.path)
            elif not entry.pending:
                kept.append(entry.path)
        return kept

    def _remove_cache(self, path: str) -> None:
        """Remove a file or folder of the loader's cache that ldconfig created."""
        status = self.tree.status(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            self.tree.remove_folder(path)
        elif status is not None:
            self.tree.remove(path)

    def _clear_unfinished(self, manifest: Manifest) -> None:
        for entry in manifest.entries:
            if entry.kind != "directory":
                self.tree.remove_unfinished(entry.path)

    # The manifest appears and disappears atomically, together with the folders that are made for it

    def _write_manifest(self, manifest: Manifest, *, is_first: bool = False) -> None:
        path = self.layout.manifest
        parts = path.split("/")
        for length in range(1, len(parts)):
            top = "/".join(parts[:length])
            if is_first and self.tree.status(top) is None:
                fresh = _unfinished(top)
                for below in range(length, len(parts)):
                    self.tree.make_folder("/".join([fresh, *parts[length:below]]), 0o755)
                inside = "/".join([fresh, *parts[length:]])
                self.tree.write(inside, iter([manifest.encode()]), 0o644, replace=False)
                self.tree.rename(fresh, top)
                return
        self.tree.write(path, iter([manifest.encode()]), 0o644, replace=not is_first)

    def _remove_manifest(self, chain: list[Entry]) -> None:
        parts = self.layout.manifest.split("/")
        for entry in chain:  # find the topmost folder that contains only the path to the manifest
            length = entry.path.count("/") + 1
            below = ["/".join(parts[:depth]) for depth in range(length, len(parts))]
            if all(self.tree.names(folder) == [parts[folder.count("/") + 1]] for folder in below):
                self.tree.rename(entry.path, _unfinished(entry.path))
                self._clear_unfinished_manifest()
                return
        self.tree.remove(self.layout.manifest)

    def _clear_unfinished_manifest(self) -> None:
        """Remove what a killed _write_manifest or _remove_manifest left."""
        parts = self.layout.manifest.split("/")
        self.tree.remove_unfinished(self.layout.manifest)
        for length in range(1, len(parts)):
            fresh = _unfinished("/".join(parts[:length]))
            if self.tree.status(fresh) is None:
                continue
            inside = "/".join([fresh, *parts[length:]])
            self.tree.remove_unfinished(inside)
            if self.tree.status(inside) is not None:
                self.tree.remove(inside)
            for below in range(len(parts) - 1, length - 1, -1):
                folder = "/".join([fresh, *parts[length:below]])
                if self.tree.status(folder) is not None:
                    self.tree.remove_folder(folder)


def _unfinished(path: str) -> str:
    head, slash, name = path.rpartition("/")
    return f"{head}{slash}.{name}{SUFFIX}"


def _reason(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "no space left"
    return error.strerror or str(error)
