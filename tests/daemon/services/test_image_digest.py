"""The image digest's definition on a few leaves, and values that must not change: guests may be older than hosts."""

from __future__ import annotations

import hashlib

from vgpud.services.image_digest import NBYTES, image_digest

LEAF = 16384


def node(data: bytes, offset: int, depth: int, last: bool) -> bytes:
    tree = {"fanout": 0, "depth": 2, "leaf_size": LEAF, "inner_size": NBYTES}
    tree |= {"node_offset": offset, "node_depth": depth, "last_node": last}
    return hashlib.blake2b(data, digest_size=NBYTES, **tree).digest()


def test_two_leaves_and_their_root():
    data = bytes(range(256)) * 100
    leaves = node(data[:LEAF], 0, 0, False) + node(data[LEAF:], 1, 0, True)
    assert image_digest(data) == node(leaves, 0, 1, True)
    assert image_digest(memoryview(data)) == image_digest(data)


def test_leaves_cannot_be_passed_off_as_an_image():
    data = bytes(2 * LEAF)
    leaves = node(data[:LEAF], 0, 0, False) + node(data[LEAF:], 1, 0, True)
    assert image_digest(leaves) != image_digest(data)


def test_known_values():
    assert image_digest(b"").hex() == "02e3151ad3b859e9cb7cd152f9199fbb0a3b921bceb40885348534a1b38669dc"
    assert image_digest(b"abc" * 10_000).hex() == "a678132ec142842ecb54b757122d3a732e2654dd78097dc70b801331f1beda8a"
