"""HTTP/1.1 over an asyncio stream: one request at a time, of bounded size and time. h11 implements the protocol, this
module the I/O.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

_READ_NBYTES = 64 * 1024
_BODY_NBYTES = 64 * 1024
_HEAD_NBYTES = 16 * 1024
_TIMEOUT_S = (
    10.0  # limit for the rest of a request that has begun, for reading an answer, and for each part of a stream
)
_IDLE_S = 60.0


class HttpError(Exception):
    """An answer that is not a success: `status` and one line with the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request. `path` is decoded and split at its slashes."""

    method: str
    path: tuple[str, ...]
    query: dict[str, str]
    body: bytes
    by: str = ""  # who made it, for the audit log

    def document(self) -> dict[str, Any]:
        """The body as a JSON object; no body is an empty one. Raises HttpError."""
        try:
            found = json.loads(self.body or b"{}")
        except ValueError as error:
            raise HttpError(400, f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise HttpError(400, "the body is not a JSON object")
        return found


@dataclass(frozen=True, slots=True)
class Response:
    """One answer: a document, or text, or a stream of documents that ends with the connection."""

    status: int = 200
    document: object = None
    text: bytes = b""
    content_type: str = "application/json"
    stream: AsyncIterator[object] | None = field(default=None, compare=False)

    def body(self) -> bytes:
        """The bytes to send, if the answer is not a stream."""
        return self.text or json.dumps(self.document).encode() + b"\n"


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Callable[[Request], Awaitable[Response]]
) -> None:
    """Answer the requests of one connection until it ends, errs or falls silent. `answer` may raise HttpError."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_NBYTES)
    try:
        while True:
            request = await _receive(reader, connection)
            if request is None:
                return
            try:
                response = await answer(request)
            except HttpError as error:
                response = Response(error.status, {"error": str(error)})
            await _send(writer, connection, response, head_only=request.method == "HEAD")
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        if connection.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            status = error.error_status_hint
            await _send(writer, connection, Response(status, {"error": str(error)}))
    except HttpError as error:
        await _send(writer, connection, Response(error.status, {"error": str(error)}))


async def _receive(reader: asyncio.StreamReader, connection: h11.Connection) -> Request | None:
    """The next request; None at the end. Raises HttpError, h11.RemoteProtocolError, OSError or TimeoutError."""
    head: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(_IDLE_S if head is None else _TIMEOUT_S):
                connection.receive_data(await reader.read(_READ_NBYTES))
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > _BODY_NBYTES:
                raise HttpError(413, f"the body is over {_BODY_NBYTES} bytes")
        elif isinstance(event, h11.EndOfMessage) and head is not None:
            break
        else:
            return None  # the peer closed, or stopped reading
    target = urlsplit(head.target.decode("ascii", "replace"))
    path = tuple(unquote(part) for part in target.path.split("/")[1:])
    return Request(head.method.decode("ascii"), path, dict(parse_qsl(target.query)), bytes(body))


async def _send(
    writer: asyncio.StreamWriter, connection: h11.Connection, response: Response, *, head_only: bool = False
) -> None:
    headers = [("Content-Type", response.content_type)]
    if response.stream is None:
        body = response.body()
        headers.append(("Content-Length", str(len(body))))
        await _write(writer, connection, h11.Response(status_code=response.status, headers=headers))
        await _write(writer, connection, *([] if head_only else [h11.Data(data=body)]), h11.EndOfMessage())
        return
    headers.append(("Connection", "close"))
    await _write(writer, connection, h11.Response(status_code=response.status, headers=headers))
    async for document in response.stream:
        await _write(writer, connection, h11.Data(data=json.dumps(document).encode() + b"\n"))
    await _write(writer, connection, h11.EndOfMessage())


async def _write(writer: asyncio.StreamWriter, connection: h11.Connection, *events: Any) -> None:
    for event in events:
        if data := connection.send(event):
            writer.write(data)
    async with asyncio.timeout(_TIMEOUT_S):
        await writer.drain()
