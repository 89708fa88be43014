"""The gRPC API: stubs generated from the definitions drive every method of every service."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status
from grpc_tools import protoc

import muster

from .conftest import ROOT, Server, Start

DEFINITIONS = ROOT / "crates/muster-wire/proto"
SERVICES = ["jobs", "tenants", "nodes", "gpus", "cluster", "watch"]
CONFIG = 'agent_link: {listen: "127.0.0.1:0"}\n'
TIMEOUT = 60


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """The generated modules: messages by the name of their file, stubs by the name of their service."""
    folder = tmp_path_factory.mktemp("stubs")
    files = sorted(str(path.relative_to(DEFINITIONS)) for path in DEFINITIONS.rglob("*.proto"))
    well_known = Path(protoc.__file__).parent / "_proto"
    words = [
        "protoc",
        f"-I{DEFINITIONS}",
        f"-I{well_known}",
        f"--python_out={folder}",
        f"--grpc_python_out={folder}",
    ]
    assert protoc.main([*words, *files]) == 0
    # The generated package is `muster.v1`, inside the package of the client.
    muster.__path__.append(str(folder / "muster"))
    modules = {name: importlib.import_module(f"muster.v1.{name}_pb2") for name in SERVICES}
    stubs = {name: importlib.import_module(f"muster.v1.{name}_pb2_grpc") for name in SERVICES}
    common = importlib.import_module("muster.v1.common_pb2")
    return SimpleNamespace(folder=folder, common=common, stubs=stubs, **modules)


class Recorder(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Records which methods were called, and gives every call a time limit."""

    def __init__(self) -> None:
        self.called: set[str] = set()

    def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        self.called.add(details.method)
        return continuation(details, request)

    def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        self.called.add(details.method)
        return continuation(details, request)


@pytest.fixture
def server(start: Start, tmp_path: Path) -> Server:
    config = tmp_path / "muster.yaml"
    config.write_text(CONFIG)
    return start("--config", str(config))


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.grpc) as channel:
        yield channel


def error_of(call: Callable[[], Any]) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    return raised.value


def wait_until(condition: Callable[[], bool], stream: Iterator[Any]) -> None:
    """Wait for a condition, looking after every event."""
    while not condition():
        next(stream)


def methods(stubs: SimpleNamespace) -> set[str]:
    """The methods of all public services, as calls name them."""
    services = [
        service for name in SERVICES for service in getattr(stubs, name).DESCRIPTOR.services_by_name.values()
    ]
    return {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


def test_every_method_works_from_generated_stubs(stubs: SimpleNamespace, channel: grpc.Channel) -> None:
    recorder = Recorder()
    channel = grpc.intercept_channel(channel, recorder)
    pb, grpcs = stubs, stubs.stubs
    jobs = grpcs["jobs"].JobServiceStub(channel)
    tenants = grpcs["tenants"].TenantServiceStub(channel)
    nodes = grpcs["nodes"].NodeServiceStub(channel)
    gpus = grpcs["gpus"].GpuServiceStub(channel)
    cluster = grpcs["cluster"].ClusterServiceStub(channel)
    watch = grpcs["watch"].WatchServiceStub(channel)

    # The cluster, and the caller.
    status = cluster.Status(pb.cluster.StatusRequest(), timeout=TIMEOUT)
    assert (status.role, status.total_nodes, status.simulated) == ("leading", 2, True)
    assert cluster.WhoAmI(pb.cluster.WhoAmIRequest(), timeout=TIMEOUT).role == "admin"
    devices = gpus.List(pb.gpus.ListGpusRequest(limit=3), timeout=TIMEOUT)
    assert (len(devices.gpus), devices.total) == (3, status.total_gpus)
    events = watch.Events(pb.watch.EventsRequest(after=0), timeout=TIMEOUT)
    assert next(events).seq == 1

    # Tenants.
    created = tenants.Create(pb.tenants.TenantSpec(name="vision", max_gpus=2), timeout=TIMEOUT)
    assert (created.id, created.max_gpus, created.HasField("max_cpu_cores")) == ("vision", 2, False)
    listed = tenants.List(pb.tenants.ListTenantsRequest(), timeout=TIMEOUT)
    assert {tenant.id for tenant in listed.tenants} == {"default", "vision"}
    change = pb.tenants.TenantChange(max_cpu_cores=8)
    update = pb.tenants.UpdateTenantRequest(id="vision", change=change, clear=["max_gpus"])
    updated = tenants.Update(update, timeout=TIMEOUT)
    assert (updated.HasField("max_gpus"), updated.max_cpu_cores) == (False, 8)
    assert tenants.Get(pb.tenants.GetTenantRequest(id="vision"), timeout=TIMEOUT) == updated

    # Jobs.
    long = pb.jobs.SubmitJob(name="long", command=["sleep"], annotations={"muster.sim/runtime": "1h"})
    assert jobs.Plan(long, timeout=TIMEOUT).outcome == "starts"
    key = (("idempotency-key", "once"),)
    job = jobs.Submit(long, timeout=TIMEOUT, metadata=key).job_id
    assert jobs.Submit(long, timeout=TIMEOUT, metadata=key).job_id == job

    def state(id_: str) -> str:
        return str(jobs.Get(pb.jobs.GetJobRequest(id=id_), timeout=TIMEOUT).state)

    wait_until(lambda: state(job) == "running", events)
    assert jobs.Why(pb.jobs.WhyRequest(id=job), timeout=TIMEOUT).state == "running"
    held = jobs.Submit(pb.jobs.SubmitJob(name="held", script="true", hold=True), timeout=TIMEOUT).job_id
    page = jobs.List(pb.jobs.ListJobsRequest(limit=1), timeout=TIMEOUT)
    assert (page.total, [row.id for row in page.jobs]) == (2, [held])
    rest = jobs.List(pb.jobs.ListJobsRequest(limit=1, cursor=page.next_cursor), timeout=TIMEOUT)
    assert [row.id for row in rest.jobs] == [job]
    changed = pb.jobs.JobChange(priority="high", time_limit="2h")
    jobs.Change(pb.jobs.ChangeJobRequest(id=held, change=changed), timeout=TIMEOUT)
    jobs.Change(pb.jobs.ChangeJobRequest(id=held, clear=["time_limit"]), timeout=TIMEOUT)
    shown = jobs.Get(pb.jobs.GetJobRequest(id=held), timeout=TIMEOUT)
    assert (shown.priority, shown.HasField("max_runtime")) == (1000, False)
    jobs.Release(pb.jobs.ReleaseJobRequest(id=held), timeout=TIMEOUT)
    wait_until(lambda: state(held) in ("running", "completed"), events)
    jobs.Requeue(pb.jobs.RequeueJobRequest(id=job), timeout=TIMEOUT)

    def attempts() -> list[Any]:
        return list(jobs.ListAttempts(pb.jobs.ListAttemptsRequest(id=job), timeout=TIMEOUT).attempts)

    wait_until(lambda: len(attempts()) == 2, events)
    waiting = jobs.Submit(
        pb.jobs.SubmitJob(script="true", start_after="2099-01-01T00:00:00Z"), timeout=TIMEOUT
    ).job_id
    jobs.Hold(pb.jobs.HoldJobRequest(id=waiting, why="later"), timeout=TIMEOUT)
    assert jobs.Get(pb.jobs.GetJobRequest(id=waiting), timeout=TIMEOUT).phase == "Held"

    # Output.
    short = pb.jobs.SubmitJob(command=["x"], annotations={"muster.sim/runtime": "300ms"})
    short_job = jobs.Submit(short, timeout=TIMEOUT).job_id
    pieces = list(jobs.Logs(pb.jobs.LogsRequest(id=short_job), timeout=TIMEOUT))
    assert [piece.WhichOneof("event") for piece in pieces][-1] == "end"
    text = "".join(getattr(piece, piece.WhichOneof("event")).text for piece in pieces)
    piece = jobs.ReadLog(pb.jobs.ReadLogRequest(id=short_job), timeout=TIMEOUT)
    assert (piece.text, piece.complete) == (text, True) and text

    # Cancelling. An event has the fields of the journal.
    jobs.Cancel(pb.jobs.CancelJobRequest(id=job), timeout=TIMEOUT)
    wait_until(lambda: state(job) == "cancelled", events)
    only = watch.Events(pb.watch.EventsRequest(after=0, job=job), timeout=TIMEOUT)
    first = next(only)
    assert (first.kind, first.job_id, first.data["spec"]["name"]) == ("JobSubmitted", job, "long")

    # Nodes.
    listed_nodes = nodes.List(pb.nodes.ListNodesRequest(), timeout=TIMEOUT)
    name = listed_nodes.nodes[0].name

    def node() -> Any:
        return nodes.Get(pb.nodes.GetNodeRequest(id=name), timeout=TIMEOUT)

    assert len(node().gpus) == node().total_gpus > 0
    nodes.Drain(pb.nodes.DrainNodeRequest(id=name, why="new fans"), timeout=TIMEOUT)
    assert (node().state, node().state_why) == ("Draining", "new fans")
    drain = nodes.GetDrain(pb.nodes.GetNodeDrainRequest(id=name), timeout=TIMEOUT)
    assert (drain.node, drain.state, drain.HasField("deadline")) == (name, "Draining", False)
    nodes.Resume(pb.nodes.ResumeNodeRequest(id=name), timeout=TIMEOUT)
    assert node().state == "Ready"
    nodes.Undrain(pb.nodes.UndrainNodeRequest(id=name), timeout=TIMEOUT)
    with pytest.raises(grpc.RpcError, match="no boot id"):  # Simulated nodes do not reboot.
        nodes.Reboot(pb.nodes.RebootNodeRequest(id=name), timeout=TIMEOUT)
    with pytest.raises(grpc.RpcError, match="no power program"):
        nodes.Power(pb.nodes.PowerNodeRequest(id=name, action="status"), timeout=TIMEOUT)
    nodes.Hold(pb.nodes.HoldNodeRequest(id=name), timeout=TIMEOUT)
    assert node().state == "Hold"
    nodes.Fence(pb.nodes.FenceNodeRequest(id=name), timeout=TIMEOUT)
    assert node().state == "Fenced"
    token = nodes.CreateJoinToken(pb.nodes.JoinTokenSpec(node="gpu99"), timeout=TIMEOUT)
    assert token.node == "gpu99" and token.url.startswith("muster://")
    nodes.Remove(pb.nodes.RemoveNodeRequest(id=name), timeout=TIMEOUT)

    tenants.Delete(pb.tenants.DeleteTenantRequest(id="vision"), timeout=TIMEOUT)
    assert recorder.called == methods(stubs), "methods that the test leaves out, or that the definitions lack"


def test_an_error_has_its_problem_in_the_details(stubs: SimpleNamespace, channel: grpc.Channel) -> None:
    jobs = stubs.stubs["jobs"].JobServiceStub(channel)
    tenants = stubs.stubs["tenants"].TenantServiceStub(channel)
    tenants.Create(stubs.tenants.TenantSpec(name="small", max_gpus=1), timeout=TIMEOUT)
    large = stubs.jobs.SubmitJob(tenant_id="small", command=["x"], gpu_count=2)
    error = error_of(lambda: jobs.Submit(large, timeout=TIMEOUT))
    assert error.code() == grpc.StatusCode.PERMISSION_DENIED
    assert ("muster-code", "over-quota") in [tuple(pair) for pair in error.trailing_metadata()]
    problem = stubs.common.Problem()
    assert rpc_status.from_call(error).details[0].Unpack(problem)
    assert (problem.code, problem.status, problem.detail) == ("over-quota", 403, error.details())
    assert problem.hint
    missing = error_of(lambda: jobs.Get(stubs.jobs.GetJobRequest(id="job-99"), timeout=TIMEOUT))
    assert missing.code() == grpc.StatusCode.NOT_FOUND


def test_the_example_of_the_documentation_runs(stubs: SimpleNamespace, server: Server) -> None:
    text = (ROOT / "docs/grpc.md").read_text()
    example = text.split("```python\n")[1].split("```")[0]
    assert "127.0.0.1:50051" in example
    example = example.replace("127.0.0.1:50051", server.grpc)
    # The stubs are found beside the client, which is installed.
    path = os.pathsep.join([str(stubs.folder), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", f"import muster\n{example}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert run.returncode == 0, run.stderr
    printed = [line.split()[-1] for line in run.stdout.splitlines()]
    assert printed == ["JobSubmitted", "JobPlaced", "AttemptStarted", "running"]
