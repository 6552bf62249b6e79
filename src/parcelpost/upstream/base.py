"""What a worker asks of its upstream. GatewayClient and the Firestore client keep this protocol.

Every call may raise Unavailable and Unauthorized; what else it may raise is said there. No call retries by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from parcelpost.model import Broken, Lease, OutboxEntry, QueueDepth, Signal, Task
from parcelpost.protocol.client import HeartbeatReply

MOST_TASKS = 100
"""No upstream gives more in one call."""


class BadTask(Struct, frozen=True, kw_only=True):
    """A task in an answer that cannot be understood."""

    task_id: str
    """'' where even that is missing."""
    problem: str


class Work(Struct, frozen=True, kw_only=True):
    tasks: Sequence[Task]
    bad: Sequence[BadTask] = ()
    retry_after: float = 0.0
    """Seconds until asking again makes sense; the upstream's wish after an empty answer."""
    rest: float = 0.0
    """Seconds in which no other call is allowed, whatever came with this one."""


class Receipt(Struct, frozen=True, kw_only=True):
    """The upstream's word on one entry."""

    stored: bool
    """Stored now or before; False: it will not take it."""
    error: str = ""


class Submitted(Struct, frozen=True, kw_only=True):
    """What became of a batch of results: how many were stored, and where the upstream says so, which."""

    stored: int
    failed: int
    errors: Sequence[str] = ()
    receipts: Mapping[str, Receipt] = {}
    """By task_id. Where an entry has one, it decides."""


class Heartbeat(Struct, frozen=True, kw_only=True):
    """How the worker is."""

    active_tasks: int
    completed_last_minute: int
    failed_last_minute: int
    platforms: Sequence[str]
    cpu_percent: float
    memory_percent: float
    queue: QueueDepth
    version: str
    paused: bool
    disk_free_bytes: int
    blocked: Sequence[str] = ()
    """Platforms that are left alone for now, because a site of theirs wants no more of us."""
    broken: Sequence[Broken] = ()
    """Fields that sites no longer show where they did."""
    leaving: bool = False
    """The last one: the worker ends, and nothing runs any more."""
    leases: Sequence[Lease] = ()
    """Those that are in the worker's store under a name of the upstream's."""


class MetricsSample(Struct, frozen=True, kw_only=True):
    """A sample of the worker's own figures, by their column names in `agent_metrics`."""

    timestamp: str
    values: Mapping[str, float | int | None]


class RankedSelector(Struct, frozen=True, kw_only=True):
    """How a selector does in the whole fleet."""

    platform: str
    field: str
    selector: str
    selector_type: str
    success_rate: float
    samples: int


class Receiver(Protocol):
    """What takes the outbox."""

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        """Records, in order. Raises Refused or TooLarge for the whole batch."""

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        """The entry's page. Raises Refused or TooLarge."""

    async def report_end(self, entry: OutboxEntry) -> None:
        """The end of a task that has no record: failed, expired, or completed with nothing to send.

        Raises Refused. A task that the upstream does not know is no error.
        """


class Upstream(Receiver, Protocol):
    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        """Up to `capacity` tasks (1 to 100) of these platforms. They are taken from the upstream's queue by this."""

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        """Answers the upstream's commands, as it wrote them, and until when its leases run now: all of them, or of
        those that have names the ones that it has extended.
        """

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        """In the order stored; `first_id` is the id of the first. What is sent again begins with the same one.

        Raises NotOffered, and Refused or TooLarge for the whole batch.
        """

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        """Raises NotOffered, Refused or TooLarge."""

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        """Raises NotOffered."""
