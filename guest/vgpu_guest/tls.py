"""TLS around a connection to vgpud, for TCP: both ends carry bytes between a TLS stream and a local one.

The guest's end is `vgpu connect`, the host's vgpud/tls/relay.py. The libraries know nothing of TLS.
"""

from __future__ import annotations

import asyncio
import ssl

_PART_NBYTES = 256 * 1024


def client_context(ca: str | None, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Client context; verifies the host's certificate by the system's authorities or by `ca`. Raises OSError."""
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def server_context(certificate: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Host context; with `client_ca` a client needs a certificate of that authority. Raises OSError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def carry(one: Streams, other: Streams) -> None:
    """Copy bytes both ways until either side ends. Bytes already read are delivered; then both are closed."""
    ways = [asyncio.create_task(_way(one[0], other[1])), asyncio.create_task(_way(other[0], one[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        for _reader, writer in (one, other):
            writer.close()


async def _way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(_PART_NBYTES):
        writer.write(part)
        await writer.drain()
