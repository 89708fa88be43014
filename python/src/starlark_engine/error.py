"""What is wrong with a policy, and where."""

from __future__ import annotations


class PolicyError(Exception):
    """A policy does not run."""

    file: str
    """In which file."""
    line: int | None
    """Counted from one; none where nobody knows."""
    column: int | None
    """Counted from one; none where nobody knows."""
    what: str
    """What is wrong."""

    def __init__(self, file: str, line: int | None, column: int | None, what: str) -> None:
        super().__init__(file, line, column, what)
        self.file, self.line, self.column, self.what = file, line, column, what

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}:{self.column}"
        return f"{place}: {self.what}"
