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
from muster.shown import Done, Job, JobRef, Submitted, Why, id_of

T = TypeVar("T")
Ask = Generator["Call | Pause", bytes, T]

_RETRY_SECONDS = (0.2, 0.8, 2.0, 4.0)
"""Pauses between retries: long enough for the restart of a server."""
_POLL_FIRST_SECONDS = 0.1
_POLL_LONGEST_SECONDS = 2.0
_AWAY_MAX_SECONDS = 60.0
"""How long a server that has responded before may be unavailable."""
_AWAY_PAUSE_SECONDS = 0.5
_PAGE_ROWS = 200
_UNDER_WAY = ("Starting", "Running", "Stopping")


def job_body(connection: Connection, said: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a submission. Fields that are not given are left to the server."""
    body = {key: value for key, value in said.items() if value is not None}
    if isinstance(body.get("command"), str):
        raise TypeError("a command is a list of words, such as ['python', 'train.py']; a text is a `script`")
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


def submit(body: Mapping[str, Any], key: str | None) -> Ask[Submitted]:
    """Submit a job, with retries. The idempotency key makes sure that only one job is created."""
    call = Call("POST", target("jobs"), json.dumps(body).encode(), key or uuid.uuid4().hex)
    was_there = False
    for pause in _RETRY_SECONDS:
        try:
            return Submitted.read(_read((yield call)))
        except MusterError as error:
            # Only a server that has responded before is retried when it cannot be reached.
            if not error.may_pass and not (was_there and error.is_away):
                raise
            was_there = True
        yield Pause(pause)
    return Submitted.read(_read((yield call)))


def job(job: JobRef) -> Ask[Job]:
    """The job with all of its fields."""
    return Job.read(_read((yield Call("GET", target("jobs", id_of(job))))))


def why(job: JobRef) -> Ask[Why]:
    """Why the job waits."""
    return Why.read(_read((yield Call("GET", target("jobs", id_of(job), "why")))))


def cancel(job: JobRef) -> Ask[Done]:
    """Cancel the job."""
    return Done.read(_read((yield Call("DELETE", target("jobs", id_of(job))))))


@dataclass
class Pages:
    """A paginated list of jobs."""

    query: Mapping[str, Any]
    left: int | None
    cursor: str | None = None
    is_over: bool = False

    def next_page(self) -> Ask[Sequence[Job]]:
        """Fetch the next page."""
        rows = _PAGE_ROWS if self.left is None else min(self.left, _PAGE_ROWS)
        page = _read((yield Call("GET", target("jobs", **self.query, limit=rows, cursor=self.cursor))))
        jobs = [Job.read(job) for job in page.get("jobs", [])]
        self.cursor = page.get("next_cursor")
        self.left = None if self.left is None else self.left - len(jobs)
        self.is_over = self.cursor is None or self.left == 0
        return jobs


def wait(ref: JobRef, timeout: float | None) -> Ask[Job]:
    """Poll a job until it has ended."""
    seen = yield from _until(ref, timeout, lambda job: job.has_ended)
    if seen.has_ended:
        return seen
    raise TimeoutError(f"{seen.id} has not ended yet: it is {seen.phase}")


def _until(ref: JobRef, timeout: float | None, enough: Any) -> Ask[Job]:
    """Poll a job until a condition holds or the timeout passes."""
    give_up = None if timeout is None else time.monotonic() + timeout
    pause = _POLL_FIRST_SECONDS
    seen = yield from job(ref)
    while not enough(seen):
        left = pause if give_up is None else min(pause, give_up - time.monotonic())
        if left <= 0:
            return seen
        yield Pause(left)
        pause = min(pause * 1.5, _POLL_LONGEST_SECONDS)
        seen = yield from _job_of_one_who_was_there(ref, give_up)
    return seen


def _job_of_one_who_was_there(ref: JobRef, give_up: float | None) -> Ask[Job]:
    """Fetch a job, and tolerate the restart of a server that has responded before."""
    away = time.monotonic() + _AWAY_MAX_SECONDS
    away = away if give_up is None else min(away, give_up)
    while True:
        try:
            return (yield from job(ref))
        except MusterError as error:
            if not error.is_away or time.monotonic() >= away:
                raise
        yield Pause(_AWAY_PAUSE_SECONDS)


@dataclass
class Tail:
    """The read position in one output stream of one attempt."""

    job: str
    attempt: int
    rank: int
    stream: str
    offset: int = 0
    is_over: bool = False
    """The attempt has ended: the rest can be read without waiting."""
    is_read: bool = False

    def following(self) -> Call:
        """The request that follows the stream from the current offset."""
        return Call("GET", self._target(follow=True), accept=EVENTS)

    def take(self, message: Message) -> str:
        """The text of an event."""
        if message.event == "problem":
            said = message.data
            raise MusterError(
                said.get("code", "fault"), said.get("detail", ""), said.get("hint"), said.get("status")
            )
        return self._text(message.data)

    def look(self) -> Ask[None]:
        """Check whether the attempt has ended: a server that stops ends its streams, but not its jobs."""
        seen = yield from _job_of_one_who_was_there(self.job, None)
        self.is_over = seen.attempts != self.attempt or seen.phase not in _UNDER_WAY

    def piece(self) -> Ask[str]:
        """Read the next piece, without waiting for output."""
        piece = _read((yield Call("GET", self._target())))
        text = self._text(piece)
        self.is_read = bool(piece.get("complete")) or not text
        return text

    def _target(self, **more: Any) -> str:
        where: dict[str, Any] = {"attempt": self.attempt, "rank": self.rank, "stream": self.stream}
        return target("jobs", self.job, "logs", **where, offset=self.offset, **more)

    def _text(self, piece: Mapping[str, Any]) -> str:
        self.offset = piece.get("next_offset", self.offset)
        return str(piece.get("text", ""))


def tail(ref: JobRef, attempt: int | None, rank: int, stream: str, follow: bool) -> Ask[Tail | None]:
    """The output of a job. With `follow` it waits for the start; None if the job never started."""
    seen = yield from _until(ref, None if follow else 0, lambda job: job.attempts > 0 or job.has_ended)
    attempt = attempt or seen.attempts
    if attempt == 0 and follow:
        return None
    if attempt == 0:
        hint = "`why` tells what it waits for; with `follow=True` its start is waited for"
        raise MusterError("not-started", f"{seen.id} has not started yet", hint, HTTPStatus.CONFLICT)
    return Tail(seen.id, attempt, rank, stream, is_over=not follow)


def _read(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        raise MusterError("not-ours", "the server answers something that is no JSON") from None
