"""Why something was not done."""

from __future__ import annotations

import json
from http import HTTPStatus

_LINE_MAX = 200
"""Letters of an answer that is not ours, to show who answered."""


class MusterError(Exception):
    """Why something was not done: in the server's words, or why there are none."""

    code: str
    """Stable across releases. `unreachable`, `untrusted`, `dropped` and `silent` mean that no answer came."""
    detail: str
    """What happened, in a sentence for people."""
    hint: str | None
    """The next thing to try, where there is one."""
    status: int | None
    """The HTTP status, where the server answered."""

    def __init__(self, code: str, detail: str, hint: str | None = None, status: int | None = None) -> None:
        super().__init__(code, detail, hint, status)
        self.code, self.detail, self.hint, self.status = code, detail, hint, status

    def __str__(self) -> str:
        return f"{self.detail} (try: {self.hint})" if self.hint else self.detail

    @property
    def may_pass(self) -> bool:
        """Whether the same call may succeed in a moment, so that it is worth sending again."""
        return self.code in ("dropped", "silent") or self.status == HTTPStatus.SERVICE_UNAVAILABLE

    @property
    def is_away(self) -> bool:
        """Whether the server is not there, perhaps only for a moment."""
        return self.may_pass or self.code == "unreachable"


def declined(status: int, body: bytes) -> MusterError:
    """An answer that is not a success."""
    try:
        problem = json.loads(body)
        return MusterError(problem["code"], problem["detail"], problem.get("hint"), status)
    except (ValueError, KeyError, TypeError, AttributeError):
        return MusterError("not-ours", _plain_words(status, body), None, status)


def _plain_words(status: int, body: bytes) -> str:
    """Something that is not ours answered, or a proxy in between."""
    lines = (line.strip() for line in body.decode(errors="replace").splitlines())
    line = next(filter(None, lines), "")[:_LINE_MAX]
    return f"the server answers {status}: {line}" if line else f"the server answers {status}"
