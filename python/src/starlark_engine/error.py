"""Errors of policies, with their position."""

from __future__ import annotations


class PolicyError(Exception):
    """A policy does not compile, or a call of it fails."""

    file: str
    """The file of the policy."""
    line: int | None
    """Counted from one; None if the position is unknown."""
    column: int | None
    """Counted from one; None if the position is unknown."""
    what: str
    """The error message."""

    def __init__(self, file: str, line: int | None, column: int | None, what: str) -> None:
        super().__init__(file, line, column, what)
        self.file, self.line, self.column, self.what = file, line, column, what

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.what}"
