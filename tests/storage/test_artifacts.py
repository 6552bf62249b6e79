"""What a failed attempt in a browser looked like: kept by task, for a while, and never in the way."""

from __future__ import annotations

import gzip
import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput, StoreError
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions, artifacts
from parcelpost.storage.artifacts import MAX_LOG_BYTES, MAX_PAGE_BYTES, MAX_SCREENSHOT_BYTES
from tests.storage.factories import a_result, a_task, claim_one, deliver, look, requeue, the_result

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100
JPEG = b"\xff\xd8\xff\xe0" + b"x" * 100
DAY = 86_400


def files(store: Path) -> list[Path]:
    return sorted(path for path in (store.parent / "data" / "artifacts").rglob("*") if path.is_file())


def raw_bytes(store: Path) -> int:
    found: int = look(store, "SELECT bytes FROM storage_usage WHERE kind = 'raw'")[0][0]
    return found


async def test_a_failed_task_names_its_screenshot_and_its_log(lpm: LocalPersistenceManager, store: Path) -> None:
    claim = await claim_one(lpm)
    assert await lpm.artifacts.put("t1", PNG, "console: no table")
    await lpm.give_up(claim, "the page has no table")
    entry = await the_result(lpm)
    assert lpm.raw_path(str(entry.screenshot_path)).read_bytes() == PNG
    assert lpm.raw_path(str(entry.log_path)).read_text() == "console: no table"
    assert {stat.S_IMODE(path.stat().st_mode) for path in files(store)} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in files(store)} == {0o700}


async def test_a_task_that_used_up_its_retries_names_the_evidence_of_its_last_attempt(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    claim = await claim_one(lpm, a_task(max_retries=1))
    await lpm.artifacts.put("t1", PNG, "first")
    assert await lpm.retry_later(claim, "slow", timedelta(0)) is TaskStatus.PENDING
    (claim,) = await lpm.claim()
    await lpm.artifacts.put("t1", JPEG, "second")
    assert await lpm.retry_later(claim, "slow", timedelta(0)) is TaskStatus.FAILED
    entry = await the_result(lpm)
    assert [path.suffix for path in files(store)] == [".jpg", ".log"]
    assert lpm.raw_path(str(entry.screenshot_path)).read_bytes() == JPEG
    assert lpm.raw_path(str(entry.log_path)).read_text() == "second"


async def test_a_task_that_found_nothing_names_it_too(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm)
    await lpm.artifacts.put("t1", None, "no such parcel")
    await lpm.finish(claim)
    entry = await the_result(lpm)
    assert entry.screenshot_path is None
    assert lpm.raw_path(str(entry.log_path)).read_text() == "no such parcel"


async def test_a_task_without_evidence_names_none(lpm: LocalPersistenceManager) -> None:
    await lpm.give_up(await claim_one(lpm), "no")
    entry = await the_result(lpm)
    assert (entry.screenshot_path, entry.log_path) == (None, None)
    assert await lpm._db.read(artifacts.get, "t1") is None


async def test_a_record_makes_an_end_of_it(lpm: LocalPersistenceManager, store: Path) -> None:
    claim = await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "first")
    await lpm.retry_later(claim, "slow", timedelta(0))
    assert await lpm._db.read(artifacts.get, "t1") is not None
    (claim,) = await lpm.claim()
    await lpm.save_result(claim, a_result())
    assert await lpm._db.read(artifacts.get, "t1") is None
    assert (files(store), raw_bytes(store)) == ([], 0)
    entry = await the_result(lpm)
    assert (entry.screenshot_path, entry.log_path) == (None, None)


async def test_a_claim_says_whether_an_earlier_attempt_in_any_process_left_some(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    claim = await claim_one(lpm)
    assert not claim.has_artifacts
    async with LocalPersistenceManager.open(store, clock=clock) as peer:
        await peer.artifacts.put("t1", PNG, "log")
    await lpm.give_up(claim, "no")
    await requeue(lpm)
    (claim,) = await lpm.claim()
    assert claim.has_artifacts
    await lpm.artifacts.discard_superseded(claim)
    await lpm.give_up(claim, "and nothing to show")
    assert await lpm.artifacts.get("t1") is None
    entry = await the_result(lpm)
    assert (files(store), entry.screenshot_path, entry.log_path) == ([], None, None)


async def test_also_of_a_requeued_task_whose_evidence_is_an_earlier_process_s(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        claim = await claim_one(lpm)
        await lpm.artifacts.put("t1", PNG, "")
        await lpm.give_up(claim, "no")
    async with LocalPersistenceManager.open(store, clock=clock) as lpm:
        await requeue(lpm)
        (claim,) = await lpm.claim()
        await lpm.save_result(claim, a_result())
    assert files(store) == []


async def test_what_a_peer_left_of_a_completed_task_goes_with_the_next_clean_up(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    await lpm.save_result(await claim_one(lpm, "other"), a_result())
    claim = await claim_one(lpm)
    async with LocalPersistenceManager.open(store, clock=clock) as peer:
        await peer.artifacts.put("t1", PNG, "")
    await lpm.save_result(claim, a_result())
    assert len(files(store)) == 1
    assert (await lpm.maintenance.clean()).artifacts == 1
    assert files(store) == []


async def test_it_goes_after_its_time_and_is_no_longer_named(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    claim = await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "log")
    await lpm.give_up(claim, "no")
    clock.advance(7 * DAY)
    assert (await lpm.maintenance.clean()).artifacts == 0
    clock.advance(1)
    assert (await lpm.maintenance.clean()).artifacts == 1
    entry = await the_result(lpm)
    assert (entry.screenshot_path, entry.log_path, entry.error) == (None, None, "no")
    assert (files(store), raw_bytes(store)) == ([], 0)


async def test_its_time_can_be_set(store: Path, clock: ManualClock) -> None:
    options = StoreOptions(keep_artifacts_days=1)
    async with LocalPersistenceManager.open(store, options=options, clock=clock) as lpm:
        await claim_one(lpm)
        await lpm.artifacts.put("t1", PNG, "")
        clock.advance(2 * DAY)
        assert (await lpm.maintenance.clean()).artifacts == 1


async def test_at_the_cap_all_of_it_goes(lpm: LocalPersistenceManager, store: Path) -> None:
    """I8: and what is not delivered stays."""
    claim = await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "log")
    await lpm.give_up(claim, "no")
    assert (await lpm.maintenance.relieve()).artifacts == 1
    assert files(store) == []
    assert [entry.task_id for entry in await lpm.get_unsynced_results()] == ["t1"]


async def test_it_is_counted(lpm: LocalPersistenceManager, store: Path) -> None:
    """I8"""
    await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "log")
    await lpm.artifacts.put("t1", PNG, "another log")
    assert (await lpm.maintenance.usage()).raw == 2 * 4_096
    assert (await lpm.maintenance.health()).artifact_bytes == 2 * 4_096
    await lpm.artifacts.put("t1", None, "only a log")
    assert (await lpm.maintenance.usage()).raw == 4_096


async def test_what_a_crash_left_goes_after_a_day(lpm: LocalPersistenceManager, store: Path) -> None:
    await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "log")
    folder = files(store)[0].parent
    left, partial, new = folder / "gone~1.png", folder / "t1.png.partial", folder / "just now~2.log"
    for path in (left, partial):
        path.write_bytes(b"x")
    for path in files(store):
        os.utime(path, (0, 0))
    new.write_bytes(b"x")
    assert (await lpm.maintenance.clean()).files == 2
    assert [path.name.partition("~")[0] for path in files(store)] == ["just now", "t1", "t1"]


async def test_a_task_that_is_removed_takes_no_harm_from_it(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    claim = await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "")
    await lpm.give_up(claim, "no")
    await deliver(lpm, (await the_result(lpm)).result_id)
    clock.advance(8 * DAY)
    cleaned = await lpm.maintenance.clean()
    assert (cleaned.results, cleaned.tasks, cleaned.artifacts) == (1, 1, 1)


async def test_nothing_is_kept_of_a_task_that_is_not_there(lpm: LocalPersistenceManager, store: Path) -> None:
    assert not await lpm.artifacts.put("unknown", PNG, "log")
    await claim_one(lpm)
    assert not await lpm.artifacts.put("t1", None, "")
    assert files(store) == []


@pytest.mark.parametrize("screenshot", [b"", b"<html>", b"GIF89a", b"PNG"])
async def test_what_is_no_image_is_refused(lpm: LocalPersistenceManager, store: Path, screenshot: bytes) -> None:
    await claim_one(lpm)
    with pytest.raises(InvalidInput, match="PNG or a JPEG"):
        await lpm.artifacts.put("t1", screenshot, "log")
    assert files(store) == []


async def test_sizes_are_bounded(lpm: LocalPersistenceManager, store: Path) -> None:
    await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG + bytes(MAX_SCREENSHOT_BYTES), "begin " + "x" * MAX_LOG_BYTES * 2)
    (log,) = files(store)
    text = log.read_text()
    assert len(text) <= MAX_LOG_BYTES
    assert text.startswith("begin xxx")
    assert "bytes are left out" in text
    assert text.rstrip().endswith("and was not kept)")


@pytest.mark.parametrize("task_id", ["../../x", "/etc/passwd", "a" * 400, "ü\n\x07", "CON", ".", "~"])
async def test_no_task_id_leads_out_of_the_folder(lpm: LocalPersistenceManager, store: Path, task_id: str) -> None:
    claim = await claim_one(lpm, a_task(task_id))
    assert await lpm.artifacts.put(task_id, PNG, "log \udc80")
    assert {path.parent for path in files(store)} == {store.parent / "data" / "artifacts"}
    await lpm.give_up(claim, "no")
    assert lpm.raw_path(str((await the_result(lpm, task_id)).screenshot_path)).exists()


async def test_tasks_that_differ_in_capitals_have_files_of_their_own(lpm: LocalPersistenceManager, store: Path) -> None:
    for task_id in ("abc", "ABC"):
        await claim_one(lpm, task_id)
        await lpm.artifacts.put(task_id, None, task_id)
    assert len({path.name.lower() for path in files(store)}) == 2


async def test_stores_that_share_a_data_folder_do_not_share_evidence(
    lpm: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    await claim_one(lpm)
    await lpm.artifacts.put("t1", PNG, "")
    async with LocalPersistenceManager.open(store.with_name("other.db"), clock=clock) as other:
        await claim_one(other)
        await other.artifacts.put("t1", PNG, "")
        for path in files(store):
            os.utime(path, (0, 0))
        assert (await other.maintenance.clean()).files == 0
        assert (await other.maintenance.relieve()).artifacts == 1
    assert len(files(store)) == 1


async def test_a_file_in_the_folder_s_place_is_told(lpm: LocalPersistenceManager, store: Path) -> None:
    await claim_one(lpm)
    (store.parent / "data" / "artifacts").write_text("in the way")
    with pytest.raises(StoreError, match="artifacts"):
        await lpm.artifacts.put("t1", PNG, "")


async def test_the_last_page_is_kept_compressed_unless_it_is_too_large(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    await claim_one(lpm)
    assert await lpm.artifacts.put("t1", None, "", b"<html>" * 1_000)
    stored = await lpm.artifacts.get("t1")
    assert stored is not None
    page = lpm.raw_path(str(stored.page_path))
    assert gzip.decompress(page.read_bytes()) == b"<html>" * 1_000
    assert raw_bytes(store) > 0
    assert not await lpm.artifacts.put("t1", None, "", os.urandom(MAX_PAGE_BYTES + 1))
    assert files(store) == [page], "what the attempt before it saw stays"
    assert await lpm.artifacts.remove(None) == 1
    assert (files(store), raw_bytes(store)) == ([], 0)
