"""The collector: the local queue stays filled, whatever the gateway's answers look like."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from parcelpost.errors import StoreBusy
from parcelpost.events import TaskSkipped, TasksReceived, UpstreamOffline, UpstreamOnline
from parcelpost.model import NotFound
from parcelpost.settings import Settings
from parcelpost.settings.schema import CollectorSettings
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.health import Level
from parcelpost.upstream.base import MAX_TASKS
from parcelpost.worker.collector import Collector
from tests import traps
from tests.hostile import HostileGateway, Request, Trap, a_task
from tests.storage.factories import list_tasks
from tests.worker.rig import SOON_BUSY, Rig, nobody_writes, rigged


async def ready(lpm: LocalPersistenceManager, most: int) -> int:
    return sum(supply.ready for supply in (await lpm.supply(most)).values())


class Scene:
    def __init__(self, rig: Rig, low: int = 5, high: int = 20) -> None:
        self.rig = rig
        settings = Settings(collector=CollectorSettings(low_water=low, high_water=high, poll_seconds=5))
        self.context = rig.new_context(settings)
        self.control = self.context.control
        self.woken: list[str] = []
        self.control.wake = self.woken.append
        self.collector = Collector(self.context)

    @property
    def arrivals(self) -> int:
        return self.woken.count("slots")

    async def add_platform(self, name: str) -> None:
        self.context.factory.register(name, lambda task: NotFound("no"))

    async def set_level(self, level: Level) -> None:
        usage = await self.rig.lpm.maintenance.usage()
        self.control.usage = replace(usage, level=level)

    async def fill(self, turns: int = 100) -> float:
        """Turns without a pause between them; the first pause ends it."""
        for _ in range(turns):
            delay = await self.collector.step()
            if delay:
                return delay
        raise AssertionError("it never paused")


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway, SOON_BUSY, waits=True) as rig:
        yield rig


@pytest.fixture
def scene(rig: Rig) -> Scene:
    return Scene(rig)


async def test_it_asks_again_at_once_while_tasks_come(scene: Scene, rig: Rig) -> None:
    rig.gateway.offer(*(a_task(f"t{number}") for number in range(5)))
    assert await scene.fill() == 30  # what the empty answer asked for
    assert await ready(rig.lpm, 100) == 5
    assert rig.gateway.count("work") == 6  # one task a call, then none
    assert scene.arrivals == 5


async def test_it_stops_at_the_high_mark_and_begins_again_below_the_low_one(scene: Scene, rig: Rig) -> None:
    rig.gateway.many_at_once = True
    rig.gateway.offer(*(a_task(f"t{number:03}") for number in range(60)))
    assert await scene.fill() == 5
    assert await ready(rig.lpm, 100) == 20
    claims = await rig.lpm.claim(14)
    assert await scene.collector.step() == 5
    assert rig.gateway.count("work") == 1
    claims += await rig.lpm.claim(1)
    await scene.fill()
    assert await ready(rig.lpm, 100) == 20
    assert len(claims) == 15


@pytest.mark.parametrize(
    ("trap", "least"),
    [
        (traps.slow_down(seconds=120), 120),
        (traps.slow_down(date_in=timedelta(seconds=90)), 89),
        (traps.slow_down(body_seconds=77), 77),
        (traps.no_tasks(retry_after=45), 45),
        (traps.no_tasks(retry_after=-3), 5),
        (traps.no_tasks(retry_after="soon"), 5),
    ],
)
async def test_it_waits_as_long_as_it_is_asked_to(scene: Scene, rig: Rig, trap: Trap, least: float) -> None:
    rig.gateway.play("work", trap)
    delay = await scene.collector.step()
    assert delay >= least
    rig.clock.advance(delay / 2)
    assert await scene.collector.step() == pytest.approx(delay / 2)
    assert rig.gateway.count("work") == 1


async def test_bad_tasks_are_reported_and_the_good_ones_beside_them_are_kept(scene: Scene, rig: Rig) -> None:
    rig.gateway.many_at_once = True
    rig.gateway.offer(a_task("good-1"), a_task("good-2"))
    absurd = traps.ABSURD_TASKS[:-1]
    rig.gateway.play("work", traps.answer({"tasks": [*absurd[:8], a_task("good-1"), *absurd[8:], a_task("good-2")]}))
    assert await scene.collector.step() == 0
    stored = {info.task.task_id for info in await list_tasks(rig.lpm)}
    assert stored == {"good-1", "good-2"}
    assert len(rig.seen(TaskSkipped)) == len(absurd)
    failed = {task_id: body["error"] for task_id, body in rig.gateway.failed}
    assert failed["t-no-parcel"] == "the worker cannot read the task: target.parcel_id is missing"
    assert {"t-bare", "t-no-platform", "t-list-target"} < failed.keys()  # or they would be leased again forever


async def test_good_tasks_are_stored_before_many_bad_ones_beside_them_are_reported(scene: Scene, rig: Rig) -> None:
    bad = [a_task(f"bad-{number}", target={"parcel_id": None}) for number in range(300)]
    stored_at_report = []

    def look(_: HostileGateway, __: Request) -> None:
        with contextlib.closing(sqlite3.connect(rig.lpm.path)) as db:
            stored_at_report.append(db.execute("SELECT count(*) FROM tasks").fetchone()[0])

    rig.gateway.play("fail", look, times=None)
    rig.gateway.play("work", traps.answer({"tasks": [*bad, a_task("good")]}), times=2)
    assert await scene.collector.step() == 0
    assert stored_at_report == [1] * MAX_TASKS
    rig.gateway.behave()
    rig.gateway.play("fail", traps.status(503), times=None)
    rig.gateway.play("work", traps.answer({"tasks": [*bad, a_task("better")]}))
    rig.clock.advance(5)
    assert await scene.collector.step() == 0
    assert rig.gateway.count("fail") == MAX_TASKS + 1  # the others are reported when they are leased again
    assert await ready(rig.lpm, 100) == 2


async def test_an_upstream_s_own_spelling_of_a_place_is_kept(scene: Scene, rig: Rig) -> None:
    """It keeps its parcels by that, so a result under another spelling would be another parcel there."""
    rig.gateway.offer(a_task("t1", target={"state": "Connecticut", "county": "Hartford County"}))
    assert await scene.collector.step() == 0
    (info,) = await list_tasks(rig.lpm)
    assert (info.task.target.state, info.task.target.county) == ("Connecticut", "Hartford County")


async def test_the_same_task_again_changes_nothing_and_makes_no_haste(scene: Scene, rig: Rig) -> None:
    rig.gateway.play("work", traps.answer({"tasks": [a_task("t1"), a_task("t1")], "retry_after": 5}), times=None)
    assert await scene.collector.step() == 0
    assert await scene.collector.step() >= 5
    received = [event for event in rig.events if isinstance(event, TasksReceived)]
    assert [(event.new, event.known) for event in received] == [(1, 3)]


async def test_tasks_that_come_one_by_one_are_told_of_in_one_event(scene: Scene, rig: Rig) -> None:
    rig.gateway.offer(*(a_task(f"t{number}") for number in range(5)))
    while await scene.collector.step() == 0:
        pass
    received = [event for event in rig.events if isinstance(event, TasksReceived)]
    assert [(event.new, event.known) for event in received] == [(5, 0)]
    assert rig.gateway.count("work") == 6


@pytest.mark.parametrize(
    "trap",
    [traps.html(), traps.cut(), traps.reset(), traps.status(500), traps.silence(), traps.endless(), traps.drip()],
)
async def test_a_gateway_that_is_away_is_a_state_and_said_once(scene: Scene, rig: Rig, trap: Trap) -> None:
    rig.gateway.offer(a_task("t1"))
    rig.gateway.play("work", trap, times=2)
    first = await scene.collector.step()
    assert 30 <= first <= 60
    rig.clock.advance(first)
    rig.clock.advance(await scene.collector.step())
    assert await scene.collector.step() == 0
    assert len(rig.seen(UpstreamOffline)) == 1
    assert len(rig.seen(UpstreamOnline)) == 1
    assert await ready(rig.lpm, 10) == 1


async def test_a_refused_token_waits_for_the_longest_time(scene: Scene, rig: Rig) -> None:
    rig.gateway.play("work", traps.status(401))
    assert await scene.collector.step() == 300


@pytest.mark.parametrize("level", [Level.COLLECTOR_STOPS, Level.EXECUTOR_STOPS])
async def test_it_asks_for_nothing_at_the_storage_cap(scene: Scene, rig: Rig, level: Level) -> None:
    await scene.set_level(level)
    assert await scene.collector.step() == 5
    assert rig.gateway.requests == []
    await scene.set_level(Level.FINE)
    await scene.fill()
    assert rig.gateway.count("work") == 1


async def test_it_asks_for_nothing_when_paused_or_draining(scene: Scene, rig: Rig) -> None:
    scene.control.paused = True
    await scene.collector.step()
    scene.control.paused = False
    scene.control.leave("the test")
    await scene.collector.step()
    assert rig.gateway.requests == []


async def test_it_knows_when_nothing_is_offered(scene: Scene, rig: Rig) -> None:
    known = [scene.collector.offers_nothing]
    for trap in (None, traps.status(500), None):
        if trap:
            rig.gateway.play("work", trap)
        rig.clock.advance(await scene.collector.step())
        known.append(scene.collector.offers_nothing)
    assert known == [False, True, False, True]


async def test_it_rests_when_its_last_allowed_call_was_answered_with_tasks(scene: Scene, rig: Rig) -> None:
    used_up = {"X-RateLimit-Limit": "1", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "40"}
    rig.gateway.play("work", traps.answer({"tasks": [a_task("t1")], "retry_after": 5}, headers=used_up))
    assert await scene.collector.step() == 40
    assert scene.arrivals == 1
    rig.clock.advance(30)
    assert await scene.collector.step() == pytest.approx(10)
    assert rig.gateway.count("work") == 1


async def test_a_paused_platform_fills_no_place_and_is_not_asked_for(scene: Scene, rig: Rig) -> None:
    await scene.add_platform("vgsi")
    rig.gateway.many_at_once = True
    rig.gateway.offer(*(a_task(f"e{number}") for number in range(20)))
    await scene.fill()
    await rig.lpm.pause_platform("echo", reason="blocked")
    rig.gateway.offer(a_task("e-more"), *(a_task(f"v{number}", platform="vgsi") for number in range(3)))
    await scene.fill()
    assert [task["task_id"] for task in rig.gateway.queue] == ["e-more"]
    assert (await rig.lpm.supply(100))["vgsi"].ready == 3


async def test_a_platform_whose_tasks_all_wait_for_another_try_gets_no_more_of_them(scene: Scene, rig: Rig) -> None:
    await scene.add_platform("vgsi")
    rig.gateway.many_at_once = True
    rig.gateway.offer(*(a_task(f"t{number:03}") for number in range(300)))
    for _ in range(30):
        rig.clock.advance(await scene.collector.step())
        for claim in await rig.lpm.claim(100):
            await rig.lpm.retry_later(claim, "the site is down", timedelta(days=1))
    assert 250 < len(rig.gateway.queue) <= 280
    rig.gateway.offer(a_task("v1", platform="vgsi"))
    rig.clock.advance(await scene.collector.step())
    assert (await rig.lpm.supply(100))["vgsi"].ready == 1


async def test_tasks_wait_in_hand_while_the_store_is_locked_and_are_stored_after(scene: Scene, rig: Rig) -> None:
    """Meanwhile they are an offer, or a run until empty would end without them; and the heartbeat counts them."""
    await scene.fill()
    assert scene.collector.offers_nothing
    rig.clock.advance(30)
    rig.gateway.offer(a_task("t1"))
    with nobody_writes(rig):
        step = asyncio.create_task(scene.collector.step())
        while not scene.collector.in_hand:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)
        assert not step.done()
        assert (scene.collector.offers_nothing, scene.collector.is_requesting) == (False, True)
    await step
    assert (scene.collector.in_hand, await ready(rig.lpm, 100)) == (0, 1)


async def test_a_store_that_takes_no_task_does_not_keep_the_worker_from_leaving(scene: Scene, rig: Rig) -> None:
    rig.gateway.offer(a_task("t1"))
    with nobody_writes(rig):
        step = asyncio.create_task(scene.collector.step())
        while not rig.lpm.backpressure.waiting:
            await asyncio.sleep(0.001)
        await scene.collector.settle(1)
        rig.lpm.backpressure.stop_waiting()
        with pytest.raises(StoreBusy):
            await step
    assert (rig.lpm.backpressure.waiting, rig.lpm.backpressure.problem) == (0, "")
