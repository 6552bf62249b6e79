"""The judge of a chaos run: what it takes for a violation, and for which."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost.chaos.judge import BrokenInvariant, Journal, Judge, Violation, _Claim
from parcelpost.chaos.processes import Command, Member
from parcelpost.chaos.runner import Outcome, Runner
from parcelpost.chaos.schedule import PROFILES
from parcelpost.chaos.topology import Store, Topology
from parcelpost.clock import SystemClock

MISSING = "its page vgsi/NH/invented/246.html.gz is missing on disk"


@pytest.fixture
def judge(tmp_path: Path) -> Iterator[Judge]:
    clock = SystemClock()
    journal = Journal(tmp_path / "journal.jsonl", clock)
    yield Judge(journal, clock)
    journal.close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    path = tmp_path / "parcelpost.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE results (task_id, html_path, json_path)")
        db.execute("INSERT INTO results VALUES ('w1-246', 'vgsi/NH/invented/246.html.gz', NULL)")
        db.commit()
    return Store(name="a", path=path, cap_bytes=0, workers=[])


def test_a_result_may_be_rejected_while_the_run_deletes_its_page(judge: Judge, store: Store) -> None:
    """And afterwards, but not before."""
    with pytest.raises(BrokenInvariant, match="I1 wrongly rejected"):
        judge._check_rejected(store, "w1-246", MISSING, is_record=True)
    judge.loses_pages.add(store.name)
    judge._check_rejected(store, "w1-246", MISSING, is_record=True)
    assert judge.notes_lost_pages(store)
    judge._check_rejected(store, "w1-246", MISSING, is_record=True)
    with pytest.raises(BrokenInvariant):
        judge._check_rejected(store, "w1-7", MISSING, is_record=True)


def test_what_a_proxy_saw_first_is_what_is_broken(judge: Judge, store: Store) -> None:
    judge._is_broken(Violation(invariant="I6", kind="out of order", text="its page came later"))
    with pytest.raises(BrokenInvariant, match="I6 out of order"):
        judge._check_rejected(store, "w1-246", MISSING, is_record=True)


@pytest.fixture
def worker(judge: Judge, store: Store, tmp_path: Path) -> Member:
    """Works on the store. The other facts about the run are the judge's."""
    topology = Topology(PROFILES["laptop"], tmp_path, 1, SystemClock(), {}, "")
    topology.tasks = {"w1-7": "7", "w2-7": "7"}
    member = Member("a1", Command(words=[]), tmp_path / "a1", SystemClock())
    store.workers.append(member)
    topology.stores[store.name] = store
    topology.everyone.append(member)
    judge.topology = topology
    return member


def tell(worker: Member, at: float, event: str, task: str, skew: float = 0.0, **facts: Any) -> None:
    """Writes what a worker writes that was told something `at` seconds from now."""
    clock = SystemClock()
    wall = clock.now().timestamp() + at
    if "scraped" in facts:
        facts |= {"key": f"{task}:0", "result": task, "page": None, "scraped": wall + skew + facts["scraped"]}
    line = clock.monotonic() + at, 1, event, {"task": task, "token": f"token of {task}"} | facts, wall + skew
    with worker.told_file.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


@pytest.mark.parametrize("skew", [0.0, 5.0, -5.0])
def test_a_lost_result_that_was_scraped_long_before_its_save_is_found(
    judge: Judge, worker: Member, skew: float
) -> None:
    """A locked store or a full disk delays a save. Only a clock that jumped excuses the loss: others look newer."""
    tell(worker, 1.0, "claimed", "w1-7", owner="a1")
    tell(worker, 2.0, "saved", "w1-7", scraped=-0.1)
    tell(worker, 3.0, "claimed", "w2-7", skew, owner="a1")
    tell(worker, 11.0, "saved", "w2-7", scraped=-6.0)
    judge.read_told()
    is_excused = pytest.raises(BrokenInvariant, match="I2 lost") if not skew else contextlib.nullcontext()
    with is_excused:
        judge.check_gateway([("w1-7", "w1-7:0")], {"w1-7": {"w1-7:0"}, "w2-7": {"w2-7:0"}})


def test_a_clock_that_jumped_before_a_claim_excuses_nothing(judge: Judge, worker: Member) -> None:
    tell(worker, 1.0, "claimed", "w1-7", 5.0, owner="a1")
    tell(worker, 2.0, "saved", "w1-7", scraped=-0.1)
    tell(worker, 3.0, "claimed", "w2-7", owner="a1")
    tell(worker, 4.0, "saved", "w2-7", scraped=-0.1)
    judge.read_told()
    with pytest.raises(BrokenInvariant, match="I2 lost"):
        judge.check_gateway([("w1-7", "w1-7:0")], {"w2-7": {"w2-7:0"}})


@pytest.fixture
def runner(judge: Judge, worker: Member, tmp_path: Path) -> Runner:
    """At its end, with a gateway that has nothing."""
    judge.topology.stores.clear()
    outcome = Outcome(profile="laptop", seed=1, minutes=1, breaks="", attack="", folder=str(tmp_path))
    runner = Runner(outcome, SystemClock(), print)
    runner._judge, runner._topology = judge, judge.topology
    with contextlib.closing(sqlite3.connect(judge.topology.database)) as db:
        db.execute("CREATE TABLE results (task_id, idempotency_key, data, source_no, scraped_at)")
        db.execute("CREATE TABLE sources (source_no, parcel_id, task_id, scraped_at)")
    return runner


async def test_what_a_proxy_saw_last_is_a_violation(judge: Judge, runner: Runner, worker: Member) -> None:
    """Nobody watches any more when everything is compared for the last time."""
    await runner._check_all([])
    judge._is_broken(Violation(invariant="I5", kind="doubled", text="it was sent under another key"))
    with pytest.raises(BrokenInvariant, match="I5 doubled"):
        await runner._check_all([])


@pytest.mark.parametrize("is_lost", [True, False])
async def test_the_last_comparison_waits_for_the_gateways_database(
    judge: Judge, runner: Runner, tmp_path: Path, *, is_lost: bool
) -> None:
    """And what a proxy sees meanwhile counts, too."""
    database = Path(judge.topology.database)
    away = database.rename(tmp_path / "away.db")
    if is_lost:
        judge.receipts["w1-7"] = {"w1-7:0"}
    last = asyncio.create_task(runner._check_all([]))
    await asyncio.sleep(0.5)
    assert not last.done()
    if not is_lost:
        judge._is_broken(Violation(invariant="I5", kind="doubled", text="it was sent under another key"))
    away.rename(database)
    with pytest.raises(BrokenInvariant, match="I2 lost" if is_lost else "I5 doubled"):
        await last


def test_the_files_that_a_killed_cleaning_leaves_may_be_beyond_the_cap(
    judge: Judge, store: Store, worker: Member
) -> None:
    """Nobody else's, and no page of a result."""
    command = Member(
        "cleaning", Command(words=["store", "clean", "--store", str(store.path)]), worker.folder / "c", SystemClock()
    )
    judge.topology.everyone.append(command)
    folder = store.raw_folder / "vgsi/NH/invented"
    folder.mkdir(parents=True)
    (folder / "1.json").write_bytes(bytes(2 * 1024**2))
    with pytest.raises(BrokenInvariant, match="I8 too large"):
        judge._check_size(store)
    tell(command, 1.0, "struck", "", phase="cleaning", signal="SIGKILL")
    judge.read_told()
    judge._check_size(store)
    (folder / "246.html.gz").write_bytes(bytes(2 * 1024**2))
    with pytest.raises(BrokenInvariant, match="I8 too large"):
        judge._check_size(store)


def test_a_claim_that_is_told_after_a_pause_may_be_older_than_that_of_a_peer(judge: Judge) -> None:
    """But then it may not end the task."""
    judge.paused = {1: [(10.0, 22.0)]}
    judge._last_told = {2: 20.0}
    judge._claimed("b", "w1-7", _Claim(20.0, "new", "b1", 2))
    judge._claimed("b", "w1-7", _Claim(20.1, "old", "b2", 1))
    judge._check_claim("b", "w1-7", "new", 21.0)
    with pytest.raises(BrokenInvariant, match="I4 doubled"):
        judge._check_claim("b", "w1-7", "old", 21.0)
    with pytest.raises(BrokenInvariant, match="I9 doubled"):
        judge._claimed("b", "w1-7", _Claim(20.2, "other", "b3", 3))
