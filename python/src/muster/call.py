"""What is sent, and how answers are cut: shared by both clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from urllib.parse import quote, urlencode

from muster.connection import Connection

CONNECT_SECONDS = 5.0
"""Nobody waits longer than this for a machine that does not answer."""
CALL_SECONDS = 60.0
"""How long an answer may take. A stream that is followed says something at least every 15 seconds."""
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
    """A request before it is sent; kept whole so that it can be sent again."""

    method: str
    target: str
    body: bytes | None = None
    key: str | None = None
    accept: str = JSON

    def path(self, connection: Connection) -> str:
        """A path below the server's own."""
        return f"{connection.base}{self.target}"

    def headers(self, connection: Connection) -> dict[str, str]:
        """All but the length of the body."""
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
    """Wait, in seconds."""

    seconds: float


def target(*steps: str, **query: Any) -> str:
    """A path under `/api/v1`, written so that no name can break out of it. What is `None` is left out."""
    path = "/".join(_step(step) for step in steps)
    said = {key: _written(value) for key, value in query.items() if value is not None}
    return f"/api/v1/{path}?{urlencode(said)}" if said else f"/api/v1/{path}"


def _step(text: str) -> str:
    """A step of dots alone would be a way out."""
    return text.replace(".", "%2E") if text and not text.strip(".") else quote(text, safe="")


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class Message:
    """One server-sent event."""

    event: str
    data: Any


class EventReader:
    """Cuts bytes into events."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = "message"
        self._data: list[str] = []

    def push(self, piece: bytes) -> Iterator[Message]:
        """Take some bytes, and give the events that are whole now."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            yield from self._take(line.rstrip(b"\r").decode(errors="replace"))

    def _take(self, line: str) -> Iterator[Message]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif not line:
            # Comments, which keep the connection awake, are events without data.
            if self._data:
                yield Message(self._event, json.loads("\n".join(self._data)))
            self._event, self._data = "message", []
