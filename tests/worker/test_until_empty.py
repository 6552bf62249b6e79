"""`--until-empty`: the run ends when nothing is left to do, and not before."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import Unauthorized
from parcelpost.model import Claim
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.settings import Settings
from parcelpost.settings.schema import WorkerSettings
from parcelpost.storage import LocalPersistenceManager
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.backoff import COLLECTOR, SYNC, Offline
from parcelpost.worker.collector import Collector
from parcelpost.worker.control import Control
from parcelpost.worker.executor import Executor
from parcelpost.worker.learning import Learning
from parcelpost.worker.runner import UntilEmpty
from parcelpost.worker.status import WorkerStatus, publish
from tests.storage.factories import a_result, a_task, claim_one, deliver, save_one, the_result
from tests.worker.rig import a_context


async def ready(lpm: LocalPersistenceManager, most: int) -> int:
    return sum(supply.ready for supply in (await lpm.supply(most)).values())


class Scene:
    def __init__(self, lpm: LocalPersistenceManager, clock: ManualClock) -> None:
        self.lpm = lpm
        self.clock = clock
        self.context = a_context(lpm, NullUpstream(), clock)
        self.executor = Executor(self.context, Learning(self.context, Ranking()), SiteAvailability())
        self.collector = Collector(self.context)
        self.collector.offers_nothing = True

    async def ends(self, *, delivers: bool = True) -> bool:
        """Whether a run would end now."""
        control = Control()
        await self.until_empty(control, delivers=delivers).check()
        assert not control.stopping.is_set()
        return control.leaving.is_set()

    def until_empty(self, control: Control, *, delivers: bool = True, platforms: Sequence[str] = ()) -> UntilEmpty:
        settings = Settings(worker=WorkerSettings(give_up_seconds=300, platforms=tuple(platforms)))
        context = a_context(self.lpm, NullUpstream(), self.clock, settings=settings, control=control)
        self.state = context.upstream_state
        return UntilEmpty(context, self.executor, self.collector, delivers=delivers)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    clock = ManualClock()
    async with LocalPersistenceManager.open(tmp_path / "store.db", clock=clock) as lpm:
        yield Scene(lpm, clock)


async def test_an_empty_store_and_an_upstream_with_nothing_to_offer_end_the_run(scene: Scene) -> None:
    control = Control()
    await scene.until_empty(control).check()
    assert control.leaving.is_set()
    assert control.reason == "nothing is left to do"


async def test_it_waits_for_the_upstreams_word_that_there_is_no_more(scene: Scene) -> None:
    scene.collector.offers_nothing = False
    assert not await scene.ends()
    scene.collector.offers_nothing = True
    assert await scene.ends()


async def test_it_waits_for_what_runs(scene: Scene) -> None:
    with scene.executor.running.step() as step:
        scene.executor.running.claims[step] = await claim_one(scene.lpm)
        await scene.lpm.mark_synced([await save(scene, scene.executor.running.claims[step])])
        assert not await scene.ends()
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


async def test_it_waits_for_what_a_peer_process_holds(scene: Scene) -> None:
    await scene.lpm.add_task(a_task())
    async with LocalPersistenceManager.open(scene.lpm.path, clock=scene.clock) as peer:
        (claim,) = await peer.claim()
        assert not await scene.ends()
        await peer.save_result(claim, a_result())
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
        await until_empty.check()
    assert control.leaving.is_set()
    assert not control.stopping.is_set()


async def test_it_gives_up_on_an_upstream_that_is_offline_once_nothing_else_is_left_to_do(scene: Scene) -> None:
    control = Control()
    until_empty = scene.until_empty(control)
    denied = Unauthorized("401", hint="set a token")

    async def wait(seconds: float) -> bool:
        await until_empty.check()
        scene.clock.advance(seconds)
        await until_empty.check()
        return control.leaving.is_set()

    scene.collector.offers_nothing = False
    scene.state.failed(COLLECTOR, denied)
    claim = await claim_one(scene.lpm)
    assert not await wait(3_600), "there is something to do"
    await scene.lpm.mark_synced([await save(scene, claim)])
    assert not await wait(299)
    scene.state.worked(COLLECTOR)
    assert not await wait(3_600), "it answers"
    scene.collector.offers_nothing = True
    await save_one(scene.lpm, "t2")
    assert not await wait(3_600), "a result waits, and nobody says that the upstream is offline"
    scene.state.failed(SYNC, denied)
    assert not await wait(299)
    assert await wait(2)
    assert until_empty.gave_up is not None
    assert (until_empty.gave_up.reason, until_empty.gave_up.remedy) == ("401", "set a token")


async def test_it_gives_up_when_the_peer_that_delivers_is_offline(scene: Scene) -> None:
    await save_one(scene.lpm, "t1")
    control = Control()
    until_empty = scene.until_empty(control)
    now = scene.clock.now()
    outage = Offline(since=now, until=now, failures=1, reason="no route")
    async with LocalPersistenceManager.open(scene.lpm.path, clock=scene.clock, worker="worker") as peer:
        status = WorkerStatus(
            name="w-2", worker_id="w", owner=peer.owner_id, published_at=now, started_at=now, mode="ondemand",
            outages={SYNC: outage},
        )  # fmt: skip
        await publish(peer.state, status)
        await until_empty.check()
        scene.clock.advance(301)
        await until_empty.check()
    assert until_empty.gave_up == outage


async def test_it_does_not_wait_for_tasks_that_this_worker_does_not_take(scene: Scene) -> None:
    await scene.lpm.add_task(a_task("other", platform="vgsi"))
    control = Control()
    await scene.until_empty(control, platforms=["echo"]).check()
    assert control.leaving.is_set()
    assert not await scene.ends()


async def save(scene: Scene, claim: Claim) -> str:
    result_id = await scene.lpm.save_result(claim, a_result())
    assert result_id is not None
    await scene.lpm.mark_raw_synced([result_id])
    return result_id
