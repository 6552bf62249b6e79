"""One upstream state for all loops: a success of one brings the others' next try forward."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from parcelpost.errors import Unauthorized, Unavailable
from parcelpost.worker.backoff import COLLECTOR, HEARTBEAT, SYNC
from tests.worker.rig import Rig

SOON = 5.0
LOOPS = (SYNC, COLLECTOR, HEARTBEAT)


class Scene:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.woken: list[str] = []
        rig.context.control.wake = self.woken.append
        self.state = rig.context.upstream_state

    def fail(self, *loops: str, requested: float = 0.0) -> None:
        for loop in loops:
            self.state.failed(loop, Unavailable("no route", retry_after=requested))

    def remaining(self) -> Sequence[float]:
        return [self.state.remaining(loop) for loop in LOOPS]


@pytest.fixture
def scene(rig: Rig) -> Scene:
    return Scene(rig)


async def test_one_success_wakes_the_others_soon_and_not_all_at_once(scene: Scene) -> None:
    scene.fail(*LOOPS)
    assert min(scene.remaining()) >= 30
    scene.state.worked(SYNC)
    assert scene.woken == ["collector", "heartbeat"]
    own, *others = scene.remaining()
    assert own == 0
    assert all(1 <= remaining <= SOON for remaining in others)
    assert others[0] != others[1]


async def test_a_loop_that_never_failed_is_witness_enough(scene: Scene) -> None:
    scene.fail(HEARTBEAT)
    scene.state.worked(SYNC)
    assert scene.woken == ["heartbeat"]


async def test_those_that_are_not_away_are_left_in_peace(scene: Scene) -> None:
    scene.state.worked(SYNC)
    assert scene.woken == []


async def test_a_loop_that_fails_all_the_same_backs_off_as_ever(scene: Scene) -> None:
    """Its own path may be ill: the successes of the others say nothing about that any more."""
    scene.fail(SYNC)
    for _ in range(10):
        scene.state.worked(HEARTBEAT)
        scene.state.worked(COLLECTOR)
    assert scene.woken == ["sync"]
    scene.fail(SYNC)
    scene.state.worked(HEARTBEAT)
    scene.state.worked(COLLECTOR)
    assert scene.woken == ["sync"]
    assert scene.state.remaining(SYNC) >= 30


async def test_two_ill_paths_beside_a_well_one_do_not_hasten_each_other(scene: Scene) -> None:
    for _ in range(10):
        scene.fail(SYNC, COLLECTOR)
        scene.state.worked(HEARTBEAT)
    assert sorted(scene.woken) == ["collector", "sync"]


async def test_the_next_outage_ends_as_soon_as_the_first(scene: Scene) -> None:
    scene.fail(*LOOPS)
    scene.state.worked(SYNC)
    scene.fail(HEARTBEAT, SYNC)
    scene.state.worked(SYNC)
    assert scene.woken == ["collector", "heartbeat"] * 2


async def test_what_the_upstream_asked_for_is_kept(scene: Scene) -> None:
    scene.fail(SYNC, requested=200)
    scene.state.worked(HEARTBEAT)
    assert scene.woken == []
    assert scene.state.remaining(SYNC) == 200


async def test_who_was_denied_learns_that_it_is_let_in_again(scene: Scene) -> None:
    for loop in LOOPS:
        scene.state.failed(loop, Unauthorized("who are you?"))
    scene.state.worked(HEARTBEAT)
    assert sorted(scene.woken) == ["collector", "sync"]


async def test_a_wait_that_ends_sooner_anyway_is_not_made_longer(scene: Scene) -> None:
    scene.fail(SYNC)
    scene.rig.clock.advance(scene.state.remaining(SYNC) - 0.5)
    scene.state.worked(HEARTBEAT)
    assert scene.state.remaining(SYNC) <= 0.5
