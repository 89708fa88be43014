"""The clients against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from muster import AsyncClient, Client, Job, MusterError, Submitted

from .conftest import Server, Start

SECOND = {"muster.sim/runtime": "1s"}


@pytest.fixture
def client(simulated: Server) -> Client:
    return Client(simulated.url)


def submit(client: Client, **fields: Any) -> Submitted:
    """Submit a job that takes a second, with these fields replaced."""
    return client.submit(["python", "train.py"], **{"gpus": 1, "annotations": SECOND, **fields})


def test_a_job_is_submitted_waited_for_and_listed(client: Client) -> None:
    job = submit(client, name="first", labels={"team": "vision"}, priority="high", time_limit="2h30m")
    assert job.job_id.startswith("job-") and job.status == "submitted"
    ended = client.wait(job, timeout=60)
    assert (ended.state, ended.phase, ended.exit_code, ended.has_ended) == ("completed", "Done", 0, True)
    assert (ended.name, ended.labels, ended.priority) == ("first", {"team": "vision"}, 1000)
    assert (ended.command, ended.gpu_count, ended.max_runtime) == (["python", "train.py"], 1, "2h30m")
    assert ended.tasks[0].gpus == 1
    assert [listed.id for listed in client.jobs(label="team=vision")] == [job.job_id]
    number = int(job.job_id.removeprefix("job-"))
    assert client.job(number) == client.job(job.job_id) == client.job(ended)


def test_job_lists_span_pages_and_stop_at_the_limit(client: Client) -> None:
    for _ in range(3):
        submit(client, name="listed", hold=True, array="0-99")
    assert sum(1 for _ in client.jobs(name="listed")) == 300
    assert sum(1 for _ in client.jobs(name="listed", limit=250)) == 250
    assert [listed.phase for listed in client.jobs(name="listed", limit=1)] == ["Held"]
    assert list(client.jobs(name="nobody-has-this-name")) == []


def test_submissions_with_the_same_idempotency_key_create_one_job(client: Client, simulated: Server) -> None:
    other = Client(simulated.url)
    first = submit(client, idempotency_key="same", hold=True, name="once")
    assert submit(other, idempotency_key="same", hold=True, name="once").job_id == first.job_id
    assert submit(client, hold=True, name="once").job_id != first.job_id
    assert sum(1 for _ in client.jobs(name="once")) == 2


def test_a_refusal_has_a_code_a_detail_and_a_hint(client: Client) -> None:
    with pytest.raises(MusterError) as caught:
        submit(client, tenant="nobody")
    assert (caught.value.code, caught.value.status) == ("unknown-tenant", 404), caught.value
    with pytest.raises(MusterError) as caught:
        submit(client, gpus=10_000)
    assert caught.value.status and caught.value.code and caught.value.detail
    with pytest.raises(MusterError) as caught:
        submit(client, prioritty=3)
    assert "prioritty" in caught.value.detail
    assert caught.value.hint and caught.value.hint in str(caught.value)
    for method in (client.job, client.why, client.cancel, client.wait):
        with pytest.raises(MusterError, match="job-999999") as caught:
            method("job-999999")
        assert (caught.value.code, caught.value.status) == ("unknown-job", 404)
    with pytest.raises(MusterError) as caught:
        client.job("../tenants?x=1")
    assert caught.value.code == "unknown-job"


def test_invalid_submissions_raise_before_a_request_is_sent() -> None:
    client = Client("http://127.0.0.1:1")
    with pytest.raises(TypeError, match="list of words"):
        client.submit("python train.py")
    with pytest.raises(TypeError, match="nothing to run"):
        client.submit(gpus=1)


def test_a_waiting_job_has_reasons_and_can_be_cancelled(client: Client) -> None:
    job = submit(client, hold=True)
    why = client.why(job)
    assert (why.job_id, why.phase) == (job.job_id, "Held")
    assert why.summary and why.reasons and why.reasons[0].sentence in why.summary
    with pytest.raises(TimeoutError, match="it is Held"):
        client.wait(job, timeout=0.3)
    assert "cancelled" in client.cancel(job).message
    assert client.wait(job, timeout=30).state == "cancelled"
    with pytest.raises(MusterError) as caught:
        client.cancel(job)
    assert caught.value.status == 409


def test_gpus_0_submits_a_job_without_gpus(client: Client) -> None:
    seen = client.job(submit(client, gpus=0, hold=True))
    assert seen.gpu_count == 0 and seen.tasks[0].gpus == 0


def test_logs_of_a_job_that_has_not_started_raise_unless_followed(client: Client) -> None:
    job = submit(client, hold=True)
    with pytest.raises(MusterError, match="not started yet"):
        list(client.logs(job))
    client.cancel(job)
    assert list(client.logs(job, follow=True)) == [], "the job never ran"


@pytest.fixture
def real(start: Start, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server on this machine, with its token file."""
    server = start("--real", "--gpus", "2")
    monkeypatch.setenv("MUSTER_SERVER", server.url)
    monkeypatch.setenv("MUSTER_DATA_DIR", str(server.data_dir))
    return server


def test_output_is_streamed_while_the_job_runs_and_can_be_read_again(real: Server) -> None:
    client = Client()
    job = client.submit(script="for i in 1 2 3; do echo line $i; sleep 0.4; done; echo bad >&2; exit 3")
    pieces = [(text, time.monotonic()) for text in client.logs(job, follow=True) if text]
    lines = "line 1\nline 2\nline 3\n"
    assert "".join(text for text, _ in pieces) == lines
    assert pieces[-1][1] - pieces[0][1] > 0.3, "the output arrived all at once"
    ended = client.wait(job, timeout=30)
    assert (ended.state, ended.exit_code) == ("failed", 3)
    assert "".join(client.logs(job)) == lines
    assert "".join(client.logs(job, stream="stderr")) == "bad\n"


def test_long_output_is_complete(real: Server) -> None:
    client = Client()
    job = client.submit(script="seq 1 200000")
    expected = "".join(f"{number}\n" for number in range(1, 200_001))
    assert "".join(client.logs(job, follow=True)) == expected
    assert "".join(client.logs(job)) == expected


def test_wait_and_logs_continue_after_a_server_restart(real: Server, start: Start) -> None:
    client = Client()
    job = client.submit(script="echo one; sleep 3; echo two")
    seen: list[str] = []
    follower = threading.Thread(target=lambda: seen.extend(client.logs(job, follow=True)))
    waited: list[Job] = []
    waiter = threading.Thread(target=lambda: waited.append(client.wait(job, timeout=60)))
    follower.start()
    waiter.start()
    while "one\n" not in seen:
        time.sleep(0.05)
    real.stop()
    start("--real", "--gpus", "2", listen=real.url.removeprefix("http://"), data_dir=real.data_dir)
    follower.join(60)
    waiter.join(60)
    assert "".join(seen) == "one\ntwo\n"
    assert [job.state for job in waited] == ["completed"]


def test_requests_without_a_token_are_refused(real: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    token = (real.data_dir / "admin.token").read_text().strip()
    monkeypatch.setenv("MUSTER_DATA_DIR", "/nowhere")
    with pytest.raises(MusterError) as caught:
        list(Client().jobs())
    assert caught.value.status == 401
    assert list(Client(token=token).jobs()) == []
    assert list(Client(token_file=real.data_dir / "admin.token").jobs()) == []
    monkeypatch.setenv("MUSTER_TOKEN", token)
    assert list(Client().jobs()) == []
    assert token not in repr(Client()._connection)


def test_a_tls_server_is_trusted_only_with_its_certificate_authority(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tls.yaml").write_text("auth: {mode: tokens}\napi: {enable_tls: true}\n")
    server = start("--config", str(tmp_path / "tls.yaml"))
    assert server.url.startswith("https://")
    token_file, ca_file = server.data_dir / "admin.token", server.data_dir / "tls/ca.pem"
    trusting: dict[str, Any] = {"url": server.url, "token_file": token_file, "ca_file": ca_file}
    assert list(Client(**trusting).jobs()) == []
    assert asyncio.run(_all(AsyncClient(**trusting))) == []
    for untrusting in (
        Client(server.url, token_file=token_file),
        AsyncClient(server.url, token_file=token_file),
    ):
        with pytest.raises(MusterError) as caught:
            asyncio.run(_all(untrusting)) if isinstance(untrusting, AsyncClient) else list(untrusting.jobs())
        assert caught.value.code == "untrusted"
    with pytest.raises(MusterError, match="cannot read certificates"):
        Client(server.url, ca_file=tmp_path / "tls.yaml")
    monkeypatch.setenv("MUSTER_DATA_DIR", str(server.data_dir))
    assert list(Client(server.url).jobs()) == [], (
        "token and certificate authority are read from the data folder"
    )


async def _all(client: AsyncClient) -> list[Job]:
    return [job async for job in client.jobs()]


def test_an_unreachable_server_raises_without_retries() -> None:
    began = time.monotonic()
    with pytest.raises(MusterError, match="connection refused") as caught:
        Client("http://127.0.0.1:1").submit(["x"])
    assert caught.value.code == "unreachable" and time.monotonic() - began < 2
    with pytest.raises(MusterError, match="connection refused"):
        asyncio.run(AsyncClient("http://127.0.0.1:1").job(1))


class FlakyServer(BaseHTTPRequestHandler):
    """Drops the first request, refuses the second as busy, and accepts the third."""

    keys: list[str | None]

    def do_POST(self) -> None:
        self.keys.append(self.headers["Idempotency-Key"])
        self.rfile.read(int(self.headers["Content-Length"]))
        if len(self.keys) == 1:
            return
        status: int = 503
        response: dict[str, Any] = {"code": "unavailable", "detail": "a moment"}
        if len(self.keys) == 3:
            status, response = (
                200,
                {"job_id": "job-1", "status": "submitted", "message": "", "new": {"field": 1}},
            )
        body = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextlib.contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _sync(url: str) -> Submitted:
    return Client(url).submit(["x"])


def _async(url: str) -> Submitted:
    return asyncio.run(AsyncClient(url).submit(["x"]))


@pytest.mark.parametrize("send", [_sync, _async])
def test_a_submission_is_retried_with_the_same_idempotency_key(send: Callable[[str], Submitted]) -> None:
    class CountingServer(FlakyServer):
        keys: list[str | None] = []  # noqa: RUF012

    with serving(CountingServer) as url:
        submitted = send(url)
    assert submitted.job_id == "job-1"
    assert len(CountingServer.keys) == 3 and len(set(CountingServer.keys)) == 1 and CountingServer.keys[0]
    assert submitted.extra == {"new": {"field": 1}}, "unknown fields are kept"


def test_an_error_of_a_proxy_is_reported_with_its_first_line() -> None:
    class Proxy(FlakyServer):
        def do_GET(self) -> None:
            self.send_response(502)
            self.end_headers()
            self.wfile.write(b"\n<html>nginx</html>\n")

    with serving(Proxy) as url:
        with pytest.raises(MusterError, match="the server answers 502: <html>nginx</html>"):
            Client(url).job(1)
        with pytest.raises(MusterError, match="the server answers 502: <html>nginx</html>"):
            asyncio.run(AsyncClient(url).job(1))


def test_the_async_client_has_the_same_operations(simulated: Server) -> None:
    async def scenario() -> None:
        client = AsyncClient(simulated.url)
        jobs = await asyncio.gather(
            *(client.submit(["x"], gpus=1, annotations=SECOND, name="together") for _ in range(4))
        )
        ended = await asyncio.gather(*(client.wait(job, timeout=60) for job in jobs))
        assert [job.state for job in ended] == ["completed"] * 4
        assert len([job async for job in client.jobs(name="together")]) == 4
        held = await client.submit(["x"], hold=True)
        assert (await client.why(held)).phase == "Held"
        with pytest.raises(TimeoutError):
            await client.wait(held, timeout=0.2)
        await client.cancel(held)
        with pytest.raises(MusterError, match="job-999999"):
            await client.job("job-999999")

    asyncio.run(scenario())


def test_the_async_client_follows_many_jobs_without_blocking_the_event_loop(real: Server) -> None:
    async def scenario() -> None:
        client = AsyncClient()
        longest, stop = 0.0, False

        async def measure_latency() -> None:
            nonlocal longest
            while not stop:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - began)

        async def followed_output(number: int) -> str:
            # Without GPUs, so that all jobs run at once.
            job = await client.submit(script=f"echo {number}; sleep 1; echo end", gpus=0)
            return "".join([text async for text in client.logs(job, follow=True)])

        measuring = asyncio.create_task(measure_latency())
        # More followers than a thread pool has threads.
        outputs = await asyncio.gather(*(followed_output(number) for number in range(12)))
        stop = True
        await measuring
        assert outputs == [f"{number}\nend\n" for number in range(12)]
        assert longest < 0.5, f"the event loop was blocked for {longest} s"

    asyncio.run(scenario())


def test_cancelling_a_follower_leaves_no_task(real: Server) -> None:
    async def scenario() -> None:
        client = AsyncClient()
        job = await client.submit(script="echo begun; sleep 600")
        began = asyncio.Event()

        async def follow() -> None:
            async for text in client.logs(job, follow=True):
                if text:
                    began.set()

        following = asyncio.create_task(follow())
        await asyncio.wait_for(began.wait(), 30)
        following.cancel()
        await asyncio.wait({following}, timeout=10)
        assert following.cancelled(), "the follower was not cancelled"
        await client.cancel(job)
        assert (await client.wait(job, timeout=60)).state == "cancelled"
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())
