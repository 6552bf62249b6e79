"""What the store should hold, kept in plain Python: the other side of the state machine's comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from parcelpost.model import Claim, Task, TaskStatus

DONE = (TaskStatus.COMPLETED, TaskStatus.NOT_FOUND)
ENDED = (*DONE, TaskStatus.FAILED, TaskStatus.EXPIRED)


@dataclass(kw_only=True)
class StoredResult:
    step: int | None
    """The call that stored it: the outbox's order, but among the results of one call. None: one of the calls before."""
    success: bool
    result_id: str | None = None
    """None for a report: the store makes up its id."""
    data: bytes | None = None
    page: bytes | None = None
    raw_synced: bool = False
    synced_at: datetime | None = None
    rejected: bool = False

    @property
    def waits(self) -> bool:
        return self.synced_at is None and not self.rejected


@dataclass(kw_only=True)
class StoredTask:
    task: Task
    order: int
    created_at: datetime
    lease: datetime | None
    status: TaskStatus = TaskStatus.PENDING
    retries: int = 0
    recoveries: int = 0
    available_at: datetime | None = None
    token: str | None = None
    completed_at: datetime | None = None
    result: StoredResult | None = None

    def leave(self, status: TaskStatus, available_at: datetime | None = None) -> None:
        self.status, self.token, self.available_at = status, None, available_at


@dataclass
class StoreModel:
    max_recoveries: int
    tasks: dict[str, StoredTask] = field(default_factory=dict)
    paused: dict[str, datetime | None] = field(default_factory=dict)
    step: int = 0
    latest: datetime = datetime(1, 1, 1, tzinfo=UTC)
    """The latest that the clock has shown."""

    # Tasks

    def add(self, task: Task, now: datetime) -> bool:
        if task.task_id in self.tasks:
            return False
        order = max((stored.order for stored in self.tasks.values()), default=0) + 1
        self.tasks[task.task_id] = StoredTask(task=task, order=order, created_at=now, lease=task.lease_expires_at)
        return True

    def claimable(self, limit: int, platforms: Collection[str] | None, now: datetime) -> list[StoredTask]:
        """Those a claim must answer, in that order. What is due becomes ready on the way."""
        pending = self.with_status(TaskStatus.PENDING)
        for stored in pending:
            if stored.available_at is not None and stored.available_at <= now:
                stored.available_at = None
        ready = [
            stored
            for stored in pending
            if stored.available_at is None
            and (stored.lease is None or stored.lease > now)
            and not self.is_paused(stored.task.platform, now)
            and (platforms is None or stored.task.platform in platforms)
        ]
        return sorted(ready, key=lambda stored: (stored.task.priority, stored.order))[:limit]

    def take(self, claims: Iterable[Claim]) -> None:
        for claim in claims:
            stored = self.tasks[claim.task.task_id]
            stored.status, stored.token = TaskStatus.PROCESSING, claim.token

    def current(self, claim: Claim) -> StoredTask | None:
        """The claim's task if the claim may still end it (I4)."""
        stored = self.tasks.get(claim.task.task_id)
        return stored if stored is not None and stored.token == claim.token else None

    def end(self, stored: StoredTask, status: TaskStatus, now: datetime, record: StoredResult | None = None) -> None:
        stored.leave(status, stored.available_at)
        stored.completed_at = now
        delivered = stored.result is not None and stored.result.success
        if record is not None:
            stored.result = record
        elif not delivered:  # a delivered record is not undone by a later failure of the requeued task
            stored.result = StoredResult(step=self.step, success=status in DONE)

    def retry(self, stored: StoredTask, now: datetime, delay: timedelta) -> TaskStatus:
        if stored.retries >= stored.task.max_retries:
            self.end(stored, TaskStatus.FAILED, now)
            return TaskStatus.FAILED
        stored.retries += 1
        stored.leave(TaskStatus.PENDING, now + delay)
        return TaskStatus.PENDING

    def expire(self, max_age: timedelta | None, now: datetime) -> int:
        over = [
            stored
            for stored in self.with_status(TaskStatus.PENDING)
            if (stored.lease is not None and stored.lease <= now)
            or (max_age is not None and stored.created_at < now - max_age)
        ]
        for stored in over:
            self.end(stored, TaskStatus.EXPIRED, now)
        return len(over)

    def adopt(self, ended: Mapping[str, datetime], ready: Collection[str]) -> None:
        """What may happen by the passing of time happens when the store looks next, which may be soon after a claim.

        `ended` are the tasks that have an end in the store, `ready` the pending ones that are due there.
        """
        for stored in self.with_status(TaskStatus.PENDING):
            task_id = stored.task.task_id
            if stored.lease is not None and stored.lease <= self.latest and task_id in ended:
                self.end(stored, TaskStatus.EXPIRED, ended[task_id])
                if stored.result is not None and not stored.result.success:
                    stored.result.step = None
            if stored.available_at is not None and stored.available_at <= self.latest and task_id in ready:
                stored.available_at = None

    def requeue(self, task_ids: Iterable[str], *, completed: bool) -> int:
        count = 0
        for stored in [self.tasks[task_id] for task_id in task_ids]:
            result = stored.result
            delivered = result is None or result.synced_at is not None
            wanted = completed and delivered if stored.status in DONE else stored.status in ENDED
            if not wanted:
                continue
            count += 1
            if result is not None and not result.success and result.synced_at is None:
                stored.result = None
            stored.leave(TaskStatus.PENDING)
            stored.retries = stored.recoveries = 0
            stored.completed_at = stored.lease = None
        return count

    def release_all(self) -> None:
        """A clean close."""
        for stored in self.with_status(TaskStatus.PROCESSING):
            stored.leave(TaskStatus.PENDING)

    def crash(self, now: datetime) -> None:
        """I9: what the dead process held is pending again, or failed when it died once too often."""
        for stored in self.with_status(TaskStatus.PROCESSING):
            if stored.recoveries >= self.max_recoveries:
                self.end(stored, TaskStatus.FAILED, now)
            else:
                stored.recoveries += 1
                stored.leave(TaskStatus.PENDING)

    # Results

    def results(self) -> dict[str, StoredResult]:
        """By task id."""
        found = [(task_id, stored.result) for task_id, stored in self.tasks.items() if stored.result is not None]
        return dict(found)

    def clean(self, now: datetime, keep: timedelta) -> tuple[int, int]:
        """How many results and how many tasks went."""
        results = 0
        for stored in self.tasks.values():
            if stored.result and stored.result.synced_at is not None and stored.result.synced_at < now - keep:
                stored.result = None
                results += 1
        gone = [
            task_id
            for task_id, stored in self.tasks.items()
            if stored.completed_at is not None and stored.completed_at < now - keep and stored.result is None
        ]
        for task_id in gone:
            del self.tasks[task_id]
        return results, len(gone)

    # Looks

    def with_status(self, status: TaskStatus) -> list[StoredTask]:
        return [stored for stored in self.tasks.values() if stored.status is status]

    def is_paused(self, platform: str, now: datetime) -> bool:
        return platform in self.paused and ((until := self.paused[platform]) is None or until > now)

    def counts(self) -> Counter[tuple[str, TaskStatus]]:
        return Counter((stored.task.platform, stored.status) for stored in self.tasks.values())
