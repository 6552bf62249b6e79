"""An upstream that answers one loop again is tried soon by the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parcelpost.errors import Unauthorized, Unavailable
from parcelpost.settings.schema import SyncSettings
from parcelpost.worker.backoff import UpstreamState, share_state
from tests.worker.rig import Rig

SOON = 5.0


class Scene:
    """Three loops of one worker."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.woken: list[str] = []
        self.sync, self.collector, self.heartbeat = self.all = [
            UpstreamState(loop, rig.lpm, SyncSettings(), rig.clock, rig.events.append)
            for loop in ("sync", "collector", "heartbeat")
        ]
        share_state(self.all, self.woken.append)

    async def fail(self, *absences: UpstreamState, wish: float = 0.0) -> None:
        for absence in absences:
            await absence.failed(Unavailable("no route", retry_after=wish))

    def remaining(self) -> Sequence[float]:
        return [absence.remaining for absence in self.all]


@pytest.fixture
def scene(rig: Rig) -> Scene:
    return Scene(rig)


async def test_one_success_wakes_the_others_soon_and_not_all_at_once(scene: Scene) -> None:
    await scene.fail(*scene.all)
    assert min(scene.remaining()) >= 30
    await scene.sync.worked()
    assert scene.woken == ["collector", "heartbeat"]
    own, *others = scene.remaining()
    assert own == 0
    assert all(1 <= remaining <= SOON for remaining in others)
    assert others[0] != others[1]


async def test_a_loop_that_never_failed_is_witness_enough(scene: Scene) -> None:
    await scene.fail(scene.heartbeat)
    await scene.sync.worked()
    assert scene.woken == ["heartbeat"]


async def test_those_that_are_not_away_are_left_in_peace(scene: Scene) -> None:
    await scene.sync.worked()
    assert scene.woken == []


async def test_a_loop_that_fails_all_the_same_backs_off_as_ever(scene: Scene) -> None:
    """Its own path may be ill: the successes of the others say nothing about that any more."""
    await scene.fail(scene.sync)
    for _ in range(10):
        await scene.heartbeat.worked()
        await scene.collector.worked()
    assert scene.woken == ["sync"]
    await scene.fail(scene.sync)
    await scene.heartbeat.worked()
    await scene.collector.worked()
    assert scene.woken == ["sync"]
    assert scene.sync.remaining >= 30


async def test_two_ill_paths_beside_a_well_one_do_not_hasten_each_other(scene: Scene) -> None:
    for _ in range(10):
        await scene.fail(scene.sync, scene.collector)
        await scene.heartbeat.worked()
    assert sorted(scene.woken) == ["collector", "sync"]


async def test_the_next_outage_ends_as_soon_as_the_first(scene: Scene) -> None:
    await scene.fail(*scene.all)
    await scene.sync.worked()
    await scene.fail(scene.heartbeat, scene.sync)
    await scene.sync.worked()
    assert scene.woken == ["collector", "heartbeat"] * 2


async def test_what_the_upstream_asked_for_is_kept(scene: Scene) -> None:
    await scene.fail(scene.sync, wish=200)
    await scene.heartbeat.worked()
    assert scene.woken == []
    assert scene.sync.remaining == 200


async def test_who_was_denied_learns_that_it_is_let_in_again(scene: Scene) -> None:
    for absence in scene.all:
        await absence.failed(Unauthorized("who are you?"))
    await scene.heartbeat.worked()
    assert sorted(scene.woken) == ["collector", "sync"]


async def test_a_wait_that_ends_sooner_anyway_is_not_made_longer(scene: Scene) -> None:
    await scene.fail(scene.sync)
    scene.rig.clock.advance(scene.sync.remaining - 0.5)
    await scene.heartbeat.worked()
    assert scene.sync.remaining <= 0.5
