"""A county is kept fresh for many days, by gateways that are killed: nothing is missed, repeated or invented.

Its pages come from the simulator and are read by the platforms' own parsers; only time is not real.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.json import decode, encode

from parcelpost.clock import ManualClock, iso
from parcelpost.gateway.context import Context
from parcelpost.gateway.ingest import ingest_results
from parcelpost.gateway.models import ChangeFilter, ChangeRow, RunOutcome, Schedule, Scope
from parcelpost.model import Done, Target, Task
from parcelpost.schedule import make_timing
from parcelpost.simulator.parcels import ChangingWorld, Event, Parcel
from tests.gateway.stage import some_context
from tests.lengths import short_and_long
from tests.simulator.asking import ask, parsed

START = datetime(2026, 11, 1, tzinfo=UTC)
STEP = timedelta(hours=2)
PAGES_AT_ONCE = 200
TAXES, APPRAISER = "mygov_due", "grizzly_gis"
SEED = int(os.environ.get("TEST_SEED", "1"))


class Gateways:
    """Processes that run schedules and find changes, and can be killed."""

    def __init__(self, database: str, folder: Path, chance: random.Random) -> None:
        self._command = (sys.executable, "-m", "tests.gateway.peer", database, "maintain", str(folder))
        self._chance = chance
        self._running: list[Process] = []

    async def start(self, count: int) -> None:
        while len(self._running) < count:
            started = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
            assert started.stdout is not None
            assert await started.stdout.readline() == b"open\n"
            self._running.append(started)

    async def step(self, now: datetime, *, kill: bool) -> None:
        for one in self._running:
            assert one.stdin is not None
            one.stdin.write(f"{iso(now)}\n".encode())
        if kill:
            await asyncio.sleep(self._chance.uniform(0, 0.05))
            victim = self._running.pop(self._chance.randrange(len(self._running)))
            victim.send_signal(signal.SIGKILL)
            await victim.wait()
            await self.start(len(self._running) + 1)
            await self.step(now, kill=False)  # the others hear of it twice
            return
        for one in self._running:
            assert one.stdout is not None
            assert await one.stdout.readline() == b"done\n"

    async def stop(self) -> None:
        for one in self._running:
            one.kill()
            await one.wait()


class Worker:
    """Takes what is queued, reads the simulator's pages and delivers the records."""

    def __init__(self, context: Context, world: ChangingWorld) -> None:
        self._context = context
        self._world = world
        self.requests: Counter[tuple[str, date]] = Counter()

    async def step(self) -> None:
        now = self._context.clock.now()
        while tasks := await self._context.ledger.grant("w1", [TAXES, APPRAISER], PAGES_AT_ONCE, now, now + STEP):
            await self.deliver([grant.task for grant in tasks], now)

    async def deliver(self, tasks: Sequence[Task], now: datetime) -> None:
        batch = []
        for task in tasks:
            outcome = parsed(task.platform, ask(task.platform, self._world, task.target.parcel_id))
            assert isinstance(outcome, Done), outcome
            self.requests[task.platform, now.date()] += 1
            place = {"state": "FL", "county": "invented", "platform": task.platform}
            result = {"task_id": task.task_id, "parcel_id": task.target.parcel_id, "parse_duration_ms": 1, **place}
            batch.append({**result, "data": outcome.data, "scraped_at": iso(now)})
        reply = await ingest_results(self._context, encode(batch), "w1")
        assert not reply.failed, reply.errors


def expected(before: Parcel, event: Event, after: Parcel, *, is_appraised: bool) -> list[str]:
    """What people should hear of, each once. `is_appraised`: the appraiser's site is scraped, too."""

    def is_delinquent(parcel: Parcel) -> bool:
        return any(one.redeemed_on is None for one in parcel.certificates)

    if event is Event.VALUE:
        shown = ["market", "assessed", "taxable", *(["land"] if is_appraised else ())]
        return [f"value.changed {name}_value" for name in shown if getattr(before, name) != getattr(after, name)]
    kinds = {Event.OWNER: "owner.changed", Event.LIEN: "lien.new", Event.REDEEMED: "lien.redeemed"}
    if is_delinquent(before) == is_delinquent(after):
        return [kinds[event]]
    return [kinds[event], "tax.delinquent" if is_delinquent(after) else "tax.paid"]


def news(row: ChangeRow) -> list[str]:
    """Two sites may show different values of one event."""
    if row.kind != "value.changed":
        return [row.kind]
    return [f"{row.kind} {name}" for name in decode(row.after) if name.endswith("_value")]


@pytest.mark.timeout(7_200)
@short_and_long("parcels, days, kills", (20, 3, 2), (5_000, 30, 60))
async def test_every_change_of_a_county_is_found_once_and_none_is_invented(
    new_database: str, tmp_path: Path, parcels: int, days: int, kills: int
) -> None:
    database, chance = new_database, random.Random(SEED)
    world = ChangingWorld(size=parcels, changed={})
    numbers = range(1, parcels + 1)
    appraised = range(1, parcels // 10 + 1)
    pace = 60 / (parcels / 8)  # hours pass between two steps, and only a minute of them is made up for
    clock = ManualClock(START - STEP)
    first_day = 0
    gateways = Gateways(database, tmp_path / "peers", chance)
    async with some_context(tmp_path, clock=clock, database=database) as context:
        ledger, worker = context.ledger, Worker(context, world)
        ids = {number: world.at(number).parcel_id for number in numbers}
        targets = {number: Target(parcel_id=ids[number], state="FL", county="invented") for number in numbers}
        first = [Task(task_id=f"first-{number}", platform=TAXES, target=targets[number]) for number in numbers]
        await ledger.add_tasks(first, clock.now())
        await worker.step()
        site: dict[str, Any] = {"state": "FL", "county": "invented", "created_at": START, "window_seconds": 79_200.0}
        timing = make_timing("1d", "00:00", "UTC", "")
        taxes = Schedule(name="taxes", platform=TAXES, timing=timing, pace_seconds=pace, **site)
        appraiser = Schedule(
            name="appraiser", platform=APPRAISER, timing=timing, pace_seconds=pace, scope=Scope.FILE, **site
        )
        assert await ledger.add_schedule(taxes, [], START)
        assert await ledger.add_schedule(appraiser, [targets[number] for number in appraised], START)
        try:
            await gateways.start(1 if database.endswith(".db") else 2)
            await gateways.step(clock.now(), kill=False)
            known = await ledger.last_change()
            killed_at = set(chance.sample(range(days * 12), kills))
            first_day, wanted = known, Counter[tuple[str, str]]()
            for day in range(days):
                if day:  # the appraiser's pages are new on the first
                    for number in chance.sample(numbers, max(5, parcels // 50)):
                        before = world.at(number)
                        event = world.change(number, (START + timedelta(days=day)).date())
                        kinds = expected(before, event, world.at(number), is_appraised=number in appraised)
                        wanted.update((kind, before.parcel_id) for kind in kinds)
                for hour in range(12):
                    clock.advance((START + timedelta(days=day) + hour * STEP - clock.now()).total_seconds())
                    await gateways.step(clock.now(), kill=day * 12 + hour in killed_at)
                    await worker.step()
                if not day:
                    await gateways.step(clock.now(), kill=False)
                    first_day = await ledger.last_change()
            await gateways.step(clock.now(), kill=False)
            await gateways.step(clock.now(), kill=False)
        finally:
            await gateways.stop()

        found = (await ledger.changes(ChangeFilter(), known, 1_000_000)).rows
        assert [row.change_no for row in found] == list(range(known + 1, known + 1 + len(found)))
        of_first_day = Counter(row.kind for row in found if row.change_no <= first_day)
        assert set(of_first_day) <= {"sale.new", "value.changed"}, of_first_day  # what only the appraiser shows
        heard = [(one, row.parcel_id) for row in found if row.change_no > first_day for one in news(row)]
        assert Counter(heard) == wanted

        for row in await ledger.schedules():
            runs = await ledger.schedule_runs(row.schedule_no, 1_000)
            assert [(run.outcome, run.due_at) for run in reversed(runs)] == [
                (RunOutcome.ENDED, START + timedelta(days=day)) for day in range(days)
            ]
            scraped = parcels if row.schedule.name == "taxes" else len(appraised)
            assert {(run.total, run.added, run.done, run.failed) for run in runs} == {(scraped, scraped, scraped, 0)}
            share = (await ledger.freshness(row, row.schedule.fresh_since(clock.now()))).share
            assert share == 1
        del worker.requests[TAXES, (START - STEP).date()]
        assert max(worker.requests.values()) == parcels
        assert worker.requests.total() == days * (parcels + len(appraised))
