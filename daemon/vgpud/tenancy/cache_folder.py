"""The folders of tenants' compiled kernels: a tenant's worker never loads what another tenant's worker wrote (AT6). A
tenant whose name is never reused keeps its folder for good. Other names are reused: the next VM may get a CID without a
name in the configuration, the next container a pid namespace's number. Their folders have random names and are removed
with the tenant: at once, or, for a namespace, which vgpud holds open meanwhile, after many others were used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import stat
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .tenant import Identified, Tenant

_PASSING = "passing-"
_KEPT = 256  # folders of namespaces without a session
_SHARED = "shared"  # in a tenant's folder: what workers with user ids of their own write
_DRIVER = "nvidia"  # in the folder that a worker is given: NVIDIA's driver's own cache (worker/confine.py)
_DIGITS = "0123456789abcdef"
_ALL = 0o777


@dataclass(slots=True)
class _Folder:
    path: Path
    owner: Identified | None  # keeps the tenant's name from being reused
    sessions: int = 0


def open_shared(folder: Path) -> int:
    """A descriptor of a folder inside a tenant's folder. Every user with this descriptor may write to the folder; only
    vgpud's user can reach it by a path, because the tenant's folder has mode 0700. Raises OSError.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    shared = folder / _SHARED
    with contextlib.suppress(FileExistsError):
        shared.mkdir()
    shared.chmod(_ALL)
    return os.open(shared, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def open_driver_folders(shared: int) -> None:
    """Let every user of a folder of open_shared() use what NVIDIA's driver compiles for another one of them.

    The driver writes files of mode 0666 to folders named by one hexadecimal digit, two levels deep, and makes a folder
    that is missing with mode 0700 (580.159.04). So all of them are made here, and those that other users have made are
    opened to all where vgpud's user may do that. Raises OSError: nobody's are.
    """
    with _open_to_all(_DRIVER, shared) as driver:
        for first in _DIGITS:
            with contextlib.suppress(OSError), _open_to_all(first, driver) as folder:
                for second in _DIGITS:
                    if not _is_open_to_all(second, folder):
                        with contextlib.suppress(OSError), _open_to_all(second, folder):
                            pass


def _is_open_to_all(name: str, parent: int) -> bool:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode == stat.S_IFDIR | _ALL
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _open_to_all(name: str, parent: int) -> Iterator[int]:
    """A descriptor of the folder, which is made if it is missing. Other users may have replaced it by a link, which is
    not followed. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if not _is_open_to_all(name, parent):
            os.fchmod(folder, _ALL)
        yield folder
    finally:
        os.close(folder)


class CacheFolders:
    """The folders below one directory."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._alone: set[Path] = set()  # for sessions whose tenant is unknown
        self._passing: OrderedDict[Tenant, _Folder] = OrderedDict()  # least recently used first

    def remove_left(self) -> None:
        """Remove folders that a previous vgpud left for tenants whose names cannot be held any more."""
        kept = {folder.path for folder in self._passing.values()} | self._alone
        for path in set(self._base.glob(f"{_PASSING}*")) - kept:
            shutil.rmtree(path, ignore_errors=True)

    def enter(self, owner: Identified | None, name: str, path: Path | None = None) -> tuple[Path, Callable[[], None]]:
        """A session's folder, and what to call at the session's end.

        Args:
            owner: the session's tenant, which stays the caller's; None: it is unknown.
            name: of the tenant.
            path: the session's existing folder, if the previous vgpud made one.
        """
        if owner is None:
            alone = _Folder(path or self._new(), None)
            self._alone.add(alone.path)
            return alone.path, lambda: self._leave_alone(alone)
        if owner.tenant.pid_namespace is None and owner.is_lasting:
            return self._base / quote(name, safe=""), lambda: None
        folder = self._passing.get(owner.tenant)
        if folder is None:
            folder = self._passing[owner.tenant] = _Folder(path or self._new(), owner.copy())
        folder.sessions += 1
        self._passing.move_to_end(owner.tenant)
        tenant = owner.tenant
        return folder.path, lambda: self._leave(tenant, folder)

    def _leave_alone(self, folder: _Folder) -> None:
        self._alone.discard(folder.path)
        _remove(folder)

    def _new(self) -> Path:
        return self._base / f"{_PASSING}{secrets.token_hex(8)}"

    def _leave(self, tenant: Tenant, folder: _Folder) -> None:
        folder.sessions -= 1
        if folder.sessions == 0 and tenant.pid_namespace is None:
            _remove(self._passing.pop(tenant))
        idle = [key for key, each in self._passing.items() if each.sessions == 0]
        for key in idle[: max(0, len(idle) - _KEPT)]:
            _remove(self._passing.pop(key))


def _remove(folder: _Folder) -> None:
    if folder.owner is not None:
        folder.owner.close()
    asyncio.get_running_loop().run_in_executor(None, lambda: shutil.rmtree(folder.path, ignore_errors=True))
