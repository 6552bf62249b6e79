"""A store that keeps nothing: claims come from memory, results are thrown away."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import cast

from bench.store.ours import OPTIONS
from parcelpost.clock import SystemClock
from parcelpost.model import Claim, Encoded, Json, Result, Site, Task, TaskStatus
from parcelpost.storage import validation
from parcelpost.storage.lpm import LocalPersistenceManager


class _Discarding:
    """What an executor asks of its store, and nothing else."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        now = SystemClock().now()
        claims = [
            Claim(task=task, token=str(seq), seq=seq, retries=0, created_at=now) for seq, task in enumerate(tasks, 1)
        ]
        self._claims = iter(claims)

    async def claim(
        self, limit: int = 1, *, platforms: Collection[str] | None = None, exclude_sites: Collection[Site] = ()
    ) -> list[Claim]:
        found = next(self._claims, None)
        return [] if found is None else [found]

    def encode(self, data: Mapping[str, Json]) -> Encoded:
        return Encoded(validation.json_bytes("data", data, max_bytes=OPTIONS.max_result_bytes))

    async def save_result(self, claim: Claim, result: Result) -> str | None:
        return claim.token

    async def finish(self, claim: Claim) -> bool:
        return True

    async def give_up(self, claim: Claim, error: str) -> bool:
        return True

    async def retry_later(self, claim: Claim, error: str, delay: timedelta | None = None) -> TaskStatus | None:
        return TaskStatus.PENDING

    async def release(self, claim: Claim, delay: timedelta | None = None) -> bool:
        return True

    async def pause_platform(self, platform: str, until: datetime | None = None, reason: str = "") -> None:
        return None


def discarding(tasks: Iterable[Task]) -> LocalPersistenceManager:
    """To an executor it looks like a store."""
    return cast(LocalPersistenceManager, _Discarding(tasks))
