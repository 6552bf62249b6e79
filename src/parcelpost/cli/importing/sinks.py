"""The two places that tasks of a file go to: a worker's store and a gateway's ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from parcelpost.cli.importing import tasks
from parcelpost.cli.importing.importer import Numbered, Taken
from parcelpost.cli.importing.readers import Bad
from parcelpost.cli.output import count, size
from parcelpost.clock import Clock, iso
from parcelpost.errors import InvalidInput, StoreFull
from parcelpost.gateway.ledger import Ledger
from parcelpost.model import Task
from parcelpost.protocol.server import check_deliverable
from parcelpost.storage import rows
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions

_CHUNKS_A_LOOK = 10


class IntoStore:
    def __init__(self, lpm: LocalPersistenceManager, options: StoreOptions, clock: Clock) -> None:
        self._lpm = lpm
        self._options = options
        self._clock = clock
        self._chunks = 0
        self._stored = 0

    async def add(self, numbered: list[Numbered]) -> Taken:
        """Raises StoreFull at the store's cap (I8)."""
        if self._chunks % _CHUNKS_A_LOOK == 0:
            await self._require_room()
        self._chunks += 1
        added = await self._lpm.add_tasks(one.task for one in numbered)
        self._stored += added.new + added.known
        refused = _refusals(numbered, self._clock, self._options.max_target_bytes) if added.refused else []
        clashes = await _clashes(numbered, self._find) if added.known else []
        return Taken(added.new, added.known - len(clashes), [*refused, *clashes])

    async def _find(self, task_id: str) -> Task | None:
        info = await self._lpm.get_task(task_id)
        return info.task if info else None

    async def _require_room(self) -> None:
        """Tasks may fill the store no further than a collector may: there must be room for their results."""
        usage = await self._lpm.maintenance.usage()
        if usage.level is Level.FINE:
            return
        stopped = f"stopped after {count(self._stored, 'task')}"
        if usage.lacks_inodes:
            raise StoreFull(
                f"the disk has nearly no free inodes ({usage.free_inodes:,}; {2 * usage.min_free_inodes:,} are kept "
                f"for results): {stopped}",
                hint="remove files from that disk ('df -i'), then import again: it goes on from there",
            )
        if usage.lacks_disk:
            raise StoreFull(
                f"the disk is nearly full ({size(usage.disk_free)} free; {size(2 * usage.min_free_bytes)} are kept for "
                f"results): {stopped}",
                hint="free some disk space, then import again: it goes on from there",
            )
        raise StoreFull(
            f"the store is nearly full ({size(usage.total)} of at most {size(usage.max_bytes)}): {stopped}",
            hint="make room with 'parcelpost store clean --relieve', then import again: it goes on from there",
        )


class IntoLedger:
    """Refuses what a worker's store would refuse, and what the gateway would refuse of the result."""

    def __init__(self, ledger: Ledger, clock: Clock, max_target_bytes: int) -> None:
        self._ledger = ledger
        self._clock = clock
        self._max_target_bytes = max_target_bytes

    async def add(self, numbered: list[Numbered]) -> Taken:
        """Raises LedgerUnavailable."""
        refused = _refusals(numbered, self._clock, self._max_target_bytes, check_deliverable)
        numbers = {one.number for one in refused}
        fit = [one for one in numbered if one.number not in numbers] if numbers else numbered
        added = await self._ledger.add_tasks([one.task for one in fit], self._clock.now())
        clashes = await _clashes(fit, self._find) if added.known else []
        return Taken(added.new, added.known - len(clashes), [*refused, *clashes])

    async def _find(self, task_id: str) -> Task | None:
        row = await self._ledger.task(task_id)
        return row.task if row else None


def _refusals(
    numbered: list[Numbered], clock: Clock, max_target_bytes: int, check: Callable[[Task], None] = lambda _: None
) -> list[Bad]:
    """Which of them a store will not take, or `check` raises InvalidInput for, and why."""
    now = iso(clock.now())
    found = []
    for number, task in numbered:
        try:
            rows.task_row(task, now, max_target_bytes)
            check(task)
        except InvalidInput as error:
            found.append(Bad(number, str(error)))
    return found


async def _clashes(numbered: list[Numbered], find: Callable[[str], Awaitable[Task | None]]) -> list[Bad]:
    """Rows whose own task id is in use for another parcel. A derived id cannot be."""
    named = [one for one in numbered if one.task.task_id != tasks.derived_id(one.task.platform, one.task.target)]
    found = await asyncio.gather(*(find(one.task.task_id) for one in named))
    return [
        Bad(number, f"task id {task.task_id!r} is that of parcel {known.target.parcel_id!r} already")
        for (number, task), known in zip(named, found, strict=True)
        if known is not None and not tasks.is_same(known, task)
    ]
