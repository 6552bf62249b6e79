"""A random life of a store: every rule does the same to the store and to the model. The tasks' half of the rules."""

from __future__ import annotations

import asyncio
import contextlib
import random
import tempfile
from collections.abc import Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from parcelpost.clock import ManualClock, from_iso
from parcelpost.model import Claim, Priority, Result, Task, TaskStatus
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.crash.agreement import assert_agrees, assert_raw_files
from tests.storage.crash.store_model import StoredResult, StoreModel
from tests.storage.factories import a_result, a_task, list_results, look, requeue

T = TypeVar("T")

OPTIONS = StoreOptions(max_recoveries=2)
PLATFORMS = ("beacon", "qpublic", "vgsi")
HOUR = timedelta(hours=1)
PAGES = (None, b"", b"<p>one</p>", b"<p>two</p>")

FORGED = Claim(task=a_task("t1"), token="forged", seq=1, retries=0, created_at=ManualClock().now())

# Not st.randoms(): what it draws would depend on the store's state, which a crash in mid-call makes unforeseeable.
# Not st.integers(): it likes small seeds, and the same seed again picks the same again.
picks = st.uuids().map(lambda uuid: random.Random(uuid.int))


class TaskLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.TemporaryDirectory(prefix="parcelpost-")
        self.clock = ManualClock()
        self.model = StoreModel(OPTIONS.max_recoveries)
        self.claims: list[Claim] = []  # every one ever given: most of them are stale
        self.lives = 0
        self.store = Path(self.folder.name) / "first" / "parcelpost.db"
        self.open()

    def open(self) -> None:
        self.opened = contextlib.AsyncExitStack()
        lpm = LocalPersistenceManager.open(self.store, options=OPTIONS, clock=self.clock)
        self.lpm = self.run(self.opened.enter_async_context(lpm))

    def close(self) -> None:
        self.run(self.opened.aclose())

    def teardown(self) -> None:
        try:
            self.run(assert_raw_files(self.lpm, self.model))
        finally:  # a thread of an open store would keep the interpreter alive
            self.close()
            self.runner.close()
            self.folder.cleanup()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        self.model.step += 1
        self.model.latest = max(self.model.latest, self.now)
        return self.runner.run(call)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def some_claim(self, pick: random.Random) -> Claim:
        """Mostly one that is held, if there is one; one that nobody was given before the first."""
        held = [claim for claim in self.claims if self.model.current(claim)]
        return pick.choice(held if held and pick.random() < 0.7 else self.claims or [FORGED])

    def some_results(self, pick: random.Random) -> dict[str, StoredResult]:
        stored = self.model.results()
        known = {entry.result_id: stored[entry.task_id] for entry in self.run(list_results(self.lpm, limit=1000))}
        chosen = pick.sample(list(known), min(pick.randrange(1, 6), len(known)))
        return {result_id: known[result_id] for result_id in chosen}

    def some_task(self, pick: random.Random) -> Task:
        return a_task(
            f"t{pick.randrange(80)}",
            platform=pick.choice(PLATFORMS),
            parcel_id=pick.choice(["1-1", "1/1", "2"]),
            priority=pick.choice(list(Priority)),
            max_retries=pick.randrange(3),
            lease_expires_at=pick.choice([None, None, None, None, None, self.now + HOUR, self.now - HOUR]),
        )

    def a_result(self, body: bytes | None) -> Result:
        return a_result({"step": self.model.step}, body=body)

    def a_record(self, result_id: str | None, body: bytes | None, step: int) -> StoredResult:
        return StoredResult(
            step=self.model.step, success=True, result_id=result_id, data=b'{"step":%d}' % step, page=body
        )

    @invariant()
    def the_store_holds_what_the_model_holds(self) -> None:
        self.runner.run(assert_agrees(self.lpm, self.model, self.now))

    @initialize(pick=picks)
    def there_is_work(self, pick: random.Random) -> None:
        self.add_many(pick)
        self.claim(pick)

    @rule(pick=picks)
    def add_one(self, pick: random.Random) -> None:
        task = self.some_task(pick)
        assert self.run(self.lpm.add_task(task)) is self.model.add(task, self.now)

    @rule(pick=picks)
    def add_many(self, pick: random.Random) -> None:
        tasks = [self.some_task(pick) for _ in range(pick.randrange(20))]
        added = self.run(self.lpm.add_tasks(tasks))
        new = sum([self.model.add(task, self.now) for task in tasks])
        assert (added.new, added.known, added.refused) == (new, len(tasks) - new, 0)

    @rule(pick=picks)
    def claim(self, pick: random.Random) -> None:
        limit = pick.choice([1, 1, 1, 2, 5])
        wanted = pick.choice([None] * 8 + [{"vgsi"}, {"beacon", "qpublic"}, set()])
        self.is_claimed(self.run(self.lpm.claim(limit, platforms=wanted)), limit, wanted)

    def is_claimed(self, claims: list[Claim], limit: int, wanted: set[str] | None) -> None:
        expected = [(stored.task.task_id, stored.retries) for stored in self.model.claimable(limit, wanted, self.now)]
        ended = look(self.store, "SELECT task_id, completed_at FROM tasks WHERE status = 'expired'")
        ready = look(self.store, "SELECT task_id FROM tasks WHERE available_at IS NULL")
        self.model.adopt({name: from_iso(moment) for name, moment in ended}, {row[0] for row in ready})
        assert [(claim.task.task_id, claim.retries) for claim in claims] == expected
        self.model.take(claims)
        self.claims += claims

    @rule(pick=picks)
    def save(self, pick: random.Random) -> None:
        claim, body = self.some_claim(pick), pick.choice(PAGES)
        stored = self.model.current(claim)
        step = self.model.step
        result_id = self.run(self.lpm.save_result(claim, self.a_result(body)))
        assert (result_id is not None) is (stored is not None)
        if stored is not None:
            self.model.end(stored, TaskStatus.COMPLETED, self.now, self.a_record(result_id, body, step))

    @rule(pick=picks)
    def end(self, pick: random.Random) -> None:
        claim = self.some_claim(pick)
        stored = self.model.current(claim)
        delay = pick.choice([timedelta(0), HOUR, timedelta(days=2)])
        match pick.randrange(5):
            case 0:
                assert self.run(self.lpm.finish(claim)) is (stored is not None)
                if stored is not None:
                    self.model.end(stored, TaskStatus.NOT_FOUND, self.now)
            case 1:
                assert self.run(self.lpm.give_up(claim, "no such parcel")) is (stored is not None)
                if stored is not None:
                    self.model.end(stored, TaskStatus.FAILED, self.now)
            case 2 | 3:
                status = self.run(self.lpm.retry_later(claim, "timeout", delay))
                assert status is (stored and self.model.retry(stored, self.now, delay))
            case _:
                until = pick.choice([None, delay])
                assert self.run(self.lpm.release(claim, until)) is (stored is not None)
                if stored is not None:
                    stored.leave(TaskStatus.PENDING, None if until is None else self.now + until)

    @rule(pick=picks)
    def pause_or_resume(self, pick: random.Random) -> None:
        platform = pick.choice(PLATFORMS)
        if pick.random() < 0.4:
            self.model.paused[platform] = until = pick.choice([None, self.now + HOUR, self.now - HOUR])
            self.run(self.lpm.pause_platform(platform, until, "blocked"))
        else:
            assert self.run(self.lpm.resume_platform(platform)) is (platform in self.model.paused)
            self.model.paused.pop(platform, None)

    @rule(pick=picks)
    def set_the_clock(self, pick: random.Random) -> None:
        self.clock.advance(pick.choice([-48, -1, 1, 1, 30, 200]) * 3600)

    @rule(pick=picks)
    def expire(self, pick: random.Random) -> None:
        max_age = pick.choice([None, None, timedelta(days=1)])
        assert self.run(self.lpm.expire_tasks(max_age)) == self.model.expire(max_age, self.now)

    @rule(pick=picks)
    def requeue(self, pick: random.Random) -> None:
        task_ids, completed = pick.sample(sorted(self.model.tasks), min(4, len(self.model.tasks))), pick.random() < 0.5
        count = self.run(requeue(self.lpm, task_ids, completed=completed))
        assert count == self.model.requeue(task_ids, completed=completed)
