"""The asynchronous client: the same methods, on the event loop of the caller."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

from muster import operations
from muster.async_link import bytes_of
from muster.call import Call, EventReader, Message, Pause
from muster.connection import resolve
from muster.error import MusterError
from muster.objects import Done, Job, JobRef, Submitted, Why
from muster.operations import Operation, Pages

T = TypeVar("T")


class AsyncClient:
    """A client of one server for asyncio programs, with the methods of `Client`."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        ca_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Resolve the server as the command line does, without connecting."""
        self._connection = resolve(url, token, token_file, ca_file)

    @property
    def url(self) -> str:
        """The address of the server."""
        return self._connection.url

    async def submit(
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
        """Submit a job; see `Client.submit`."""
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
        return await self._run(
            operations.submit(operations.job_body(self._connection, fields), idempotency_key)
        )

    async def job(self, job: JobRef) -> Job:
        """The job with all of its fields."""
        return await self._run(operations.job(job))

    async def jobs(
        self,
        *,
        tenant: str | None = None,
        state: str | None = None,
        user: str | None = None,
        name: str | None = None,
        label: str | None = None,
        active: bool | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[Job]:
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
            for job in await self._run(pages.next_page()):
                yield job

    async def wait(self, job: JobRef, timeout: float | None = None) -> Job:
        """Wait until a job has ended. Raises `TimeoutError` after `timeout` seconds."""
        return await self._run(operations.wait(job, timeout))

    async def logs(
        self,
        job: JobRef,
        *,
        follow: bool = False,
        stream: str = "stdout",
        rank: int = 0,
        attempt: int | None = None,
    ) -> AsyncIterator[str]:
        """The output of a job in pieces; with `follow` until its attempt ends."""
        tail = await self._run(operations.tail(job, attempt, rank, stream, follow))
        if tail is None:
            return
        while not tail.has_ended:
            try:
                async with contextlib.aclosing(self._follow(tail.follow_request())) as messages:
                    async for message in messages:
                        yield tail.event_text(message)
            except MusterError as error:
                if not error.is_away:
                    raise
            await self._run(tail.check_ended())
        while not tail.is_complete:
            yield await self._run(tail.next_piece())

    async def why(self, job: JobRef) -> Why:
        """Why a job waits, when it is expected to start, and which changes would start it now."""
        return await self._run(operations.why(job))

    async def cancel(self, job: JobRef) -> Done:
        """Cancel a job, waiting or running."""
        return await self._run(operations.cancel(job))

    async def _run(self, operation: Operation[T]) -> T:
        try:
            step = next(operation)
            while True:
                try:
                    response = await self._perform(step)
                except MusterError as error:
                    step = operation.throw(error)
                else:
                    step = operation.send(response)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _perform(self, step: Call | Pause) -> bytes:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return b""
        async with contextlib.aclosing(bytes_of(self._connection, step)) as pieces:
            return b"".join([piece async for piece in pieces])

    async def _follow(self, call: Call) -> AsyncGenerator[Message, None]:
        reader = EventReader()
        async with contextlib.aclosing(bytes_of(self._connection, call)) as pieces:
            async for piece in pieces:
                for message in reader.push(piece):
                    yield message
