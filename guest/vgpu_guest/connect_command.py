"""`vgpu connect`: lets programs of this machine reach a vgpud over TLS, by a local socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
from pathlib import Path

import click

from .endpoint import EndpointError, TcpEndpoint, UnixEndpoint, parse_endpoint
from .exit_status import ExitStatus
from .tls import carry, client_context

_CONNECT_TIMEOUT_S = 10.0


@click.command()
@click.argument("host", metavar="tcp://HOST:PORT")
@click.option("--listen", metavar="unix:/PATH", required=True, help="Where programs connect: set VGPU_ENDPOINT to it.")
@click.option("--mode", default="0600", show_default=True, help="The socket's mode.")
@click.option(
    "--ca", type=click.Path(exists=True), help="Certificates of the host's authority.  [default: the system's]"
)
@click.option("--certificate", type=click.Path(exists=True), help="Our own, if the host asks for one.")
@click.option("--key", type=click.Path(exists=True), help="Its private key, if it is in another file.")
@click.option("--server-name", help="The name in the host's certificate.  [default: HOST]")
def connect(
    host: str, listen: str, mode: str, ca: str | None, certificate: str | None, key: str | None, server_name: str | None
) -> None:
    """Carry connections of programs on this machine to a vgpud on another one over TLS, until ended.

    Programs still need the token (VGPU_TOKEN, or guest.conf).
    """
    try:
        remote, local = parse_endpoint(host), parse_endpoint(listen, listening=True)
        if not isinstance(remote, TcpEndpoint):
            raise EndpointError(f"{host!r}: TLS is for tcp://HOST:PORT")
        if not isinstance(local, UnixEndpoint):
            raise EndpointError(f"{listen!r}: programs connect to unix:/PATH")
        bits = int(mode, 8)
        context = client_context(ca, certificate, key)
    except (EndpointError, ValueError) as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise click.UsageError(f"the certificates cannot be used: {error}") from error
    try:
        asyncio.run(_serve(remote, Path(local.path), bits, context, server_name or remote.host))
    except KeyboardInterrupt:
        pass
    except OSError as error:
        click.echo(f"vgpu connect: {listen}: {error.strerror or error}", err=True)
        sys.exit(ExitStatus.UNAVAILABLE)


async def _serve(remote: TcpEndpoint, path: Path, mode: int, context: ssl.SSLContext, name: str) -> None:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            host = await asyncio.wait_for(
                asyncio.open_connection(remote.host, remote.port, ssl=context, server_hostname=name), _CONNECT_TIMEOUT_S
            )
        except (TimeoutError, OSError) as error:
            reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or "no answer"
            click.echo(f"vgpu connect: {remote}: {reason}", err=True)
            writer.close()
            return
        with contextlib.suppress(OSError):  # one of the two peers closed its connection
            await carry((reader, writer), host)

    mask = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(take, str(path))
    finally:
        os.umask(mask)
    try:
        path.chmod(mode)
        click.echo(f"vgpu connect: {remote} is at unix:{path}", err=True)
        await server.serve_forever()
    finally:
        path.unlink(missing_ok=True)
