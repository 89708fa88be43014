"""The engine of the specification, requirement by requirement."""

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


def test_the_example_of_the_readme_runs_unchanged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    blocks = (ROOT / "README.md").read_text().split("```python\n")[1:]
    example = next(block.split("```")[0] for block in blocks if "starlark_engine" in block)
    (tmp_path / "example.py").write_text(textwrap.dedent(example))
    monkeypatch.chdir(ROOT / "python")
    runpy.run_path(str(tmp_path / "example.py"))
    assert capsys.readouterr() == ("Allocation result: True\n", "")


def test_s0_020_the_folder_can_be_given_and_defaults_to_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PolicyEngine(policy_dir=str(POLICIES)).load_all_policies() == 3
    monkeypatch.chdir(ROOT)
    assert PolicyEngine().load_all_policies() == 3
    assert PolicyEngine(None).load_all_policies() == 3


def test_s0_021_load_all_policies_counts_loaded_policies_and_a_missing_folder_has_none(
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


def test_a_policy_is_loaded_by_its_path_or_by_its_path_inside_the_folder(policies: Path) -> None:
    engine = PolicyEngine(policies)
    assert engine.load_policy(policies / "basic.gsky") is True
    assert engine.load_policy("development.gsky") is True
    assert sorted(engine.pools) == ["gpu_pool_basic", "gpu_pool_dev"]
    assert engine.load_policy("nothing.gsky") is False
    assert engine.errors and "nothing.gsky" in engine.errors[0]


def test_s0_022_a_gpu_in_a_pool_that_meets_the_requirements_is_allowed(engine: PolicyEngine) -> None:
    info = gpu(tags=["high-perf"])
    requirements = {"min_memory": 16, "tags": ["high-perf"]}
    assert engine.evaluate_allocation(gpu=info, requirements=requirements) is True
    assert PolicyEngine(POLICIES).evaluate_allocation(info, requirements) is False, "no policy is loaded"
    assert engine.evaluate_allocation(info, {"unknown_requirement": object()}) is True


def test_s0_023_to_030_fields_have_defaults_and_can_be_set(engine: PolicyEngine) -> None:
    info = GPUInfo(3, RTX, "GPU-3", 24.0, 35.0, 10.0)
    assert (info.online, info.registered, info.pool, info.tags) == (True, False, "", [])
    assert info == GPUInfo(3, RTX, "GPU-3", 24.0, 35.0, 10.0) and info != gpu()
    assert "memory_gb=24.0" in repr(info)
    assert GPUInfo(3, RTX, "GPU-3", 24.0, 35.0, 10.0).tags is not info.tags
    info.tags.append("fast")
    assert engine.evaluate_allocation(info, {"tags": ["fast"]})
    info.pool = "no_such_pool"
    assert not engine.evaluate_allocation(info, {})
    info.pool = "gpu_pool_dev"
    assert engine.evaluate_allocation(info, {})


@pytest.mark.parametrize(("memory", "fits"), [(24.0, True), (16, True), (15.999, False), (8.0, False)])
def test_s0_027_and_031_a_gpu_needs_the_required_memory(
    engine: PolicyEngine, memory: float, fits: bool
) -> None:
    assert engine.evaluate_allocation(gpu(memory_gb=memory), {"min_memory": 16}) is fits


@pytest.mark.parametrize(("celsius", "fits"), [(85, True), (85.5, False), (90.0, False)])
def test_s0_028_a_gpu_above_the_temperature_limit_of_its_pool_is_refused(
    tmp_path: Path, celsius: float, fits: bool
) -> None:
    engine = pool_engine(tmp_path, "max_temp_c = 85")
    assert engine.evaluate_allocation(gpu(temperature_c=celsius), {}) is fits


def test_s0_029_policy_functions_can_read_the_power_draw(engine: PolicyEngine) -> None:
    thrifty = Program({"p.gsky": "def thrifty(gpu):\n    return gpu['power_w'] < 12.5\n"})
    assert thrifty.call("thrifty", asdict(gpu(power_w=12.4)))
    assert not thrifty.call("thrifty", asdict(gpu(power_w=12.5)))
    with pytest.raises(TypeError, match=r"GPUInfo\.power_w is 'much' \(str\); it must be a number"):
        engine.evaluate_allocation(gpu(power_w="much"), {})


@pytest.mark.parametrize(
    ("requirements", "fits"),
    [([], True), (["a"], True), (("b", "a"), True), ({"a"}, True), (["a", "c"], False)],
)
def test_s0_030_and_032_a_gpu_needs_all_required_tags(
    engine: PolicyEngine, requirements: Any, fits: bool
) -> None:
    assert engine.evaluate_allocation(gpu(tags=["a", "b"]), {"tags": requirements}) is fits


@pytest.mark.parametrize(
    ("model", "name", "fits"),
    [
        ("RTX_5070ti", RTX, True),
        ("RTX_5070ti", "NVIDIA GeForce RTX 5070", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
    ],
)
def test_s0_033_model_names_match_names_of_the_driver(
    tmp_path: Path, model: str, name: str, fits: bool
) -> None:
    engine = pool_engine(tmp_path, f'gpu_type = "{model}"')
    assert engine.evaluate_allocation(gpu(name=name), {}) is fits


def test_s0_042_recommended_gpus_are_the_given_objects_with_the_best_score_first(
    engine: PolicyEngine,
) -> None:
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
    assert [id(item) for item in best] == [id(item) for item in (cool, twin, warm, hot, off)]
    assert engine.get_recommended_gpus(iter([cool, warm]), {"max_temp": 60}) == [cool]
    assert engine.get_recommended_gpus([], {}) == []


def test_s0_042_a_requirement_can_limit_the_temperature(engine: PolicyEngine) -> None:
    assert engine.evaluate_allocation(gpu(temperature_c=60), {"max_temp": 60})
    assert not engine.evaluate_allocation(gpu(temperature_c=60.5), {"max_temp": 60})


def test_registered_pools_and_schedules_are_dicts(engine: PolicyEngine) -> None:
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
    assert len(engine.pools) == 3, "`pools` returns a copy"


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
def test_a_gpu_field_of_the_wrong_type_or_range_is_refused_with_a_message(
    engine: PolicyEngine, fields: dict[str, Any], kind: type[Exception], what: str
) -> None:
    with pytest.raises(kind, match=what):
        engine.evaluate_allocation(gpu(**fields), {})


@pytest.mark.parametrize(
    ("requirements", "kind", "what"),
    [
        (None, TypeError, "requirements is None"),
        ([], TypeError, "it must be a dict"),
        ({"min_memory": "16"}, TypeError, r'requirements\["min_memory"\] is \'16\' \(str\)'),
        ({"max_temp": float("nan")}, ValueError, "a finite number"),
        ({"tags": "a"}, TypeError, "a list of strings"),
    ],
)
def test_invalid_requirements_are_refused_with_a_message(
    engine: PolicyEngine, requirements: Any, kind: type[Exception], what: str
) -> None:
    with pytest.raises(kind, match=what):
        engine.evaluate_allocation(gpu(), requirements)


def test_objects_that_are_not_gpus_are_refused(engine: PolicyEngine) -> None:
    things: list[Any] = [{}, None, 7, "gpu"]
    for thing in things:
        with pytest.raises(TypeError, match="a GPUInfo"):
            engine.evaluate_allocation(thing, {})
    with pytest.raises(TypeError):
        engine.get_recommended_gpus(5, {})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PolicyEngine(5)  # type: ignore[arg-type]
