"""The operations of the clients, without I/O.

Each function is a generator: it yields requests and pauses, receives the responses, and returns the result.
Both clients run the same generators, one synchronously and one on an event loop, so they behave alike.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar

from muster.call import EVENTS, Call, Message, Pause, target
from muster.connection import Connection
from muster.error import MusterError
from muster.objects import Done, Job, JobRef, Submitted, Why, id_of

T = TypeVar("T")
Operation = Generator["Call | Pause", bytes, T]

_RETRY_SECONDS = (0.2, 0.8, 2.0, 4.0)
"""Pauses between retries: long enough for the restart of a server."""
_POLL_FIRST_SECONDS = 0.1
_POLL_MAX_SECONDS = 2.0
_UNAVAILABLE_MAX_SECONDS = 60.0
"""How long a server that has responded before may be unavailable."""
_UNAVAILABLE_PAUSE_SECONDS = 0.5
_PAGE_ROWS = 200
_ACTIVE_PHASES = ("Starting", "Running", "Stopping")


def job_body(connection: Connection, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a submission. Fields that are not given are left to the server."""
    body = {key: value for key, value in fields.items() if value is not None}
    if isinstance(body.get("command"), str):
        raise TypeError(
            "a command is a list of words, such as ['python', 'train.py']; pass a string as `script`"
        )
    if not body.keys() & {"command", "script", "image"}:
        raise TypeError("there is nothing to run: give a command, a script or an image")
    models = body.pop("gpu_model", None)
    if models is not None:
        body["gpu_models"] = [models] if isinstance(models, str) else list(models)
    gpus = body.pop("gpus", None)
    if gpus == 0:
        body.setdefault("tasks", [{"gpus": 0}])  # The API expresses a job without GPUs by its tasks.
    elif gpus is not None:
        body["gpu_count"] = gpus
    if "directory" not in body and "image" not in body and connection.is_loopback:
        body["directory"] = str(Path.cwd())
    return body


def submit(body: Mapping[str, Any], key: str | None) -> Operation[Submitted]:
    """Submit a job, with retries. The idempotency key makes sure that only one job is created."""
    call = Call("POST", target("jobs"), json.dumps(body).encode(), key or uuid.uuid4().hex)
    has_responded = False
    for pause in _RETRY_SECONDS:
        try:
            return Submitted.read(_parse_json((yield call)))
        except MusterError as error:
            # Only a server that has responded before is retried when it cannot be reached.
            if not error.may_pass and not (has_responded and error.is_away):
                raise
            has_responded = True
        yield Pause(pause)
    return Submitted.read(_parse_json((yield call)))


def job(job: JobRef) -> Operation[Job]:
    """The job with all of its fields."""
    return Job.read(_parse_json((yield Call("GET", target("jobs", id_of(job))))))


def why(job: JobRef) -> Operation[Why]:
    """Why the job waits."""
    return Why.read(_parse_json((yield Call("GET", target("jobs", id_of(job), "why")))))


def cancel(job: JobRef) -> Operation[Done]:
    """Cancel the job."""
    return Done.read(_parse_json((yield Call("DELETE", target("jobs", id_of(job))))))


@dataclass
class Pages:
    """A paginated list of jobs."""

    query: Mapping[str, Any]
    remaining: int | None
    """Jobs still to be returned; None without a limit."""
    cursor: str | None = None
    is_complete: bool = False

    def next_page(self) -> Operation[Sequence[Job]]:
        """Fetch the next page."""
        rows = _PAGE_ROWS if self.remaining is None else min(self.remaining, _PAGE_ROWS)
        page = _parse_json((yield Call("GET", target("jobs", **self.query, limit=rows, cursor=self.cursor))))
        jobs = [Job.read(job) for job in page.get("jobs", [])]
        self.cursor = page.get("next_cursor")
        self.remaining = None if self.remaining is None else self.remaining - len(jobs)
        self.is_complete = self.cursor is None or self.remaining == 0
        return jobs


def wait(ref: JobRef, timeout: float | None) -> Operation[Job]:
    """Poll a job until it has ended."""
    latest = yield from _poll_until(ref, timeout, lambda job: job.has_ended)
    if latest.has_ended:
        return latest
    raise TimeoutError(f"{latest.id} has not ended yet: it is {latest.phase}")


def _poll_until(ref: JobRef, timeout: float | None, condition: Any) -> Operation[Job]:
    """Poll a job until a condition holds or the timeout passes."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _POLL_FIRST_SECONDS
    latest = yield from job(ref)
    while not condition(latest):
        sleep = pause if deadline is None else min(pause, deadline - time.monotonic())
        if sleep <= 0:
            return latest
        yield Pause(sleep)
        pause = min(pause * 1.5, _POLL_MAX_SECONDS)
        latest = yield from _job_with_retries(ref, deadline)
    return latest


def _job_with_retries(ref: JobRef, deadline: float | None) -> Operation[Job]:
    """Fetch a job, and tolerate the restart of a server that has responded before."""
    retry_until = time.monotonic() + _UNAVAILABLE_MAX_SECONDS
    retry_until = retry_until if deadline is None else min(retry_until, deadline)
    while True:
        try:
            return (yield from job(ref))
        except MusterError as error:
            if not error.is_away or time.monotonic() >= retry_until:
                raise
        yield Pause(_UNAVAILABLE_PAUSE_SECONDS)


@dataclass
class Tail:
    """The read position in one output stream of one attempt."""

    job: str
    attempt: int
    rank: int
    stream: str
    offset: int = 0
    has_ended: bool = False
    """The attempt has ended: the rest can be read without waiting."""
    is_complete: bool = False
    """All output has been read."""

    def follow_request(self) -> Call:
        """The request that follows the stream from the current offset."""
        return Call("GET", self._target(follow=True), accept=EVENTS)

    def event_text(self, message: Message) -> str:
        """The text of an event. An event that reports an error raises it."""
        if message.event == "problem":
            problem = message.data
            raise MusterError(
                problem.get("code", "fault"),
                problem.get("detail", ""),
                problem.get("hint"),
                problem.get("status"),
            )
        return self._advance(message.data)

    def check_ended(self) -> Operation[None]:
        """Check whether the attempt has ended: a server that stops ends its streams, but not its jobs."""
        latest = yield from _job_with_retries(self.job, None)
        self.has_ended = latest.attempts != self.attempt or latest.phase not in _ACTIVE_PHASES

    def next_piece(self) -> Operation[str]:
        """Read the next piece, without waiting for output."""
        piece = _parse_json((yield Call("GET", self._target())))
        text = self._advance(piece)
        self.is_complete = bool(piece.get("complete")) or not text
        return text

    def _target(self, **options: Any) -> str:
        query: dict[str, Any] = {"attempt": self.attempt, "rank": self.rank, "stream": self.stream}
        return target("jobs", self.job, "logs", **query, offset=self.offset, **options)

    def _advance(self, piece: Mapping[str, Any]) -> str:
        self.offset = piece.get("next_offset", self.offset)
        return str(piece.get("text", ""))


def tail(ref: JobRef, attempt: int | None, rank: int, stream: str, follow: bool) -> Operation[Tail | None]:
    """The output of a job. With `follow`, waits for the start; None if the job ends without one."""
    latest = yield from _poll_until(ref, None if follow else 0, lambda job: job.attempts > 0 or job.has_ended)
    attempt = attempt or latest.attempts
    if attempt == 0 and follow:
        return None
    if attempt == 0:
        hint = "call `why` for the reason, or pass `follow=True` to wait for the start"
        raise MusterError("not-started", f"{latest.id} has not started yet", hint, HTTPStatus.CONFLICT)
    return Tail(latest.id, attempt, rank, stream, has_ended=not follow)


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise MusterError("not-ours", "the response of the server is not JSON") from None
