"""Bounded decompression of fatbin payloads: memory is allocated for actual output, not for the size in a header."""

from typing import Protocol

import lz4.block  # type: ignore[import-untyped]
import zstandard
from vgpu_guest.fatbin import Compression

from vgpusim.image.error import INVALID_IMAGE, ImageError

MAX_OUTPUT_NBYTES = 256 << 20
"""The most one image may hold after decompression; the largest PTX entry met in practice (ggml) is below 4 MiB."""

_PIECE_NBYTES = 1 << 20
_ZSTD_WINDOW_NBYTES = 8 << 20
_LZ4_RATIO = 255  # an LZ4 byte stands for at most this many


class _Reader(Protocol):
    def read(self, size: int) -> bytes: ...


def decompress(compression: Compression, data: bytes, nbytes: int, cap_nbytes: int = MAX_OUTPUT_NBYTES) -> bytes:
    """The uncompressed payload.

    Args:
        data: Exactly the compressed bytes, without padding.
        nbytes: The size that the entry declares; ignored for NONE.
        cap_nbytes: The largest allowed size of the payload.
    Raises:
        ImageError: INVALID_IMAGE if the stream is damaged, its size is not `nbytes`, or it is above the cap.
    """
    if compression is Compression.NONE:
        nbytes = len(data)
    if nbytes > cap_nbytes:
        raise ImageError(INVALID_IMAGE, f"an image entry of {nbytes} bytes exceeds {cap_nbytes}")
    if compression is Compression.NONE:
        return data
    if compression is Compression.LZ4:
        return _lz4(data, nbytes)
    return _zstd(data, nbytes)


def _lz4(data: bytes, nbytes: int) -> bytes:
    # The decoder allocates the declared size at once: refuse what the input cannot possibly hold.
    if nbytes > _LZ4_RATIO * len(data) + 16:
        raise ImageError(INVALID_IMAGE, f"LZ4 payload: {len(data)} bytes cannot hold {nbytes}")
    try:
        output = lz4.block.decompress(data, uncompressed_size=nbytes)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError) as error:
        raise ImageError(INVALID_IMAGE, f"LZ4 payload: {error}") from error
    if len(output) != nbytes:
        raise ImageError(INVALID_IMAGE, f"LZ4 payload: {len(output)} bytes where {nbytes} were declared")
    return bytes(output)


def _zstd(data: bytes, nbytes: int) -> bytes:
    # Streaming, since one-shot decompression trusts the size written in the frame. Encoders choose a window of the size
    # of the content or, not knowing it, of at most 8 MiB.
    window_nbytes = max(2 * nbytes, _ZSTD_WINDOW_NBYTES)
    reader: _Reader = zstandard.ZstdDecompressor(max_window_size=window_nbytes).stream_reader(data)
    output = bytearray()
    try:
        while piece := reader.read(min(_PIECE_NBYTES, nbytes + 1 - len(output))):
            output += piece
    except zstandard.ZstdError as error:
        raise ImageError(INVALID_IMAGE, f"Zstd payload: {error}") from error
    if len(output) != nbytes:
        found = "more" if len(output) > nbytes else f"{len(output)} bytes"
        raise ImageError(INVALID_IMAGE, f"Zstd payload: {found} where {nbytes} were declared")
    return bytes(output)
