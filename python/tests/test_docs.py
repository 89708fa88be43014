"""The programs of `docs/python.md` run as printed."""

from __future__ import annotations

import pytest

from .conftest import ROOT, Server

PROGRAMS = [block.split("```")[0] for block in (ROOT / "docs/python.md").read_text().split("```python\n")[1:]]


def test_the_document_has_programs() -> None:
    assert len(PROGRAMS) == 4


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: text.strip().split("\n")[0])
def test_the_program_runs(program: str, simulated: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "python")
    monkeypatch.setenv("MUSTER_SERVER", simulated.url)
    exec(compile(program, "docs/python.md", "exec"), {"__name__": "__main__"})


def test_the_programs_print_the_documented_values(simulated: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "python")
    printed: list[str] = []
    names = {"print": lambda *words, **_: printed.append(" ".join(map(str, words)))}
    exec(compile(PROGRAMS[1], "docs/python.md", "exec"), names)
    assert printed[:3] == ["['score']", "6", "{'pools': {}, 'schedules': {}}"]
    assert printed[3].startswith("score.gsky 3 ")
    monkeypatch.setenv("MUSTER_SERVER", simulated.url)
    printed.clear()
    exec(compile(PROGRAMS[3], "docs/python.md", "exec"), names)
    assert printed == ["['completed', 'completed', 'completed', 'completed']"]
