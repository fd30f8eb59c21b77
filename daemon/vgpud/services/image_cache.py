"""Images by content: for each tenant, sealed memory files by digest, least recently used ones dropped first.

Nothing here is shared between tenants: a digest finds only what the same tenant has stored, as a lookup would otherwise
reveal what others have loaded. vgpud computes the digest of the data that it stores, whatever digest the client claims.
Images are sealed memfds: nobody can change them, and they vanish with vgpud. A worker that maps a file keeps it when
the cache drops it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .image_digest import image_digest

if TYPE_CHECKING:
    from vgpud.config_tables import ImagesConfig
    from vgpud.tenancy.tenant import Identified, Tenant

PADDING_NBYTES = 64  # zeros behind an image (VGX_IMAGE_PADDING)
_F_GET_SEALS, _SEALS = 1034, 0x2 | 0x4 | 0x8  # F_SEAL_SHRINK, _GROW, _WRITE


class ImageRefused(Exception):
    """A worker offered an invalid file; the text is for the log."""


@dataclass(slots=True, eq=False)
class _Shelf:
    """One tenant's images."""

    owner: Identified
    images: OrderedDict[bytes, tuple[int, int]] = field(default_factory=OrderedDict)  # digest: descriptor, size
    nbytes: int = 0
    session_count: int = 0
    left_at: float = 0.0  # time at which its last session ended


class ImageCache:
    """All tenants' images. Not thread-safe: vgpud uses it on its event loop."""

    def __init__(self, config: ImagesConfig) -> None:
        self._config = config
        self._shelves: dict[Tenant, _Shelf] = {}
        self.nbytes = 0

    @property
    def is_on(self) -> bool:
        """Whether the cache is enabled."""
        bounds = self._config
        return min(bounds.tenant_nbytes, bounds.tenant_entries, bounds.nbytes, bounds.entries) > 0

    @property
    def image_count(self) -> int:
        """Images held, of all tenants."""
        return sum(len(shelf.images) for shelf in self._shelves.values())

    @property
    def tenant_count(self) -> int:
        """Tenants that have a session or an image."""
        return len(self._shelves)

    def set_config(self, config: ImagesConfig) -> None:
        """Change the limits; images beyond them are dropped."""
        self._config = config
        for shelf in self._shelves.values():
            self._fit(shelf)
        self._fit_all()

    def enter(self, owner: Identified) -> None:
        """A session of this tenant begins; takes ownership of `owner`."""
        shelf = self._shelves.get(owner.tenant)
        if shelf is None:
            shelf = self._shelves[owner.tenant] = _Shelf(owner)
        else:
            owner.close()
        shelf.session_count += 1

    def leave(self, tenant: Tenant, now_s: float | None = None) -> None:
        """A session has ended. If the tenant is lasting, its images are kept for `keep_s` for its next session."""
        shelf = self._shelves.get(tenant)
        if shelf is None:
            return  # close() came first
        shelf.session_count -= 1
        shelf.left_at = time.monotonic() if now_s is None else now_s
        while shelf.images and shelf.session_count == 0 and not shelf.owner.is_lasting:
            self._drop_oldest(shelf)
        self._forget_if_empty(shelf)

    def expire(self, now_s: float | None = None) -> None:
        """Drop the images of tenants that have long had no session."""
        now_s = time.monotonic() if now_s is None else now_s
        for shelf in list(self._shelves.values()):
            if shelf.session_count == 0 and now_s - shelf.left_at >= self._config.keep_s:
                while shelf.images:
                    self._drop_oldest(shelf)
                self._forget_if_empty(shelf)

    def find(self, tenant: Tenant, digest: bytes, nbytes: int) -> int | None:
        """A descriptor of an image that this tenant has stored; the cache keeps ownership."""
        images = self._shelves[tenant].images
        found = images.get(digest)
        if found is None or found[1] != nbytes:
            return None
        images.move_to_end(digest)
        return found[0]

    def check_room(self, nbytes: int) -> None:
        """Raise ImageRefused for an image that is too large to keep."""
        if not 0 < nbytes <= min(self._config.tenant_nbytes, self._config.nbytes):
            raise ImageRefused(f"an image of {nbytes} bytes is over the bound")

    def store(self, tenant: Tenant, digest: bytes, nbytes: int, fd: int) -> bool:
        """Store a file that verify() has accepted; takes ownership of `fd`. False: it is stored already, or the tenant
        has no session.
        """
        shelf = self._shelves.get(tenant)
        if shelf is None or digest in shelf.images:
            os.close(fd)
            return False
        shelf.images[digest] = (fd, nbytes)
        shelf.nbytes += nbytes
        self.nbytes += nbytes
        self._fit(shelf)
        self._fit_all()
        return digest in shelf.images

    def close(self) -> None:
        """Drop everything."""
        for shelf in list(self._shelves.values()):
            while shelf.images:
                self._drop_oldest(shelf)
            shelf.owner.close()
        self._shelves.clear()

    def _fit(self, shelf: _Shelf) -> None:
        while shelf.nbytes > self._config.tenant_nbytes or len(shelf.images) > self._config.tenant_entries:
            self._drop_oldest(shelf)

    def _fit_all(self) -> None:
        """Drop images of the tenant that holds most, so that a flood of images drops only the sender's own."""
        while self.nbytes > self._config.nbytes:
            self._drop_oldest(max(self._shelves.values(), key=lambda shelf: shelf.nbytes))
        for _ in range(self.image_count - self._config.entries):
            self._drop_oldest(max(self._shelves.values(), key=lambda shelf: len(shelf.images)))

    def _drop_oldest(self, shelf: _Shelf) -> None:
        _, (fd, nbytes) = shelf.images.popitem(last=False)
        os.close(fd)
        shelf.nbytes -= nbytes
        self.nbytes -= nbytes

    def _forget_if_empty(self, shelf: _Shelf) -> None:
        if not shelf.images and shelf.session_count == 0:
            del self._shelves[shelf.owner.tenant]
            shelf.owner.close()


def verify(fd: int, digest: bytes, nbytes: int) -> None:
    """Verify that a file can never change, and that its bytes have the digest `digest`. May take long.

    Raises:
        ImageRefused: the file fails a check.
    """
    try:
        if fcntl.fcntl(fd, _F_GET_SEALS) & _SEALS != _SEALS:
            raise ImageRefused("the file is not sealed")
    except OSError as error:
        raise ImageRefused("the file is not a memfd") from error
    if os.fstat(fd).st_size != nbytes + PADDING_NBYTES:
        raise ImageRefused("the file has another size")
    try:
        mapped = mmap.mmap(fd, nbytes + PADDING_NBYTES, mmap.MAP_PRIVATE, mmap.PROT_READ)
    except OSError as error:  # such as a file of huge pages
        raise ImageRefused(f"the file cannot be mapped: {error.strerror}") from error
    with mapped, memoryview(mapped) as view:
        with view[:nbytes] as image:
            if image_digest(image) != digest:
                raise ImageRefused("its bytes have another digest")
        with view[nbytes:] as padding:
            if any(padding):
                raise ImageRefused("it does not end in zeros")
