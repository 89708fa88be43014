"""One request to the server, on the event loop of the caller."""

from __future__ import annotations

import asyncio
import http.client
import io
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable

from muster.call import CALL_SECONDS, CONNECT_SECONDS, Call
from muster.connection import Connection
from muster.error import MusterError, response_error
from muster.failure import dropped, silent, unreachable, untrusted

_PIECE_BYTES = 1 << 16


async def bytes_of(connection: Connection, call: Call) -> AsyncGenerator[bytes, None]:
    """The body of a successful response, in pieces as they arrive."""
    request = _request_bytes(connection, call)
    link = _Link(*await _open(connection))
    try:
        link.writer.write(request)
        status, headers = _parse_head(await link.with_timeout(link.reader.readuntil(b"\r\n\r\n")))
        pieces = link.body(headers)
        if status >= http.HTTPStatus.MULTIPLE_CHOICES:
            raise response_error(status, b"".join([piece async for piece in pieces]))
        async for piece in pieces:
            yield piece
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, http.client.HTTPException) as error:
        raise (silent(connection) if link.is_silent else dropped(connection, error)) from error
    finally:
        link.writer.close()


class _Link:
    """A connection, and whether the server stopped sending on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.is_silent = reader, writer, False

    async def with_timeout(self, reading: Awaitable[bytes]) -> bytes:
        """The bytes read. A timeout aborts the connection; streams send at least every 15 seconds."""
        # `asyncio.wait_for` of Python 3.10 and 3.11 can lose a cancellation; a timer that aborts cannot.
        timer = asyncio.get_running_loop().call_later(CALL_SECONDS, self._abort)
        try:
            piece = await reading
        finally:
            timer.cancel()
        if self.is_silent:
            raise EOFError
        return piece

    def _abort(self) -> None:
        self.is_silent = True
        self.writer.transport.abort()

    async def body(self, headers: http.client.HTTPMessage) -> AsyncIterator[bytes]:
        """The body: chunked, with a content length, or until the connection closes."""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self.with_timeout(self.reader.readline())).split(b";")[0], 16):
                yield await self.with_timeout(self.reader.readexactly(size))
                await self.with_timeout(self.reader.readexactly(2))
        elif (length := headers.get("content-length")) is not None:
            yield await self.with_timeout(self.reader.readexactly(int(length)))
        else:
            while piece := await self.with_timeout(self.reader.read(_PIECE_BYTES)):
                yield piece


async def _open(connection: Connection) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, with the TLS handshake."""
    opening = asyncio.ensure_future(
        asyncio.open_connection(connection.host, connection.port, ssl=connection.tls)
    )
    try:
        done, _ = await asyncio.wait({opening}, timeout=CONNECT_SECONDS)
    except asyncio.CancelledError:
        opening.add_done_callback(_close)
        raise
    finally:
        opening.cancel()
    if not done:
        raise unreachable(connection, TimeoutError())
    try:
        return opening.result()
    except ssl.SSLError as error:
        raise untrusted(connection, error) from error
    except OSError as error:
        raise unreachable(connection, error) from error


def _close(opened: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    """Close a connection that was opened after its caller was cancelled."""
    if not opened.cancelled() and opened.exception() is None:
        opened.result()[1].close()


def _request_bytes(connection: Connection, call: Call) -> bytes:
    headers = {**call.headers(connection), "Content-Length": str(len(call.body or b""))}
    lines = [
        f"{call.method} {call.path(connection)} HTTP/1.1",
        *(f"{key}: {value}" for key, value in headers.items()),
    ]
    for line in lines:
        if "\r" in line or "\n" in line:
            raise MusterError("malformed", "a header must not contain a line break")
    return "\r\n".join([*lines, "", ""]).encode() + (call.body or b"")


def _parse_head(head: bytes) -> tuple[int, http.client.HTTPMessage]:
    """The status and the headers."""
    lines = io.BytesIO(head)
    words = lines.readline().split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise ValueError("the response is not HTTP")
    return int(words[1]), http.client.parse_headers(lines)
