"""Fixtures: the built binary, and servers started from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
POLICIES = ROOT / "policies"


@pytest.fixture(scope="session")
def muster_bin() -> Path:
    """The binary: `MUSTER_BIN`, else the debug build, else the release build."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    named = os.environ.get("MUSTER_BIN")
    candidates = [Path(named)] if named else [target / "debug/muster", ROOT / "bin/muster"]
    found = next((path for path in candidates if path.is_file()), None)
    assert found, (
        f"no binary at {' or '.join(map(str, candidates))}: run `make build`, or name one with MUSTER_BIN"
    )
    return found.resolve()


@dataclass
class Server:
    """A server that runs until the end of the test."""

    url: str
    grpc: str
    """The target of gRPC channels, such as `127.0.0.1:50051`."""
    data_dir: Path
    process: subprocess.Popen[str]

    def stop(self) -> None:
        """Kill the server, as a machine failure would. Everything it has confirmed is on disk."""
        self.process.kill()
        self.process.wait()


Start = Callable[..., Server]


@pytest.fixture(scope="session")
def clean_environment() -> dict[str, str]:
    """The environment without `MUSTER_` variables, which could name another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}


@pytest.fixture
def start(muster_bin: Path, clean_environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts servers, each with its own data folder unless one is given."""
    servers: list[Server] = []

    def start_one(*arguments: str, listen: str = "127.0.0.1:0", data_dir: Path | None = None) -> Server:
        data_dir = data_dir or tmp_path / f"data-{len(servers)}"
        servers.append(launch(muster_bin, clean_environment, arguments, listen, data_dir))
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


@pytest.fixture(scope="session")
def simulated(
    muster_bin: Path, clean_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One cluster with simulated GPUs, shared by all tests that only add jobs."""
    data_dir = tmp_path_factory.mktemp("simulated") / "data"
    server = launch(muster_bin, clean_environment, (), "127.0.0.1:0", data_dir)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def no_server_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests from finding a server through the environment."""
    for name in [name for name in os.environ if name.startswith("MUSTER_") and name != "MUSTER_BIN"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MUSTER_DATA_DIR", "/nowhere")


def launch(
    binary: Path, environment: dict[str, str], arguments: tuple[str, ...], listen: str, data_dir: Path
) -> Server:
    """Start `muster dev`, and wait until it prints its address."""
    data_dir.parent.mkdir(exist_ok=True)
    log = (data_dir.parent / "server.log").open("a")
    process = subprocess.Popen(
        [binary, "dev", *arguments, "--listen", listen, "--data-dir", data_dir],
        cwd=data_dir.parent,
        env={**environment, "MUSTER_AGENT__HEARTBEAT_INTERVAL_MS": "200"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
    )
    assert process.stdout
    url = announced(process.stdout, "muster serves ")
    grpc = announced(process.stdout, "gRPC at ")
    assert url and grpc, f"the server did not start:\n{(data_dir.parent / 'server.log').read_text()}"
    # Drain standard output, so that the server never blocks on it.
    threading.Thread(target=lambda out: [None for _ in out], args=(process.stdout,), daemon=True).start()
    return Server(url, grpc.split("://")[1], data_dir, process)


def announced(lines: Iterable[str], prefix: str) -> str | None:
    """The rest of the next line with this prefix."""
    return next((line.split(prefix)[1].strip() for line in lines if line.strip().startswith(prefix)), None)


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """A copy of the folder `policies` of the project."""
    return Path(shutil.copytree(POLICIES, tmp_path / "policies"))
