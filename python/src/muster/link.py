"""One request to the server, synchronous."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator

from muster.call import CALL_SECONDS, CONNECT_SECONDS, Call
from muster.connection import Connection
from muster.error import response_error
from muster.failure import dropped, silent, unreachable, untrusted

_PIECE_BYTES = 1 << 16


def bytes_of(connection: Connection, call: Call) -> Iterator[bytes]:
    """The body of a successful response, in pieces as they arrive."""
    link = _open(connection)
    try:
        link.request(call.method, call.path(connection), call.body, call.headers(connection))
        response = link.getresponse()
        if response.status >= http.HTTPStatus.MULTIPLE_CHOICES:
            raise response_error(response.status, response.read())
        while piece := response.read1(_PIECE_BYTES):
            yield piece
    except TimeoutError:
        raise silent(connection) from None
    except (OSError, http.client.HTTPException) as error:
        raise dropped(connection, error) from error
    finally:
        link.close()


def _open(connection: Connection) -> http.client.HTTPConnection:
    """Connect, with the TLS handshake."""
    host, port, tls = connection.host, connection.port, connection.tls
    link = (
        http.client.HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        if tls is None
        else http.client.HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=tls)
    )
    try:
        link.connect()
    except ssl.SSLError as error:
        raise untrusted(connection, error) from error
    except OSError as error:
        raise unreachable(connection, error) from error
    link.sock.settimeout(CALL_SECONDS)
    return link
