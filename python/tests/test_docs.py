"""The programs of `docs/python.md` run as printed."""

from __future__ import annotations

import pytest

from .conftest import ROOT, Server

PROGRAMS = [block.split("```")[0] for block in (ROOT / "docs/python.md").read_text().split("```python\n")[1:]]


def test_the_document_has_programs() -> None:
    assert len(PROGRAMS) == 4


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: text.strip().split("\n")[0])
def test_it_runs(program: str, simulated: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "python")
    monkeypatch.setenv("MUSTER_SERVER", simulated.url)
    exec(compile(program, "docs/python.md", "exec"), {"__name__": "__main__"})


def test_what_it_says_of_values_is_so(simulated: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "python")
    said: list[str] = []
    names = {"print": lambda *words, **_: said.append(" ".join(map(str, words)))}
    exec(compile(PROGRAMS[1], "docs/python.md", "exec"), names)
    assert said[:3] == ["['score']", "6", "{'pools': {}, 'schedules': {}}"]
    assert said[3].startswith("score.gsky 3 ")
    monkeypatch.setenv("MUSTER_SERVER", simulated.url)
    said.clear()
    exec(compile(PROGRAMS[3], "docs/python.md", "exec"), names)
    assert said == ["['completed', 'completed', 'completed', 'completed']"]
