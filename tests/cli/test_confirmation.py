"""A yes to `delete`, `reject` or `retry` is about what the question counted: no record more (I2)."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parcelpost.cli.progress import Meter
from parcelpost.model import Page, PageRecord, Result, Source
from parcelpost.storage import LocalPersistenceManager, operator_actions
from tests.cli.support import Run, page_of, rows, task


async def save(lpm: LocalPersistenceManager, task_id: str, records: int = 1, source: Source = Source.CLI) -> None:
    await lpm.add_task(task(task_id, source=source))
    (claim,) = await lpm.claim()
    more = tuple(
        PageRecord(key=f"k{n}", parcel_id=f"{task_id}-{n}", county="hartford", data={"n": n}) for n in range(1, records)
    )
    page = Page(url="https://example.org/list", body=page_of(task_id))
    now = datetime.now(UTC)
    assert await lpm.save_result(
        claim, Result(data={"n": 0}, page=page, scraped_at=now, execution_time_ms=1, additional_records=more)
    )


def fill(store: Path, *task_ids: str, records: int = 1) -> None:
    async def filling() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for task_id in task_ids:
                await save(lpm, task_id, records)

    asyncio.run(filling())


def answering(monkeypatch: pytest.MonkeyPatch, *answers: str, meanwhile: Callable[[], None] = lambda: None) -> None:
    """What a person types at each question; `meanwhile` happens while the last one stands."""

    def typed() -> Iterator[str]:
        for place, answer in enumerate(answers, 1):
            if place == len(answers):
                meanwhile()
            yield answer

    left = typed()
    monkeypatch.setattr("sys.stdin.readline", lambda: next(left, ""), raising=False)


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A task whose page brought four records, none of them delivered."""
    store = tmp_path / "parcelpost.db"
    fill(store, "list", records=4)
    return store


def test_i2_every_record_that_goes_with_a_task_is_counted(
    listed: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows(listed)
    arguments = ("tasks", "delete", "--platform", "vgsi", "--store", listed)
    assert run(*arguments, "--dry-run").out.splitlines() == [
        "Nothing would change.",
        "Not deleted: 1 with 4 records never delivered (add --unsynced to delete them).",
    ]
    assert run(*arguments, "--dry-run", "--unsynced").out == (
        "Nothing was changed. The command would ask: Delete 1 task with results and pages? "
        "4 records were never delivered. There is no other copy of them.\n"
    )
    assert run(*arguments, "--dry-run", "--json").document["undelivered_records"] == 4
    answering(monkeypatch, "n\n")
    assert run(*arguments).err.startswith(
        "4 records were never delivered. There is no other copy of them. Delete them as well? [y/N] "
    )
    assert rows(listed) == before
    answering(monkeypatch, "y\n")
    assert run(*arguments).out == "1 task deleted.\n", "no operation that what went was kept"
    assert run("tasks", "--store", listed).out == "No tasks.\n"


def test_what_stays_of_other_tasks_pages_is_still_said(listed: Path, run: Run) -> None:
    kept = run("tasks", "delete", "--parcel", "list-1", "--yes", "--store", listed).out
    assert "Not deleted: 1 additional records of other tasks' pages." in kept


@pytest.mark.parametrize("which", [("results", "--all"), ("tasks", "--status", "completed")])
def test_i2_what_is_stored_while_the_question_stands_stays(
    listed: Path, run: Run, monkeypatch: pytest.MonkeyPatch, which: tuple[str, ...]
) -> None:
    what, *chosen = which
    answering(monkeypatch, "y\n", meanwhile=lambda: fill(listed, "new1", "new2", records=2))
    done = run(what, "delete", *chosen, "--store", listed)
    assert "4 records were never delivered" in done.err
    assert done.out.startswith("4 results deleted." if what == "results" else "1 task deleted.")
    left = run("results", "--json", "--store", listed).document["results"]
    assert [one["delivery"] for one in left] == ["unsynced"] * 4
    assert {"new1", "new2"} <= {one["task_id"] for one in left}


def test_i2_a_record_that_a_known_task_brings_meanwhile_stays(
    listed: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def add_pending() -> None:
        async with LocalPersistenceManager.open(listed) as lpm:
            await lpm.add_task(task("slow", source=Source.CLI))

    async def scrape() -> None:
        async with LocalPersistenceManager.open(listed) as lpm:
            (claim,) = await lpm.claim()
            page = Page(url="https://example.org/slow", body=page_of("slow"))
            now = datetime.now(UTC)
            assert await lpm.save_result(claim, Result(data={}, page=page, scraped_at=now, execution_time_ms=1))

    asyncio.run(add_pending())
    answering(monkeypatch, "y\n", "y\n", meanwhile=lambda: asyncio.run(scrape()))
    run("tasks", "delete", "--all", "--store", listed)
    (left,) = run("results", "--json", "--store", listed).document["results"]
    assert left["task_id"] == "slow"


def test_ctrl_c_says_how_far_it_came(store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_actions, "_BATCH", 2)
    monkeypatch.setattr(Meter, "__call__", lambda *_: signal.raise_signal(signal.SIGINT))
    ended = run("tasks", "reject", "--all", "--yes", "--store", store)
    assert (ended.code, ended.out) == (130, "")
    assert ended.err == "interrupted: 2 of 3 tasks rejected\n"
    assert run("tasks", "--status", "failed", "--json", "--store", store).out.count('"status":"failed"') == 2
