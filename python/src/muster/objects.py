"""Objects of the API. Fields that this version does not know are kept in `extra`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

T = TypeVar("T", bound="ApiObject")


@dataclass(frozen=True)
class ApiObject:
    """An object of the API."""

    _nested: ClassVar[Mapping[str, type[ApiObject]]] = {}
    """Fields that are objects of the API themselves, or lists of them."""

    extra: dict[str, Any] = field(default_factory=dict, kw_only=True)
    """Fields that this version does not know."""

    @classmethod
    def read(cls: type[T], json: Any) -> T:
        """From JSON. A missing field has its default; an unknown field is kept in `extra`."""
        unread = dict(json) if isinstance(json, Mapping) else {}
        names = [item.name for item in fields(cls) if item.name != "extra"]
        known = {name: cls._parse_field(name, unread.pop(name)) for name in names if name in unread}
        return cls(**known, extra=unread)

    @classmethod
    def _parse_field(cls, name: str, value: Any) -> Any:
        object_type = cls._nested.get(name)
        if object_type is None:
            return value
        if isinstance(value, list):
            return [object_type.read(item) for item in value]
        return value if value is None else object_type.read(value)


@dataclass(frozen=True)
class Submitted(ApiObject):
    """The response to a submission. The job is durable."""

    job_id: str = ""
    status: str = ""
    message: str = ""


@dataclass(frozen=True)
class Done(ApiObject):
    """The response to a command without other data."""

    message: str = ""


@dataclass(frozen=True)
class Reason(ApiObject):
    """One reason why a job waits."""

    reason: str = ""
    """A stable code, the same in command line, API and metrics."""
    sentence: str = ""
    """The reason in a sentence, with its numbers."""
    since: str | None = None
    since_ms: int | None = None


@dataclass(frozen=True)
class Task(ApiObject):
    """A task group: tasks of a gang with the same resources."""

    name: str = ""
    count: int = 1
    max_count: int | None = None
    gpus: int = 0
    gpu_models: list[str] = field(default_factory=list)
    gpu_memory_mb: int = 0
    gpu_share: float = 1.0
    isolation: str | None = None
    cpu_cores: int = 0
    memory_mb: int = 0


_ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Job(ApiObject):
    """A job: its state and its specification. Fields that lists leave out have their default."""

    _nested: ClassVar[Mapping[str, type[ApiObject]]] = {"reasons": Reason, "tasks": Task}

    id: str = ""
    tenant_id: str = ""
    user: str = ""
    name: str = ""
    state: str = ""
    """`pending`, `running`, `completed`, `failed`, `preempted` or `cancelled`."""
    phase: str = ""
    """In more detail: `Queued`, `Held`, `Starting`, `Running`, `Stopping`, `Done`, `Failed`, `Cancelled`."""
    message: str = ""
    """Why the job is held, waits again, or ended."""
    waits_for: str | None = None
    """The main reason why the job waits."""
    priority: int = 0
    gpu_count: int = 0
    gpu_amount: float | None = None
    gpu_memory_mb: int = 0
    cpu_cores: int = 0
    memory_mb: int = 0
    max_runtime: str | None = None
    time_limit_ms: int | None = None
    submitted_at: str = ""
    submitted_at_ms: int = 0
    scheduled_at: str | None = None
    scheduled_at_ms: int | None = None
    started_at: str | None = None
    started_at_ms: int | None = None
    completed_at: str | None = None
    completed_at_ms: int | None = None
    actual_duration: str | None = None
    actual_duration_ms: int | None = None
    attempts: int = 0
    """Number of the latest attempt; 0 before the first."""
    nodes: list[str] = field(default_factory=list)
    exit_code: int | None = None
    signal: int | None = None
    preempted_count: int = 0
    restart_count: int = 0
    requeue_count: int = 0
    gpu_hours: float = 0.0
    cost: float = 0.0
    labels: dict[str, str] = field(default_factory=dict)
    allocated_gpus: list[str] = field(default_factory=list)
    """The GPUs that the job holds."""
    queue_position: int | None = None
    queue_length: int | None = None
    estimated_wait: str | None = None
    reasons: list[Reason] = field(default_factory=list)
    """Every reason why the job waits, the main one first."""
    array: dict[str, int] | None = None
    """Number of tasks by state, if the id names a whole array."""
    tasks: list[Task] = field(default_factory=list)
    topology: str = ""
    gpu_models: list[str] = field(default_factory=list)
    script: str | None = None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Environment variables; the values are `***` for all but the job's owner."""
    environment_hidden: bool = False
    image: str | None = None
    directory: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended; for an array, whether all of its tasks have."""
        states = self.array if self.array is not None else [self.state]
        return all(state in _ENDED for state in states)


@dataclass(frozen=True)
class ExpectedStart(ApiObject):
    """The forecast start range of a job."""

    to: str = ""
    to_ms: int = 0
    from_ms: int = 0
    ranges_right: int = 0
    """How many of `ranges_told` earlier ranges were right."""
    ranges_told: int = 0


@dataclass(frozen=True)
class SoonerWith(ApiObject):
    """A remedy: a change to the job that would start it now."""

    words: str = ""
    keeps_its_place: bool = False
    change: Any = None


@dataclass(frozen=True)
class Ahead(ApiObject):
    """A job that is ahead in the queue."""

    job_id: str = ""
    name: str = ""
    tenant_id: str = ""
    priority: int = 0


@dataclass(frozen=True)
class WaitNote(ApiObject):
    """The reasons of a wait from one time on."""

    _nested: ClassVar[Mapping[str, type[ApiObject]]] = {"reasons": Reason}

    at: str = ""
    at_ms: int = 0
    reasons: list[Reason] = field(default_factory=list)


@dataclass(frozen=True)
class Holder(ApiObject):
    """A job that holds GPUs for which another job waits."""

    job_id: str = ""
    name: str = ""
    tenant_id: str = ""
    gpus: int = 0
    expected_end: str | None = None
    expected_end_ms: int | None = None
    is_time_limit: bool = False


@dataclass(frozen=True)
class JobPhase(ApiObject):
    """One phase of a job: a wait, an attempt, or the end of one."""

    phase: str = ""
    from_ms: int = 0
    lasted_ms: int = 0
    ongoing: bool = False
    sentence: str = ""


@dataclass(frozen=True)
class Why(ApiObject):
    """Why a job waits, or its state if it does not wait."""

    _nested: ClassVar[Mapping[str, type[ApiObject]]] = {
        "reasons": Reason,
        "expected_start": ExpectedStart,
        "sooner_with": SoonerWith,
        "ahead": Ahead,
        "history": WaitNote,
        "holders": Holder,
        "phases": JobPhase,
    }

    job_id: str = ""
    name: str = ""
    tenant_id: str = ""
    state: str = ""
    phase: str = ""
    summary: str = ""
    """The verdict in a sentence."""
    waiting_since: str | None = None
    waiting_since_ms: int | None = None
    waited: str | None = None
    queue_position: int | None = None
    queue_length: int | None = None
    nodes: list[str] = field(default_factory=list)
    priority: int = 0
    effective_priority: int | None = None
    reasons: list[Reason] = field(default_factory=list)
    estimated_start: str | None = None
    expected_start: ExpectedStart | None = None
    reserved_at_ms: int | None = None
    sooner_with: list[SoonerWith] = field(default_factory=list)
    may_change: bool = False
    """Whether the caller may change the job."""
    ahead: list[Ahead] = field(default_factory=list)
    history: list[WaitNote] = field(default_factory=list)
    no_estimate: str | None = None
    """Why there is no start range."""
    gpus: int = 0
    holders: list[Holder] = field(default_factory=list)
    other_holders: int = 0
    phases: list[JobPhase] = field(default_factory=list)


JobRef = str | int | Job | Submitted
"""A reference to a job: `job-42`, `42`, or an object returned by the client."""


def id_of(job: JobRef) -> str:
    """The id of a referenced job."""
    if isinstance(job, Submitted):
        return job.job_id
    return job.id if isinstance(job, Job) else str(job)
