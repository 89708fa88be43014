"""The engine of the commissioning document, requirement by requirement."""

from __future__ import annotations

import runpy
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from starlark_engine import GPUInfo, PolicyEngine, Program

from .conftest import POLICIES, ROOT

RTX = "NVIDIA GeForce RTX 5070 Ti"


def gpu(**fields: Any) -> GPUInfo:
    """A GPU with 24 GB at 35 degrees, with these fields replaced."""
    cool: dict[str, Any] = {"id": 0, "name": RTX, "uuid": "GPU-00000000", "memory_gb": 24.0}
    return GPUInfo(**{**cool, "temperature_c": 35.0, "power_w": 10.0, **fields})


@pytest.fixture
def engine() -> PolicyEngine:
    engine = PolicyEngine(policy_dir=POLICIES)
    assert engine.load_all_policies() == 3
    return engine


def pool_engine(folder: Path, fields: str) -> PolicyEngine:
    """An engine with a single pool."""
    (folder / "one.gsky").write_text(f"gpu_ops.register_pool(gpu_pool({fields}))\n")
    engine = PolicyEngine(folder)
    assert engine.load_all_policies() == 1
    return engine


def test_the_example_of_the_readme_runs_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    blocks = (ROOT / "README.md").read_text().split("```python\n")[1:]
    example = next(block.split("```")[0] for block in blocks if "starlark_engine" in block)
    (tmp_path / "example.py").write_text(textwrap.dedent(example))
    monkeypatch.chdir(ROOT / "python")
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr() == ("Allocation result: True\n", "")


def test_s0_020_a_folder_can_be_named_and_is_policies_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PolicyEngine(policy_dir=str(POLICIES)).load_all_policies() == 3
    monkeypatch.chdir(ROOT)
    assert PolicyEngine().load_all_policies() == 3
    assert PolicyEngine(None).load_all_policies() == 3


def test_s0_021_all_policies_are_counted_and_a_missing_folder_has_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert PolicyEngine(tmp_path / "nowhere").load_all_policies() == 0
    (tmp_path / "good.gsky").write_text('gpu_ops.register_pool(gpu_pool(name = "any"))\n')
    (tmp_path / "bad.gsky").write_text("x = 1\ny = x +\n")
    (tmp_path / "other.star").write_text("nonsense (")
    engine = PolicyEngine(tmp_path)
    assert engine.load_all_policies() == 1
    assert list(engine.pools) == ["any"]
    (error,) = engine.errors
    assert error.startswith(f"{tmp_path}/bad.gsky:2:"), error
    assert capfd.readouterr() == ("", "")


def test_a_policy_is_loaded_as_named_or_inside_the_folder(policies: Path) -> None:
    engine = PolicyEngine(policies)
    assert engine.load_policy(policies / "basic.gsky") is True
    assert engine.load_policy("development.gsky") is True
    assert sorted(engine.pools) == ["gpu_pool_basic", "gpu_pool_dev"]
    assert engine.load_policy("nothing.gsky") is False
    assert engine.errors and "nothing.gsky" in engine.errors[0]


def test_s0_022_a_gpu_is_given_out_where_a_pool_has_it_and_it_is_what_is_asked(engine: PolicyEngine) -> None:
    it = gpu(tags=["high-perf"])
    asked = {"min_memory": 16, "tags": ["high-perf"]}
    assert engine.evaluate_allocation(gpu=it, requirements=asked) is True
    assert PolicyEngine(POLICIES).evaluate_allocation(it, asked) is False, "nothing is loaded"
    assert engine.evaluate_allocation(it, {"nobody_knows": object()}) is True


def test_s0_023_to_030_fields_are_there_and_can_be_set(engine: PolicyEngine) -> None:
    it = GPUInfo(3, RTX, "GPU-3", 24.0, 35.0, 10.0)
    assert (it.online, it.registered, it.pool, it.tags) == (True, False, "", [])
    assert it == GPUInfo(3, RTX, "GPU-3", 24.0, 35.0, 10.0) and it != gpu()
    assert "memory_gb=24.0" in repr(it)
    assert GPUInfo(3, RTX, "GPU-3", 24.0, 35.0, 10.0).tags is not it.tags
    it.tags.append("fast")
    assert engine.evaluate_allocation(it, {"tags": ["fast"]})
    it.pool = "nobody's"
    assert not engine.evaluate_allocation(it, {})
    it.pool = "gpu_pool_dev"
    assert engine.evaluate_allocation(it, {})


@pytest.mark.parametrize(("memory", "fits"), [(24.0, True), (16, True), (15.999, False), (8.0, False)])
def test_s0_027_and_031_memory(engine: PolicyEngine, memory: float, fits: bool) -> None:
    assert engine.evaluate_allocation(gpu(memory_gb=memory), {"min_memory": 16}) is fits


@pytest.mark.parametrize(("celsius", "fits"), [(85, True), (85.5, False), (90.0, False)])
def test_s0_028_temperature(tmp_path: Path, celsius: float, fits: bool) -> None:
    engine = pool_engine(tmp_path, "max_temp_c = 85")
    assert engine.evaluate_allocation(gpu(temperature_c=celsius), {}) is fits


def test_s0_029_power_is_a_field_that_policies_read(engine: PolicyEngine) -> None:
    thrifty = Program({"p.gsky": "def thrifty(gpu):\n    return gpu['power_w'] < 12.5\n"})
    assert thrifty.call("thrifty", asdict(gpu(power_w=12.4)))
    assert not thrifty.call("thrifty", asdict(gpu(power_w=12.5)))
    with pytest.raises(TypeError, match=r"GPUInfo\.power_w is 'much' \(str\); it must be a number"):
        engine.evaluate_allocation(gpu(power_w="much"), {})


@pytest.mark.parametrize(
    ("asked", "fits"), [([], True), (["a"], True), (("b", "a"), True), ({"a"}, True), (["a", "c"], False)]
)
def test_s0_030_and_032_tags(engine: PolicyEngine, asked: Any, fits: bool) -> None:
    assert engine.evaluate_allocation(gpu(tags=["a", "b"]), {"tags": asked}) is fits


@pytest.mark.parametrize(
    ("wish", "name", "fits"),
    [
        ("RTX_5070ti", RTX, True),
        ("RTX_5070ti", "NVIDIA GeForce RTX 5070", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_s0_033_names(tmp_path: Path, wish: str, name: str, fits: bool) -> None:
    engine = pool_engine(tmp_path, f'gpu_type = "{wish}"')
    assert engine.evaluate_allocation(gpu(name=name), {}) is fits


def test_s0_042_recommended_gpus_are_the_same_objects_the_best_first(engine: PolicyEngine) -> None:
    warm, hot, off, cool, twin, small = (
        gpu(id=1, temperature_c=70),
        gpu(id=2, temperature_c=82),
        gpu(id=3, online=False),
        gpu(id=4),
        gpu(id=4),
        gpu(id=5, memory_gb=4),
    )
    best = engine.get_recommended_gpus([warm, hot, off, cool, twin, small], {})
    # 1.8, 1.5, 1.5, 2.0, 2.0; the last is too small for any pool.
    assert [id(one) for one in best] == [id(one) for one in (cool, twin, warm, hot, off)]
    assert engine.get_recommended_gpus(iter([cool, warm]), {"max_temp": 60}) == [cool]
    assert engine.get_recommended_gpus([], {}) == []


def test_s0_042_the_highest_temperature_can_be_asked(engine: PolicyEngine) -> None:
    assert engine.evaluate_allocation(gpu(temperature_c=60), {"max_temp": 60})
    assert not engine.evaluate_allocation(gpu(temperature_c=60.5), {"max_temp": 60})


def test_what_was_registered_can_be_read_as_plain_dicts(engine: PolicyEngine) -> None:
    assert engine.pools["gpu_pool_prod"] == {
        "name": "gpu_pool_prod",
        "gpu_types": ["RTX_5070ti", "A100", "H100"],
        "min_memory_gb": 16.0,
        "max_temp_c": 85.0,
        "power_policy": "performance",
        "health_threshold": 0.95,
        "opt_strategies": [
            {"type": "clock", "target": "maximum", "temp_limit": 80},
            {"type": "memory", "strategy": "prealloc", "waste_threshold": 0.2},
        ],
        "health_checks": [
            {"name": "temperature", "interval_sec": 10},
            {"name": "power", "interval_sec": 60},
            {"name": "memory", "interval_sec": 30},
        ],
    }
    assert engine.schedules["dev_scheduling"]["rules"] == [
        {"type": "distribution", "strategy": "round_robin"},
        {"type": "preemption", "allow": True, "priority_threshold": "normal"},
    ]
    with pytest.raises(AttributeError):
        engine.pools = {}  # type: ignore[misc]
    engine.pools.clear()
    assert len(engine.pools) == 3, "a copy was given out"


@pytest.mark.parametrize(
    ("fields", "kind", "what"),
    [
        ({"id": "0"}, TypeError, r"GPUInfo\.id is '0' \(str\); it must be a whole number"),
        ({"id": True}, TypeError, "whole number"),
        ({"id": -1}, ValueError, "from 0 to 4294967295"),
        ({"id": 10**30}, ValueError, "from 0 to 4294967295"),
        ({"name": None}, TypeError, r"GPUInfo\.name is None \(NoneType\); it must be a string"),
        ({"name": "\ud800"}, ValueError, "UTF-8"),
        ({"memory_gb": True}, TypeError, "a number"),
        ({"memory_gb": float("nan")}, ValueError, "a finite number"),
        ({"temperature_c": float("inf")}, ValueError, "a finite number"),
        ({"memory_gb": 10**400}, ValueError, "a finite number"),
        ({"online": 1}, TypeError, "True or False"),
        ({"tags": "high-perf"}, TypeError, "a list of strings"),
        ({"tags": [1]}, TypeError, "an item of GPUInfo.tags"),
    ],
)
def test_a_gpu_of_wrong_kinds_is_refused_in_words(
    engine: PolicyEngine, fields: dict[str, Any], kind: type[Exception], what: str
) -> None:
    with pytest.raises(kind, match=what):
        engine.evaluate_allocation(gpu(**fields), {})


@pytest.mark.parametrize(
    ("asked", "kind", "what"),
    [
        (None, TypeError, "requirements is None"),
        ([], TypeError, "it must be a dict"),
        ({"min_memory": "16"}, TypeError, r'requirements\["min_memory"\] is \'16\' \(str\)'),
        ({"max_temp": float("nan")}, ValueError, "a finite number"),
        ({"tags": "a"}, TypeError, "a list of strings"),
    ],
)
def test_wrong_requirements_are_refused_in_words(
    engine: PolicyEngine, asked: Any, kind: type[Exception], what: str
) -> None:
    with pytest.raises(kind, match=what):
        engine.evaluate_allocation(gpu(), asked)


def test_what_is_no_gpu_is_refused(engine: PolicyEngine) -> None:
    things: list[Any] = [{}, None, 7, "gpu"]
    for thing in things:
        with pytest.raises(TypeError, match="a GPUInfo"):
            engine.evaluate_allocation(thing, {})
    with pytest.raises(TypeError):
        engine.get_recommended_gpus(5, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PolicyEngine(5)  # type: ignore[arg-type]
