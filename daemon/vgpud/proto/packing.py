"""msgpack with the options that all maps of vgpu use. The only file that imports it (it ships no types)."""

from __future__ import annotations

from typing import Any

import msgpack  # type: ignore[import-untyped]

Map = dict[str, Any]


def pack_map(fields: Map) -> bytes:
    """`fields` as msgpack; str and bytes stay distinct. Raises TypeError or ValueError for what msgpack cannot hold."""
    packed: bytes = msgpack.packb(fields, use_bin_type=True)
    return packed


def unpack_map(data: bytes) -> Map:
    """Decode `data`, which must be exactly one map with string keys.

    msgpack bounds every announced length by the length of `data`, and nesting by its own stack, so few bytes cannot
    allocate much.

    Raises:
        ValueError: anything else.
    """
    try:
        fields = msgpack.unpackb(data, raw=False, strict_map_key=True)
    except Exception as error:  # ValueError for most input, but timestamps and extensions raise others
        raise ValueError(f"not msgpack ({type(error).__name__})") from error
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise ValueError("not a map with string keys")
    return fields
