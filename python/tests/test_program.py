"""Policy functions called with Python values."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from starlark_engine import PolicyError, Program

ECHO = Program(
    {"echo.gsky": "def echo(value):\n    return value\ndef show(value):\n    return repr(value)\n"}
)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        2**63 - 1,
        -(2**63),
        1.5,
        float("inf"),
        "",
        "grüße 🚀 \0",
        [],
        [1, [2, (3,)]],
        (),
        (1, "a"),
        {},
        {"a": 1, 2: "b", (1, 2): None, None: [], True: 3},
    ],
)
def test_values_go_in_and_come_out_as_they_were(value: Any) -> None:
    said = ECHO.call("echo", value)
    assert said == value and type(said) is type(value)
    assert ECHO.call("show", value) in (repr(value), repr(value).replace("'", '"')) or not isinstance(
        value, (int, list)
    )


def test_a_flag_is_no_number_inside_of_values() -> None:
    assert [type(item) for item in ECHO.call("echo", [True, 1, 1.0])] == [bool, int, float]
    assert ECHO.call("show", [True, 1, 1.0]) == "[True, 1, 1.0]"


def test_a_dict_keeps_its_order() -> None:
    assert list(ECHO.call("echo", {"b": 1, "a": 2, "c": 3})) == ["b", "a", "c"]


def test_a_program_tells_its_functions_and_what_it_registers(policies: Path) -> None:
    (policies / "score.gsky").write_text(
        "def score(job, node):\n    return job['gpus'] * 10 + node['free']\n"
    )
    (policies / "score_test.gsky").write_text("def test_score():\n    pass\n")
    (policies / "notes.txt").write_text("not a policy (")
    program = Program.from_dir(policies)
    assert "score" in program.functions and "test_score" not in program.functions
    assert len(program.rules["pools"]) == 3 and len(program.rules["schedules"]) == 3
    assert program.call("score", {"gpus": 4}, {"free": 2}) == 42


def test_files_load_from_each_other() -> None:
    files = {"lib.gsky": "def double(n):\n    return 2 * n\n"}
    files["main.gsky"] = "load('lib.gsky', 'double')\ndef four(n):\n    return double(double(n))\n"
    assert Program(files).call("four", 3) == 12


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [("x = (", 1, 6), ("def f():\n    return g()\n", 2, 12), ("gpu_pool(nam = 'x')\n", 1, 1)],
)
def test_what_is_wrong_is_told_with_its_place(source: str, line: int, column: int) -> None:
    with pytest.raises(PolicyError) as caught:
        Program({"wrong.gsky": source})
    error = caught.value
    assert (error.file, error.line, error.column) == ("wrong.gsky", line, column)
    assert str(error) == f"wrong.gsky:{line}:{column}: {error.what}"


def test_a_call_that_fails_says_where() -> None:
    program = Program({"p.gsky": "def half(n):\n    return n // 0\n"})
    with pytest.raises(PolicyError) as caught:
        program.call("half", 4)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("p.gsky", 2, 12)
    with pytest.raises(PolicyError, match="n"):
        program.call("half")


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="nowhere: cannot be read") as caught:
        Program.from_dir(tmp_path / "nowhere")
    assert caught.value.line is None


def test_a_function_nobody_tells_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no function `nope`; the functions are echo, show"):
        ECHO.call("nope")


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (object(), TypeError),
        (b"bytes", TypeError),
        ({1, 2}, TypeError),
        (1j, TypeError),
        (len, TypeError),
        (2**63, ValueError),
        ("\ud800", ValueError),
        ({"a": object()}, TypeError),
        ({object(): 1}, TypeError),
    ],
)
def test_what_is_no_plain_value_is_refused(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ECHO.call("echo", value)


def test_values_that_never_end_are_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    bush: list[Any] = []
    bush.extend([bush] * 50)
    loop: dict[str, Any] = {}
    loop["self"] = loop
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (ring, bush, loop, deep):
        with pytest.raises(ValueError, match=r"nested|more than"):
            ECHO.call("echo", value)
    wide = [0] * 1_000_001
    with pytest.raises(ValueError, match="more than 1000000 values"):
        ECHO.call("echo", wide)


def test_a_subclass_counts_as_what_it_is() -> None:
    class Text(str):
        pass

    class Count(int):
        pass

    class Table(dict[str, int]):
        def __iter__(self) -> Any:
            raise AssertionError("nothing of Python runs while a dict is read")

    assert ECHO.call("echo", [Text("a"), Count(3), Table(a=1)]) == ["a", 3, {"a": 1}]


def test_a_repr_that_fails_does_not_hide_the_refusal() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(TypeError, match="Rude"):
        ECHO.call("echo", Rude())


@pytest.mark.parametrize(
    "body",
    [
        "x = 0\n    for i in range(100000000):\n        x += i\n    return x",
        "x = []\n    for i in range(100000000):\n        x.append('a' * 1000)\n    return x",
        "return len",
    ],
)
def test_a_hostile_function_is_stopped(body: str) -> None:
    program = Program({"h.gsky": f"def hostile():\n    {body}\n"})
    with pytest.raises(PolicyError):
        program.call("hostile")


def test_threads_may_share_a_program() -> None:
    program = Program(
        {"p.gsky": "def sum(n):\n    s = 0\n    for i in range(n):\n        s += i\n    return s\n"}
    )
    said: list[int] = []
    work = [threading.Thread(target=lambda: said.append(program.call("sum", 20_000))) for _ in range(8)]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert said == [sum(range(20_000))] * 8


def test_nothing_is_kept_of_the_values_of_a_call() -> None:
    value: list[object] = ["a text of its own"]
    before = sys.getrefcount(value)
    for _ in range(100):
        ECHO.call("echo", value)
    assert sys.getrefcount(value) == before
