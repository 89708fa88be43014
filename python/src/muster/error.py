"""Errors of requests."""

from __future__ import annotations

import json
from http import HTTPStatus

_LINE_MAX = 200
"""Characters shown of a response that muster did not send, to identify the sender."""


class MusterError(Exception):
    """A request failed: the refusal of the server, or the reason why there is no response."""

    code: str
    """Stable across releases. `unreachable`, `untrusted`, `dropped`, `silent`: there was no response."""
    detail: str
    """The error in a sentence for people."""
    hint: str | None
    """What to try next, or None."""
    status: int | None
    """The HTTP status, or None if there was no response."""

    def __init__(self, code: str, detail: str, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(code, detail, hint, status)
        self.code, self.detail, self.hint, self.status = code, detail, hint, status

    def __str__(self) -> str:
        return f"{self.detail} (try: {self.hint})" if self.hint else self.detail

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed if it is sent again shortly."""
        return self.code in ("dropped", "silent") or self.status == HTTPStatus.SERVICE_UNAVAILABLE

    @property
    def is_away(self) -> bool:
        """Whether the server is unavailable, perhaps only for a short time."""
        return self.may_pass or self.code == "unreachable"


def response_error(status: int, body: bytes) -> MusterError:
    """The error for a response whose status is not success."""
    try:
        problem = json.loads(body)
        return MusterError(problem["code"], problem["detail"], problem.get("hint"), status)
    except (ValueError, KeyError, TypeError, AttributeError):
        return MusterError("not-ours", _foreign_response_message(status, body), None, status)


def _foreign_response_message(status: int, body: bytes) -> str:
    """The message for a response of a proxy, or of a server that is not muster."""
    lines = (line.strip() for line in body.decode(errors="replace").splitlines())
    line = next(filter(None, lines), "")[:_LINE_MAX]
    return f"the server answers {status}: {line}" if line else f"the server answers {status}"
