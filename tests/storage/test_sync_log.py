"""One line per round of synchronization."""

from __future__ import annotations

from datetime import timedelta

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import SyncRound
from tests.storage.factories import NOW

UPLOAD = SyncRound(direction="upload", record_type="results", record_count=50, success=True, duration_ms=240)
DOWNLOAD = SyncRound(direction="download", record_type="tasks", record_count=0, success=False, error="503")


async def test_rounds_come_back_the_newest_first(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    first = await lpm.sync_log.record(UPLOAD)
    clock.advance(60)
    second = await lpm.sync_log.record(DOWNLOAD)
    recent = await lpm.sync_log.recent()
    assert [entry.sync_id for entry in recent] == [second, first]
    assert [(entry.direction, entry.record_count, entry.error, entry.duration_ms) for entry in recent] == [
        ("download", 0, "503", None),
        ("upload", 50, None, 240),
    ]
    assert [entry.created_at for entry in recent] == [NOW + timedelta(seconds=60), NOW]


async def test_rounds_are_in_the_order_stored_even_when_the_clock_was_set_back(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    stored = []
    for _ in range(3):
        stored.append(await lpm.sync_log.record(UPLOAD))
        clock.advance(-60)
    assert [entry.sync_id for entry in await lpm.sync_log.recent()] == stored[::-1]


async def test_rounds_are_listed_by_direction_and_by_failure(lpm: LocalPersistenceManager) -> None:
    for entry in (UPLOAD, DOWNLOAD, UPLOAD, DOWNLOAD):
        await lpm.sync_log.record(entry)
    assert len(await lpm.sync_log.recent(3)) == 3
    assert {entry.direction for entry in await lpm.sync_log.recent(direction="upload")} == {"upload"}
    assert {entry.error for entry in await lpm.sync_log.recent(failed=True)} == {"503"}
    assert await lpm.sync_log.recent(direction="upload", failed=True) == []


async def test_an_error_is_kept_whatever_it_says(lpm: LocalPersistenceManager) -> None:
    entry = SyncRound(
        direction="upload", record_type="results", record_count=1, success=False, error="\ud800\0" + "x" * 9_000
    )
    await lpm.sync_log.record(entry)
    (found,) = await lpm.sync_log.recent()
    assert len(found.error or "") == 4_000
