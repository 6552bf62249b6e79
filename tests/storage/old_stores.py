"""A worker's store in the middle of its work, every table in use."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from parcelpost.clock import ManualClock
from parcelpost.model import BrowserState, Page, Result, Signal, Source
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import Sample, SyncRound
from parcelpost.storage.results import page_records
from tests.storage.factories import NOW, a_result, a_task, claim_one, deliver, save_one, the_result

OPEN = ["later", "other", "urgent", "held"]
"""Tasks that are to do; `held` is in the hands of a process that died, `later` waits for a second try."""

Rows = dict[str, list[dict[str, Any]]]


class Identity(msgspec.Struct, frozen=True):
    worker_id: str


def echo(task_id: str, **more: Any) -> Any:
    return a_task(task_id, platform="echo", parcel_id=f"P-{task_id}", **more)


async def fill(folder: Path) -> Path:
    """Returns a copy of it, as kill -9 would leave it, with `data` beside it."""
    clock = ManualClock()
    async with LocalPersistenceManager.open(folder / "store.db", clock=clock, worker="worker") as lpm:
        await _results(lpm)
        await _housekeeping(lpm)
        clock.advance(-3_600)  # clocks are set back: what comes next looks older, and is delivered later all the same
        await save_one(lpm, echo("last"), a_result({"owner": "Zoe"}, body=b"<html>last</html>"))
        await _tasks_to_do(lpm)
        copy = folder / "copy" / "store.db"
        copy.parent.mkdir()
        with contextlib.closing(sqlite3.connect(lpm.path)) as live, contextlib.closing(sqlite3.connect(copy)) as made:
            live.backup(made)
        shutil.copytree(folder / "data", copy.parent / "data")
    return copy


async def _results(lpm: LocalPersistenceManager) -> None:
    done = await save_one(lpm, echo("done"), a_result(body=b"<html>done</html>"))
    await deliver(lpm, done.result_id)
    await save_one(lpm, echo("first"), a_result({"owner": "Ann"}, body=b"<html>first</html>"))
    await save_one(lpm, echo("plain", source=Source.CLI))
    refused = await save_one(lpm, echo("refused"))
    await lpm.count_attempt([refused.result_id], "no zone")
    await lpm.mark_rejected([refused.result_id], "422 no zone")
    failing = await claim_one(lpm, echo("failing"))
    await lpm.artifacts.put("failing", b"\x89PNG\r\n\x1a\n" + b"x" * 100, "console: no table")
    await lpm.give_up(failing, "no such parcel")
    records = page_records([{"parcel_id": f"P-{number}", "county": "hartford"} for number in range(3)])
    page = Page(body=b"<html>a list</html>", content_type="text/csv")
    many = Result(
        data=records[0].data, parcel_id="P-0", additional_records=tuple(records[1:]), page=page, scraped_at=NOW
    )
    await lpm.save_result(await claim_one(lpm, echo("list")), many)


async def _housekeeping(lpm: LocalPersistenceManager) -> None:
    await lpm.cache.put("https://county.example/1", b"<html>cached</html>", etag='"1"', ttl=timedelta(days=1))
    await lpm.signals.append(
        [Signal(platform="echo", field="owner", selector="#owner", selector_type="css", success=True, task_id="done")]
    )
    browser = BrowserState(browser_id=1, status="idle", last_health_check=NOW, created_at=NOW, tasks_completed=12)
    await lpm.browsers.put(replace(browser, owner=lpm.owner_id, marker="a marker"))
    await lpm.sync_log.record(SyncRound(direction="upload", record_type="results", record_count=1, success=True))
    await lpm.metrics.record(Sample(tasks_completed=3, ram_percent=41.5))
    await lpm.pause_platform("qpublic", None, "the county asked us to wait")
    await lpm.state.put("identity", Identity("hartford-1"))


async def _tasks_to_do(lpm: LocalPersistenceManager) -> None:
    later = await claim_one(lpm, echo("later"))
    await lpm.retry_later(later, "slow", timedelta(minutes=5))
    await claim_one(lpm, echo("held"))
    await lpm.add_task(echo("other"))
    await lpm.add_task(echo("urgent", priority=1))
    assert (await the_result(lpm, "last")).raw_sha256


def tables(db: sqlite3.Connection) -> list[str]:
    """What triggers write to comes last."""
    query = "SELECT name FROM main.sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    found = {name for (name,) in db.execute(query)} - {"schema_version"}
    return sorted(found, key=lambda name: (name == "storage_usage", name != "tasks", name))


def rows(store: Path) -> Rows:
    """Everything, by table."""
    with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as db:
        db.row_factory = sqlite3.Row
        return {name: [dict(row) for row in db.execute(f"SELECT * FROM {name} ORDER BY 1")] for name in tables(db)}
