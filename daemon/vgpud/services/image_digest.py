"""The digest that names an image (shim/cuda/vgs_digest.h): BLAKE2b in its tree mode, here by hashlib."""

from __future__ import annotations

import hashlib

NBYTES = 32
_LEAF_NBYTES = 16 * 1024


def image_digest(data: bytes | memoryview) -> bytes:
    """The 32 bytes that name `data`. Holds no lock of Python's while it hashes."""
    view = memoryview(data)
    root = _node(b"", offset=0, depth=1, is_last=True)
    for start in range(0, max(len(view), 1), _LEAF_NBYTES):
        is_last = start + _LEAF_NBYTES >= len(view)
        leaf = _node(view[start : start + _LEAF_NBYTES], offset=start // _LEAF_NBYTES, depth=0, is_last=is_last)
        root.update(leaf.digest())
    return root.digest()


def _node(data: bytes | memoryview, *, offset: int, depth: int, is_last: bool) -> hashlib.blake2b:
    return hashlib.blake2b(
        data,
        digest_size=NBYTES,
        fanout=0,
        depth=2,
        leaf_size=_LEAF_NBYTES,
        inner_size=NBYTES,
        node_offset=offset,
        node_depth=depth,
        last_node=is_last,
    )
