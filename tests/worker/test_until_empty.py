"""`--until-empty`: the run ends when nothing is left to do, and not before."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.backoff import Offline
from parcelpost.worker.control import Control
from parcelpost.worker.loop import SYNC
from parcelpost.worker.worker import UntilEmpty
from tests.storage.making import a_result, a_task, claim_one, deliver, save_one, the_result


async def ready(lpm: LocalPersistenceManager, most: int) -> int:
    return sum(supply.ready for supply in (await lpm.supply(most)).values())


class Scene:
    def __init__(self, lpm: LocalPersistenceManager, clock: ManualClock) -> None:
        self.lpm = lpm
        self.clock = clock
        self.active = 0
        self.offers_nothing = True
        self.away: Offline | None = None

    async def ends(self, *, delivers: bool = True) -> bool:
        """Whether a run would end now."""
        control = Control()
        await self.until_empty(control, delivers=delivers).step()
        assert not control.stopping.is_set()
        return control.leaving.is_set()

    def until_empty(self, control: Control, *, delivers: bool = True) -> UntilEmpty:
        return UntilEmpty(
            self.lpm,
            control,
            active=lambda: self.active,
            offers_nothing=lambda: self.offers_nothing,
            delivers=delivers,
            away=lambda: self.away,
            give_up_seconds=300,
            clock=self.clock,
        )


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = ManualClock()
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        yield Scene(lpm, clock)


async def test_an_empty_store_and_an_upstream_with_nothing_to_offer_end_the_run(scene: Scene) -> None:
    control = Control()
    assert 0 < await scene.until_empty(control).step() <= 1
    assert control.leaving.is_set()
    assert control.reason == "nothing is left to do"


async def test_it_waits_for_the_upstreams_word_that_there_is_no_more(scene: Scene) -> None:
    scene.offers_nothing = False
    assert not await scene.ends()
    scene.offers_nothing = True
    assert await scene.ends()


async def test_it_waits_for_what_runs(scene: Scene) -> None:
    scene.active = 1
    assert not await scene.ends()
    scene.active = 0
    assert await scene.ends()


async def test_it_waits_for_tasks_that_can_be_claimed(scene: Scene) -> None:
    await scene.lpm.add_task(a_task())
    assert not await scene.ends()
    (claim,) = await scene.lpm.claim()
    assert not await scene.ends(), "nor while one is claimed"
    await scene.lpm.release(claim)
    assert not await scene.ends()


async def test_it_waits_for_tasks_that_are_not_due_yet(scene: Scene) -> None:
    claim = await claim_one(scene.lpm)
    await scene.lpm.retry_later(claim, "later", timedelta(hours=1))
    assert await ready(scene.lpm, 1) == 0
    assert not await scene.ends()


async def test_it_waits_for_tasks_of_a_platform_that_is_paused(scene: Scene) -> None:
    await scene.lpm.add_task(a_task(platform="vgsi"))
    await scene.lpm.pause_platform("vgsi", scene.clock.now() + timedelta(hours=1), "blocked")
    assert not await scene.ends()


async def test_it_waits_for_what_a_sister_process_holds(scene: Scene) -> None:
    await scene.lpm.add_task(a_task())
    async with LocalPersistenceManager.open(scene.lpm.path, clock=scene.clock) as sister:
        (claim,) = await sister.claim()
        assert not await scene.ends()
        await sister.save_result(claim, a_result())
    await deliver(scene.lpm, (await the_result(scene.lpm)).result_id)
    assert await scene.ends()


async def test_it_waits_until_the_outbox_is_empty(scene: Scene) -> None:
    entry = await save_one(scene.lpm)
    assert not await scene.ends()
    await deliver(scene.lpm, entry.result_id)
    assert await scene.ends()


async def test_reports_of_failures_are_waited_for_too(scene: Scene) -> None:
    claim = await claim_one(scene.lpm)
    await scene.lpm.give_up(claim, "no such page")
    assert not await scene.ends()


async def test_what_the_upstream_rejected_is_not_waited_for(scene: Scene) -> None:
    entry = await save_one(scene.lpm)
    await scene.lpm.mark_rejected([entry.result_id], "bad")
    assert await scene.ends()


async def test_with_nobody_to_deliver_to_results_stay_and_the_run_ends(scene: Scene) -> None:
    await save_one(scene.lpm)
    assert await scene.ends(delivers=False)
    assert (await scene.lpm.queue_depth()).unsynced == 1


async def test_a_worker_that_leaves_already_is_not_told_again(scene: Scene) -> None:
    """A second word to leave means to stop at once: the last sync would be left out."""
    control = Control()
    until_empty = scene.until_empty(control)
    for _ in range(3):
        await until_empty.step()
    assert control.leaving.is_set()
    assert not control.stopping.is_set()


async def test_it_gives_up_on_an_upstream_that_is_away_once_nothing_else_is_left_to_do(scene: Scene) -> None:
    now = scene.clock.now()
    away = Offline(since=now, until=now, failures=1, reason="401", denied=True, remedy="set a token")
    control = Control()
    end = scene.until_empty(control)

    async def wait(seconds: float) -> bool:
        await end.step()
        scene.clock.advance(seconds)
        await end.step()
        return control.leaving.is_set()

    scene.offers_nothing, scene.away = False, away
    scene.active = 1
    assert not await wait(3_600), "there is something to do"
    scene.active = 0
    assert not await wait(299)
    scene.away = None
    assert not await wait(3_600), "it answers"
    scene.offers_nothing = True
    await save_one(scene.lpm, a_task("t1"))
    assert not await wait(3_600), "a result waits, and nobody says that the upstream is away"
    await scene.lpm.state.put(SYNC, away)
    assert not await wait(299)
    assert await wait(2)
    assert end.gave_up == away


async def test_it_does_not_wait_for_tasks_that_this_worker_does_not_take(scene: Scene) -> None:
    await scene.lpm.add_task(a_task("other", platform="vgsi"))
    control = Control()
    end = UntilEmpty(
        scene.lpm,
        control,
        active=lambda: 0,
        offers_nothing=lambda: True,
        delivers=True,
        away=lambda: None,
        give_up_seconds=300,
        clock=scene.clock,
        platforms=lambda: frozenset({"echo"}),
    )
    await end.step()
    assert control.leaving.is_set()
    assert not await scene.ends()
