"""A worker's loops: drained in order, ended by the first error, and none of them left running."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.events import Event, LoopFailed, WorkerDraining, WorkerStopped
from parcelpost.worker import loop as loop_module
from parcelpost.worker.control import Control
from parcelpost.worker.loop import Goodbye, Step, Supervisor

GRACE_SECONDS = 30.0


async def idle() -> float:
    """A turn that never ends: time goes by at once here, so a pause would not last."""
    await asyncio.Event().wait()
    return 0.0


class Work:
    """What an executor does when it is drained. `done` ends what runs."""

    def __init__(self, running: int = 2) -> None:
        self.running = running
        self.calls: list[float] = []
        self.cancelled = 0
        self.began = asyncio.Event()
        self.done = asyncio.Event()

    async def drain(self, seconds: float) -> int:
        self.calls.append(seconds)
        self.began.set()
        if seconds:
            try:
                await self.done.wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
                self.cancelled += 1
                raise
            return 0
        assert len(self.calls) - 1 == self.cancelled, "the drain before this one has not ended"
        return self.running


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.control = Control()
        self.events: list[Event] = []
        self.work = Work()
        self.supervisor = Supervisor(self.control, self.clock, self.events.append)
        self.goodbye: Goodbye | None = None
        self.ended: list[str] = []
        """The loops that were cancelled."""

    def add(self, name: str, step: Step = idle) -> None:
        async def watched() -> float:
            try:
                return await step()
            except asyncio.CancelledError:
                self.ended.append(name)
                raise

        self.supervisor.add(name, watched)

    async def run(self, last_sync: Step | None = None) -> None:
        """Until it ends, by itself or by an error. Nothing of it may be left running."""
        try:
            async with asyncio.timeout(60):
                await self.supervisor.run(self.work.drain, last_sync, GRACE_SECONDS, self.goodbye)
        finally:
            assert asyncio.all_tasks() - self.others == {asyncio.current_task()}

    async def start(self, last_sync: Step | None = None) -> asyncio.Task[None]:
        self.others = asyncio.all_tasks()
        running = asyncio.create_task(self.run(last_sync))
        for _ in range(5):
            await asyncio.sleep(0)
        return running


@pytest.fixture
async def scene() -> Scene:
    return Scene()


def complaints() -> list[dict[str, Any]]:
    """What asyncio is about to log: errors that nobody looked at."""
    found: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: found.append(context))
    return found


async def test_it_runs_until_told_to_leave_and_drains_first(scene: Scene) -> None:
    scene.add("a")
    scene.add("b")
    running = await scene.start()
    assert scene.work.calls == []
    scene.control.interrupt("SIGTERM")
    await scene.work.began.wait()
    assert scene.ended == [], "who works on goes on while the rest is waited for"
    scene.work.done.set()
    await running
    assert scene.work.calls == [GRACE_SECONDS]
    assert sorted(scene.ended) == ["a", "b"]
    assert scene.events == [
        WorkerDraining(reason="SIGTERM", seconds=GRACE_SECONDS),
        WorkerStopped(reason="SIGTERM", released=0),
    ]


async def test_told_twice_it_stops_waiting_and_gives_back_what_runs(scene: Scene) -> None:
    scene.add("a")
    running = await scene.start()
    scene.control.interrupt("SIGTERM")
    await scene.work.began.wait()
    scene.control.interrupt("SIGTERM")
    await running
    assert scene.work.calls == [GRACE_SECONDS, 0.0]
    assert scene.events[-1] == WorkerStopped(reason="SIGTERM", released=2)


async def test_told_to_stop_at_once_it_waits_for_nothing(scene: Scene) -> None:
    scene.add("a")
    synced: list[float] = []

    async def last_sync() -> float:
        synced.append(0.0)
        return 1.0

    running = await scene.start(last_sync)
    scene.control.leave("stop command from the gateway", at_once=True)
    await running
    assert scene.work.calls == [0.0]
    assert synced == []
    assert scene.events == [
        WorkerDraining(reason="stop command from the gateway", seconds=0.0),
        WorkerStopped(reason="stop command from the gateway", released=2),
    ]


async def test_told_before_it_began_it_ends_at_once(scene: Scene) -> None:
    scene.add("a")
    scene.work.done.set()
    scene.control.interrupt("SIGTERM")
    await (await scene.start())
    assert scene.events[-1] == WorkerStopped(reason="SIGTERM", released=0)


async def failing() -> float:
    raise ValueError("a mistake")


async def test_a_loop_that_cannot_go_on_ends_the_worker_with_its_error_after_the_drain(scene: Scene) -> None:
    scene.add("good")
    scene.add("bad", failing)
    running = await scene.start()
    await scene.work.began.wait()
    assert not running.done()
    scene.work.done.set()
    with pytest.raises(ValueError, match="a mistake"):
        await running
    assert scene.work.calls == [GRACE_SECONDS]
    assert scene.ended == ["good"]
    failures = [event for event in scene.events if isinstance(event, LoopFailed)]
    assert len(failures) == 10
    assert scene.events[10:] == [
        WorkerDraining(reason="the bad loop failed", seconds=GRACE_SECONDS),
        WorkerStopped(reason="the bad loop failed", released=0),
    ]


async def test_the_last_sync_is_made_after_a_loop_failed_too(scene: Scene) -> None:
    scene.add("bad", failing)
    scene.work.done.set()
    synced: list[str] = []

    async def last_sync() -> float:
        synced.append("once")
        return 30.0

    with pytest.raises(ValueError, match="a mistake"):
        await (await scene.start(last_sync))
    assert synced == ["once"]


async def test_a_loop_that_fails_while_the_worker_drains_ends_it_with_its_error(scene: Scene) -> None:
    go = asyncio.Event()

    async def fails_later() -> float:
        await go.wait()
        raise ValueError("late")

    scene.add("late", fails_later)
    running = await scene.start()
    scene.control.interrupt("SIGTERM")
    await scene.work.began.wait()
    go.set()
    while sum(isinstance(event, LoopFailed) for event in scene.events) < 10:
        await asyncio.sleep(0)
    assert scene.work.calls == [GRACE_SECONDS], "the drain goes on"
    scene.work.done.set()
    with pytest.raises(ValueError, match="late"):
        await running


async def test_an_order_to_leave_that_comes_together_with_a_failure_still_drains(scene: Scene) -> None:
    async def fails_and_leaves() -> float:
        if sum(isinstance(event, LoopFailed) for event in scene.events) == 9:
            scene.control.interrupt("SIGTERM")
        raise ValueError("a mistake")

    scene.add("bad", fails_and_leaves)
    scene.work.done.set()
    with pytest.raises(ValueError, match="a mistake"):
        await (await scene.start())
    assert scene.work.calls == [GRACE_SECONDS]
    assert not scene.control.stopping.is_set()
    assert scene.events[-1] == WorkerStopped(reason="SIGTERM", released=0)


async def test_of_two_loops_that_fail_no_error_is_lost_in_silence(scene: Scene) -> None:
    unseen = complaints()
    scene.add("one", failing)
    scene.add("two", failing)
    scene.work.done.set()
    with pytest.raises(ValueError, match="a mistake"):
        await (await scene.start())
    scene.supervisor = Supervisor(scene.control, scene.clock, scene.events.append)
    gc.collect()
    assert unseen == []
    assert {event.loop for event in scene.events if isinstance(event, LoopFailed)} == {"one", "two"}


async def test_a_drain_that_fails_ends_the_worker_with_its_error(scene: Scene) -> None:
    scene.add("a")

    async def broken(_: float) -> int:
        raise ValueError("no drain")

    scene.control.interrupt("SIGTERM")
    before = asyncio.all_tasks()
    with pytest.raises(ValueError, match="no drain"):
        await scene.supervisor.run(broken, None, GRACE_SECONDS)
    assert asyncio.all_tasks() == before


async def test_at_the_end_everything_is_delivered_that_can_be(scene: Scene) -> None:
    answers = [0.0, 0.0, 0.0, 30.0, 0.0]
    scene.add("sync")
    scene.add("heartbeat")
    seen: list[list[str]] = []

    async def last_sync() -> float:
        seen.append(list(scene.ended))
        return answers.pop(0)

    scene.work.done.set()
    scene.control.interrupt("SIGTERM")
    await (await scene.start(last_sync))
    assert answers == [0.0], "until it says that there is nothing more to do"
    assert seen == [["sync"]] * 4, "never beside the sync's own loop; the others go on"


async def test_the_last_sync_ends_when_the_upstream_does_not_answer(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_LAST_SYNC_SECONDS", 0.05)
    scene.add("sync")
    ended: list[str] = []

    async def hangs() -> float:
        try:
            return await idle()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    scene.work.done.set()
    scene.control.interrupt("SIGTERM")
    await (await scene.start(hangs))
    assert ended == ["cancelled"]
    assert scene.events[-1] == WorkerStopped(reason="SIGTERM", released=0)


async def test_the_last_sync_ends_though_there_is_always_more_to_deliver(scene: Scene) -> None:
    rounds = 0

    async def endless() -> float:
        nonlocal rounds
        rounds += 1
        await scene.clock.sleep(1)
        return 0.0

    scene.work.done.set()
    scene.control.interrupt("SIGTERM")
    await (await scene.start(endless))
    assert rounds == 10


async def test_a_second_word_ends_the_last_sync(scene: Scene) -> None:
    began = asyncio.Event()

    async def hangs() -> float:
        began.set()
        return await idle()

    scene.work.done.set()
    scene.control.interrupt("SIGTERM")
    running = await scene.start(hangs)
    await began.wait()
    scene.control.interrupt("SIGTERM")
    await running
    assert scene.events[-1] == WorkerStopped(reason="SIGTERM", released=0)


async def test_a_last_sync_that_fails_is_reported_and_changes_nothing(scene: Scene) -> None:
    unseen = complaints()
    scene.work.done.set()
    scene.control.interrupt("SIGTERM")
    await (await scene.start(failing))
    gc.collect()
    assert unseen == []
    assert scene.events[1:] == [
        LoopFailed(loop="last sync", error="ValueError: a mistake", in_a_row=1, next_in_seconds=0.0),
        WorkerStopped(reason="SIGTERM", released=0),
    ]


@pytest.mark.parametrize("when", ["at work", "draining", "last sync"])
async def test_a_cancelled_supervisor_leaves_nothing_running(scene: Scene, when: str) -> None:
    scene.add("a")
    syncing = asyncio.Event()

    async def last_sync() -> float:
        syncing.set()
        return await idle()

    running = await scene.start(last_sync)
    if when != "at work":
        scene.control.interrupt("SIGTERM")
        await scene.work.began.wait()
    if when == "last sync":
        scene.work.done.set()
        await syncing.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert scene.ended == ["a"]


@pytest.mark.parametrize("at_once", [False, True])
async def test_the_last_word_comes_when_nothing_runs_any_more(scene: Scene, at_once: bool) -> None:
    seen: list[list[str]] = []

    async def goodbye() -> None:
        seen.append(list(scene.ended))

    scene.add("heartbeat")
    scene.goodbye = goodbye
    scene.work.done.set()
    running = await scene.start()
    scene.control.leave("the gateway's command", at_once=at_once)
    await running
    assert seen == [["heartbeat"]]


async def test_a_last_word_that_nobody_hears_does_not_keep_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_GOODBYE_SECONDS", 0.05)

    async def unheard() -> None:
        await idle()

    scene.goodbye = unheard
    scene.work.done.set()
    running = await scene.start()
    scene.control.interrupt("SIGTERM")
    await running
    assert scene.events[-1] == WorkerStopped(reason="SIGTERM", released=0)


async def test_only_loops_that_are_there_are_woken(scene: Scene) -> None:
    turns: list[str] = []

    async def step() -> float:
        turns.append("turn")
        return await idle()

    scene.supervisor.add("a", step)
    scene.control.wake("a", "nobody")
    scene.work.done.set()
    running = await scene.start()
    scene.control.interrupt("SIGTERM")
    await running
    assert turns == ["turn"]
