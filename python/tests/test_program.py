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
def test_values_keep_their_value_and_type_through_a_call(value: Any) -> None:
    result = ECHO.call("echo", value)
    assert result == value and type(result) is type(value)
    assert ECHO.call("show", value) in (repr(value), repr(value).replace("'", '"')) or not isinstance(
        value, (int, list)
    )


def test_a_nested_bool_is_not_converted_to_a_number() -> None:
    assert [type(item) for item in ECHO.call("echo", [True, 1, 1.0])] == [bool, int, float]
    assert ECHO.call("show", [True, 1, 1.0]) == "[True, 1, 1.0]"


def test_a_dict_keeps_its_order() -> None:
    assert list(ECHO.call("echo", {"b": 1, "a": 2, "c": 3})) == ["b", "a", "c"]


def test_a_program_lists_its_functions_and_registered_rules(policies: Path) -> None:
    (policies / "score.gsky").write_text(
        "def score(job, node):\n    return job['gpus'] * 10 + node['free']\n"
    )
    (policies / "score_test.gsky").write_text("def test_score():\n    pass\n")
    (policies / "notes.txt").write_text("not a policy (")
    program = Program.from_dir(policies)
    assert "score" in program.functions and "test_score" not in program.functions
    assert len(program.rules["pools"]) == 3 and len(program.rules["schedules"]) == 3
    assert program.call("score", {"gpus": 4}, {"free": 2}) == 42


def test_a_file_can_load_functions_of_another_file() -> None:
    files = {"lib.gsky": "def double(n):\n    return 2 * n\n"}
    files["main.gsky"] = "load('lib.gsky', 'double')\ndef four(n):\n    return double(double(n))\n"
    assert Program(files).call("four", 3) == 12


@pytest.mark.parametrize(
    ("source", "line", "column"),
    [("x = (", 1, 6), ("def f():\n    return g()\n", 2, 12), ("gpu_pool(nam = 'x')\n", 1, 1)],
)
def test_a_compile_error_has_its_position(source: str, line: int, column: int) -> None:
    with pytest.raises(PolicyError) as caught:
        Program({"wrong.gsky": source})
    error = caught.value
    assert (error.file, error.line, error.column) == ("wrong.gsky", line, column)
    assert str(error) == f"wrong.gsky:{line}:{column}: {error.what}"


def test_a_failed_call_has_its_position() -> None:
    program = Program({"p.gsky": "def half(n):\n    return n // 0\n"})
    with pytest.raises(PolicyError) as caught:
        program.call("half", 4)
    assert (caught.value.file, caught.value.line, caught.value.column) == ("p.gsky", 2, 12)
    with pytest.raises(PolicyError, match="n"):
        program.call("half")


def test_a_missing_folder_is_a_policy_error(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="nowhere: cannot be read") as caught:
        Program.from_dir(tmp_path / "nowhere")
    assert caught.value.line is None


def test_an_unknown_function_is_an_attribute_error() -> None:
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
def test_unsupported_values_are_refused(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        ECHO.call("echo", value)


def test_cyclic_deep_and_large_values_are_refused() -> None:
    cyclic_list: list[Any] = []
    cyclic_list.append(cyclic_list)
    branching_list: list[Any] = []
    branching_list.extend([branching_list] * 50)
    cyclic_dict: dict[str, Any] = {}
    cyclic_dict["self"] = cyclic_dict
    deep_list: list[Any] = []
    for _ in range(100_000):
        deep_list = [deep_list]
    for value in (cyclic_list, branching_list, cyclic_dict, deep_list):
        with pytest.raises(ValueError, match=r"nested|more than"):
            ECHO.call("echo", value)
    long_list = [0] * 1_000_001
    with pytest.raises(ValueError, match="more than 1000000 values"):
        ECHO.call("echo", long_list)


def test_an_instance_of_a_subclass_is_converted_as_its_base_type() -> None:
    class Text(str):
        pass

    class Count(int):
        pass

    class Table(dict[str, int]):
        def __iter__(self) -> Any:
            raise AssertionError("no Python code may run while a dict is converted")

    assert ECHO.call("echo", [Text("a"), Count(3), Table(a=1)]) == ["a", 3, {"a": 1}]


def test_a_failing_repr_does_not_hide_the_type_error() -> None:
    class FailingRepr:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(TypeError, match="FailingRepr"):
        ECHO.call("echo", FailingRepr())


@pytest.mark.parametrize(
    "body",
    [
        "x = 0\n    for i in range(100000000):\n        x += i\n    return x",
        "x = []\n    for i in range(100000000):\n        x.append('a' * 1000)\n    return x",
        "return len",
    ],
)
def test_a_function_beyond_its_limits_or_with_an_unsupported_result_is_an_error(body: str) -> None:
    program = Program({"h.gsky": f"def hostile():\n    {body}\n"})
    with pytest.raises(PolicyError):
        program.call("hostile")


def test_threads_can_share_a_program() -> None:
    program = Program(
        {"p.gsky": "def sum(n):\n    s = 0\n    for i in range(n):\n        s += i\n    return s\n"}
    )
    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(program.call("sum", 20_000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [sum(range(20_000))] * 8


def test_a_call_keeps_no_reference_to_its_arguments() -> None:
    value: list[object] = ["a text of its own"]
    before = sys.getrefcount(value)
    for _ in range(100):
        ECHO.call("echo", value)
    assert sys.getrefcount(value) == before
