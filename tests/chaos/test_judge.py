"""The judge of a chaos run: what it takes for a violation, and for which."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.chaos.judge import BrokenInvariant, Journal, Judge, Violation, _Claim
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
        db.execute("CREATE TABLE results (task_id, html_path)")
        db.execute("INSERT INTO results VALUES ('w1-246', 'vgsi/NH/invented/246.html.gz')")
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


@pytest.mark.parametrize(("ahead", "is_superseded"), [(0.1, False), (-1.0, False), (3.7, True), (-5.0, True)])
def test_a_scrape_by_a_clock_that_is_ahead_may_be_dropped(
    judge: Judge, tmp_path: Path, ahead: float, is_superseded: bool
) -> None:
    """Ahead by five seconds, and saved a second later: 3.7 is still a clock that is ahead."""
    topology = Topology(PROFILES["laptop"], tmp_path, 1, SystemClock(), {}, "")
    topology.tasks = {"w1-7": "7", "w2-7": "7"}
    judge.topology = topology
    judge.scraped_at = {"first": (100.0, 0.0), "second": (103.0, ahead)}
    assert judge._is_superseded("w2-7", "second", judge._newest_scrapes([("w1-7", "first")])) is is_superseded


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
