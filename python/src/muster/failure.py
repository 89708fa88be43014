"""Errors of requests without a response."""

from __future__ import annotations

import ssl

from muster.call import CALL_SECONDS, CONNECT_SECONDS
from muster.connection import Connection
from muster.error import MusterError


def unreachable(connection: Connection, error: Exception) -> MusterError:
    """The connection failed: nothing was sent."""
    why = _reason(error)
    hint = "start one with `muster dev`, or name another with `url` or MUSTER_SERVER"
    return MusterError("unreachable", f"cannot reach {connection.url}: {why}", hint)


def untrusted(connection: Connection, error: ssl.SSLError) -> MusterError:
    """The certificate of the server is not trusted: nothing was sent."""
    why = getattr(error, "verify_message", "") or error.reason or str(error)
    hint = "name its certificate authority with `ca_file` or MUSTER_CA_FILE"
    return MusterError("untrusted", f"cannot trust {connection.url}: {why}", hint)


def dropped(connection: Connection, error: Exception) -> MusterError:
    """The connection broke: the server may or may not have acted."""
    return MusterError("dropped", f"the connection to {connection.url} broke: {_reason(error)}")


def silent(connection: Connection) -> MusterError:
    """The response timed out."""
    return MusterError("silent", f"{connection.url} did not answer within {CALL_SECONDS:.0f} s")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_SECONDS:.0f} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return str(error) or type(error).__name__
