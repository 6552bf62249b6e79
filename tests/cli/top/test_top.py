"""What is read, how often, and what a key means; printed once as text or JSON."""

from __future__ import annotations

from contextlib import aclosing
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.cli.context import open_for_reading
from parcelpost.cli.settings_options import StoreContext
from parcelpost.cli.top.data import RATE_STEPS, PacedQuery, StoreFailure, TopData, read_rates, watch
from parcelpost.cli.top.terminal import apply_key, can_draw, has_utf8, split_keys
from parcelpost.cli.top.view import View
from parcelpost.clock import ManualClock, SystemClock
from parcelpost.settings import Settings
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import SyncRound
from parcelpost.worker.status import WorkerStatus, publish
from tests.cli.support import Run, change, damage, rows
from tests.storage.factories import a_task, claim_one, save_one


def test_one_frame_is_printed_where_there_is_no_terminal(full_store: Path, run: Run) -> None:
    before = rows(full_store)
    out = run("top", "--once", "--store", full_store).out
    assert "no worker is running" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert rows(full_store) == before


def test_one_frame_as_json(full_store: Path, run: Run) -> None:
    found = run("top", "--json", "--store", full_store).document
    assert (found["queue"]["pending"], found["queue"]["rejected"]) == (2, 1)
    assert sum(found["rates"]["completed"]) == 3
    assert {error["kind"] for error in found["errors"]} == {"failed", "again", "rejected"}


def test_without_a_terminal_it_says_what_to_do(store: Path, run: Run) -> None:
    ran = run("top", "--store", store)
    assert ran.code == 1
    assert ran.err.splitlines()[0].endswith("the output is not a terminal")
    assert "'parcelpost top --once'" in ran.err


def test_a_damaged_store_is_an_error_of_one_frame(full_store: Path, run: Run) -> None:
    damage(full_store)
    ran = run("top", "--once", "--store", full_store)
    assert ran.code == 1
    assert f"hint: run 'parcelpost store check --store {full_store}'" in ran.err


def test_text_from_pages_is_harmless_in_a_frame(full_store: Path, run: Run) -> None:
    change(full_store, "UPDATE tasks SET error = 'evil' || char(27) || '[2J' || char(10) WHERE task_id = 'failed'")
    assert "evil\\x1b[2J\\n" in run("top", "--once", "--store", full_store).out


async def test_rates_count_the_last_ten_minutes_by_ten_seconds(tmp_path: Path) -> None:
    clock = ManualClock()
    store = tmp_path / "parcelpost.db"
    async with (
        LocalPersistenceManager.open(store, clock=clock) as lpm,
        open_for_reading(StoreContext(store, Settings())) as database,
    ):
        for n in range(4):
            await save_one(lpm, a_task(f"t{n}", platform=f"p{n}"))
            if n == 2:
                await lpm.give_up(await claim_one(lpm, a_task("bad", platform="bad")), "no")
            sent = SyncRound(direction="upload", record_type="results", record_count=5, success=True)
            await lpm.sync_log.record(sent)
            clock.advance(10)
        rates = await read_rates(database, clock.now() - timedelta(seconds=10))
        assert len(rates.completed) == RATE_STEPS
        assert (rates.completed[-4:], rates.failed[-4:]) == ((1, 1, 1, 1), (0, 0, 1, 0))
        assert rates.delivered[-4:] == (5, 5, 5, 5)
        assert sum((await read_rates(database, clock.now() - timedelta(hours=1))).completed) == 0, "a clock set back"
        assert sum((await read_rates(database, clock.now() + timedelta(hours=1))).completed) == 0


async def test_a_worker_that_starts_or_ends_shows_at_once(tmp_path: Path) -> None:
    path = tmp_path / "parcelpost.db"
    async with LocalPersistenceManager.open(path), aclosing(watch(StoreContext(path, Settings()))) as states:
        assert _names(await anext(states)) == []
        async with LocalPersistenceManager.open(path, worker="w") as lpm:
            now = SystemClock().now()
            status = WorkerStatus(
                name="w-1", worker_id="w-1", owner=lpm.owner_id, published_at=now, started_at=now, mode="standalone"
            )
            await publish(lpm.state, status)
            assert _names(await anext(states)) == ["w-1"]
        assert _names(await anext(states)) == []


def _names(data: TopData | StoreFailure) -> list[str]:
    assert isinstance(data, TopData)
    owners = {worker.id for worker in data.overview.workers}
    assert {status.owner for status in data.statuses} <= owners, "the overview is as new"
    return [status.name for status in data.statuses]


async def test_an_expensive_query_runs_seldom() -> None:
    clock = ManualClock()
    runs = 0

    async def query() -> int:
        nonlocal runs
        runs += 1
        clock.advance(0.5)
        return runs

    paced = PacedQuery(query, 1.0, clock)
    for _ in range(100):
        await paced.get()
        clock.advance(1)
    assert runs == 2, "half a second of fifty at most"


def test_keys_lead_from_view_to_view() -> None:
    view = View()
    for keys, name in (
        ("\t", "slots"),
        ("\x1b[C", "platforms"),
        ("\x1b[D\x1b[Z", "all"),
        ("5", "errors"),
        ("9x0\x1b", "errors"),
    ):
        for key in split_keys(keys):
            view = apply_key(view, key)
        assert view.name == name
    assert split_keys("\x1b[200~pasted") == []
    assert apply_key(view, "p").paused
    assert apply_key(apply_key(view, "?"), "\x1b") == view


@pytest.mark.parametrize(
    ("environment", "utf8"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LC_CTYPE": "C.UTF-8", "LANG": "C.UTF-8"}, True),
        ({}, False),
    ],
)
def test_ascii_where_the_locale_has_no_utf8(environment: dict[str, str], utf8: bool) -> None:
    assert has_utf8(environment, "utf-8") is utf8
    assert not has_utf8(environment, "ascii")


def test_what_the_terminal_can_do() -> None:
    assert can_draw({"TERM": "xterm"})
    assert not can_draw({"TERM": "dumb"})
    assert not can_draw({})
