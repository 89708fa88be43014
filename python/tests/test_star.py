"""`star` of the package prints exactly what the binary prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT

CASES = [
    ["--load-all", "--list-pools"],
    ["--load-all", "--test-gpu", "0"],
    ["--load-all", "--test-gpu", "7", "--list-pools", "--list-schedules"],
    ["--load", "policies/development.gsky"],
    ["--load", "development.gsky", "--list-schedules"],
    ["--load", "nothing.gsky"],
    ["--policy-dir", "nowhere", "--load-all", "--test-gpu", "0"],
    ["--policy-dir", "mine", "--load-all", "--list-pools"],
    ["--help"],
    ["-h"],
    ["--version"],
    ["--load-al"],
    ["--test-gpu", "-1"],
    [],
]


def run(program: Path, arguments: list[str], folder: Path) -> tuple[int, str, str]:
    ended = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


@pytest.fixture
def folder(policies: Path) -> Path:
    mine = policies.parent / "mine"
    mine.mkdir()
    (mine / "good.gsky").write_text('gpu_ops.register_pool(gpu_pool(name = "anything"))\n')
    (mine / "one_typo.gsky").write_text('gpu_pool(power_policy = "perfomance")\n')
    (mine / "two_typos.gsky").write_text("gpu_pool(nam = 1)\n")
    return policies.parent


@pytest.mark.parametrize("arguments", CASES, ids=" ".join)
def test_the_script_and_the_binary_print_the_same(
    muster_bin: Path, folder: Path, arguments: list[str]
) -> None:
    binary = folder / "star"
    binary.symlink_to(muster_bin)
    script = Path(sys.executable).with_name("star")
    assert run(script, arguments, folder) == run(binary, arguments, folder)


def test_the_documented_commands_run_from_the_package_folder() -> None:
    script = Path(sys.executable).with_name("star")
    code, out, _ = run(script, ["--load-all", "--list-pools"], ROOT / "python")
    assert code == 0 and out.count("gpu_pool_") == 3
    code, out, _ = run(script, ["--load-all", "--test-gpu", "0"], ROOT / "python")
    assert code == 0 and out.endswith("GPU 0 allocation result: True\n")
    code, out, _ = run(script, ["--load", "policies/development.gsky"], ROOT / "python")
    assert code == 0 and out.startswith("[Policy] Loaded ../policies/development.gsky\n")


def test_a_closed_pipe_is_not_an_error(folder: Path) -> None:
    script = Path(sys.executable).with_name("star")
    ended = subprocess.run(
        ["sh", "-c", f"{script} --load-all --list-pools | true; echo done"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("done\n", "")
