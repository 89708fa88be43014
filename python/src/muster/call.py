"""Requests, and the parser of event streams; shared by both clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote, urlencode

from muster.connection import Connection

CONNECT_SECONDS = 5.0
"""Timeout of a connection attempt."""
CALL_SECONDS = 60.0
"""Timeout of a response. An event stream sends something at least every 15 seconds."""
JSON = "application/json"
EVENTS = "text/event-stream"


def _agent() -> str:
    try:
        return f"muster-python/{version('muster')}"
    except PackageNotFoundError:
        return "muster-python"


_AGENT = _agent()


@dataclass(frozen=True)
class Call:
    """A request as data, so that it can be sent again."""

    method: str
    target: str
    body: bytes | None = None
    key: str | None = None
    accept: str = JSON

    def path(self, connection: Connection) -> str:
        """The request path, below the base path of the server."""
        return f"{connection.base}{self.target}"

    def headers(self, connection: Connection) -> dict[str, str]:
        """All headers except the content length."""
        headers = {"Host": connection.authority, "User-Agent": _AGENT, "Accept": self.accept}
        headers["Connection"] = "close"
        if connection.token:
            headers["Authorization"] = f"Bearer {connection.token}"
        if self.key:
            headers["Idempotency-Key"] = self.key
        if self.body is not None:
            headers["Content-Type"] = JSON
        return headers


@dataclass(frozen=True)
class Pause:
    """A pause between two requests."""

    seconds: float


def target(*segments: str, **query: Any) -> str:
    """A path under `/api/v1` with quoted segments. Query parameters that are `None` are left out."""
    path = "/".join(_quoted_segment(segment) for segment in segments)
    given = {key: _query_value(value) for key, value in query.items() if value is not None}
    return f"/api/v1/{path}?{urlencode(given)}" if given else f"/api/v1/{path}"


def _quoted_segment(text: str) -> str:
    """A quoted segment. Dots alone are quoted too, or they would leave the path."""
    return text.replace(".", "%2E") if text and not text.strip(".") else quote(text, safe="")


def _query_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Message:
    """One server-sent event."""

    event: str
    data: Any


class EventReader:
    """Splits bytes into server-sent events."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = "message"
        self._data: list[str] = []

    def push(self, piece: bytes) -> Iterator[Message]:
        """Add bytes, and return the events that are complete."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield from self._read_line(line.rstrip(b"\r").decode(errors="replace"))

    def _read_line(self, line: str) -> Iterator[Message]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif not line:
            # Comments, which keep the connection alive, are events without data.
            if self._data:
                yield Message(self._event, json.loads("\n".join(self._data)))
            self._event, self._data = "message", []
