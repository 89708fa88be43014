"""The synchronous client."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from muster import operations
from muster.call import Call, EventReader, Message, Pause
from muster.connection import resolve
from muster.error import MusterError
from muster.link import bytes_of
from muster.objects import Done, Job, JobRef, Submitted, Why
from muster.operations import Operation, Pages

T = TypeVar("T")


class Client:
    """A client of one server. Each call opens its own connection, so threads may share a client."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Resolve the server as the command line does, without connecting.

        Arguments that are not given come from `MUSTER_SERVER`, `MUSTER_TOKEN_FILE` or `MUSTER_TOKEN`,
        `MUSTER_CA_FILE`, and from the files of a server on this machine in `MUSTER_DATA_DIR`.
        """
        self._connection = resolve(url, token, token_file, ca_file)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    def submit(
        self,
        command: Sequence[str] | None = None,
        *,
        script: str | None = None,
        image: str | None = None,
        gpus: int | None = None,
        gpu_model: str | Sequence[str] | None = None,
        gpu_memory_mb: int | None = None,
        cpu_cores: int | None = None,
        memory_mb: int | None = None,
        name: str | None = None,
        tenant: str | None = None,
        priority: int | str | None = None,
        time_limit: int | str | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        **more: Any,
    ) -> Submitted:
        """Submit a job: a command as a list of words, or the text of a shell script.

        `time_limit` is a number of seconds or a string such as `2h30m`. `more` are other fields of the API by
        name, such as `array="0-9"`. Submissions with the same idempotency key create one job. Without a key a
        random one is used, so that a retry after a broken connection never creates a second job.
        """
        fields: dict[str, Any] = {
            "command": command if command is None or isinstance(command, str) else list(command),
            "script": script,
            "image": image,
            "gpus": gpus,
            "gpu_model": gpu_model,
            "gpu_memory_mb": gpu_memory_mb,
            "cpu_cores": cpu_cores,
            "memory_mb": memory_mb,
            "name": name,
            "tenant_id": tenant,
            "priority": priority,
            "time_limit": time_limit,
            "labels": None if labels is None else dict(labels),
            **more,
        }
        return self._run(operations.submit(operations.job_body(self._connection, fields), idempotency_key))

    def job(self, job: JobRef) -> Job:
        """The job with all of its fields."""
        return self._run(operations.job(job))

    def jobs(
        self,
        *,
        tenant: str | None = None,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
        label: str | None = None,
        active: bool | None = None,
        limit: int | None = None,
    ) -> Iterator[Job]:
        """Jobs that match all conditions, newest first, fetched page by page."""
        query = {
            "tenant_id": tenant,
            "state": state,
            "user": user,
            "name": name,
            "label": label,
            "active": active,
        }
        pages = Pages(query, limit)
        while not pages.is_complete:
            yield from self._run(pages.next_page())

    def wait(self, job: JobRef, timeout: float | None = None) -> Job:
        """Wait until a job has ended. Raises `TimeoutError` after `timeout` seconds."""
        return self._run(operations.wait(job, timeout))

    def logs(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        stream: str = "stdout",
        rank: int = 0,
        attempt: int | None = None,
    ) -> Iterator[str]:
        """The output of a job in pieces; with `follow` until its attempt ends."""
        tail = self._run(operations.tail(job, attempt, rank, stream, follow))
        if tail is None:
            return
        while not tail.has_ended:
            try:
                for message in self._follow(tail.follow_request()):
                    yield tail.event_text(message)
            except MusterError as error:
                if not error.is_away:
                    raise
            self._run(tail.check_ended())
        while not tail.is_complete:
            yield self._run(tail.next_piece())

    def why(self, job: JobRef) -> Why:
        """Why a job waits, when it is expected to start, and which changes would start it now."""
        return self._run(operations.why(job))

    def cancel(self, job: JobRef) -> Done:
        """Cancel a job, waiting or running."""
        return self._run(operations.cancel(job))

    def _run(self, operation: Operation[T]) -> T:
        try:
            step = next(operation)
            while True:
                try:
                    response = self._perform(step)
                except MusterError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(response)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _perform(self, step: Call | Pause) -> bytes:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return b""
        return b"".join(bytes_of(self._connection, step))

    def _follow(self, call: Call) -> Iterator[Message]:
        reader = EventReader()
        for piece in bytes_of(self._connection, call):
            yield from reader.push(piece)
