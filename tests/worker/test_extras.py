"""Signals and figures go to those who want them, and never in anybody's way."""

from __future__ import annotations

import pytest

from parcelpost.model import Signal
from parcelpost.settings.schema import SyncSettings
from parcelpost.storage.history import Sample
from parcelpost.worker.learning import Extras
from tests import traps
from tests.worker.rig import Rig

SIGNAL = Signal(platform="echo", field="owner", selector="td.owner", selector_type="css", success=True)


@pytest.fixture
def extras(rig: Rig) -> Extras:
    return Extras(rig.lpm, rig.client, SyncSettings(), rig.clock)


async def test_signals_and_samples_are_sent_once(rig: Rig, extras: Extras) -> None:
    await rig.lpm.signals.append([SIGNAL] * 3)
    await rig.lpm.metrics.record(Sample(tasks_completed=7))
    for _ in range(3):
        rig.clock.advance(await extras.step())
    assert len(rig.gateway.signals) == 3
    assert len(rig.gateway.metrics) == 1
    assert await rig.lpm.signals.unsynced() == []


async def test_every_round_is_in_the_sync_log(rig: Rig, extras: Extras) -> None:
    await rig.lpm.signals.append([SIGNAL] * 3)
    await rig.lpm.metrics.record(Sample(tasks_completed=7))
    rig.gateway.play("signals", traps.slow_down(seconds=1))
    for _ in range(2):
        rig.clock.advance(await extras.step())
    rounds = [one.round for one in await rig.lpm.sync_log.recent()]
    told = {(one.record_type, one.record_count, one.success) for one in rounds}
    assert told == {("learning_signals", 0, False), ("learning_signals", 3, True), ("agent_metrics", 1, True)}
    assert {one.direction for one in rounds} == {"upload"}


async def test_samples_are_sent_after_the_clock_was_set_back(rig: Rig, extras: Extras) -> None:
    rig.clock.advance(365 * 86_400)
    await rig.lpm.metrics.record(Sample(tasks_completed=1))
    rig.clock.advance(await extras.step())
    rig.clock.advance(-365 * 86_400)
    for completed in (2, 3):
        await rig.lpm.metrics.record(Sample(tasks_completed=completed))
        rig.clock.advance(await extras.step())
        rig.clock.advance(await extras.step())
    assert [sample["tasks_completed"] for sample in rig.gateway.metrics] == [1, 2, 3]


async def test_a_gateway_without_them_is_asked_once(rig: Rig, extras: Extras) -> None:
    rig.gateway.extras = False
    for _ in range(3):
        await rig.lpm.signals.append([SIGNAL])
        await rig.lpm.metrics.record(Sample())
        rig.clock.advance(await extras.step())
    assert (rig.gateway.count("signals"), rig.gateway.count("metrics")) == (1, 1)


async def test_one_that_is_away_is_left_alone_for_a_while(rig: Rig, extras: Extras) -> None:
    await rig.lpm.signals.append([SIGNAL])
    rig.gateway.play("signals", traps.slow_down(seconds=200))
    delay = await extras.step()
    assert delay >= 200
    rig.clock.advance(delay)
    await extras.step()
    assert len(rig.gateway.signals) == 1


async def test_what_is_left_at_the_end_is_sent_at_once_unless_the_gateway_is_away(rig: Rig, extras: Extras) -> None:
    await rig.lpm.signals.append([SIGNAL])
    await extras.last()
    assert len(rig.gateway.signals) == 1
    rig.gateway.play("signals", traps.slow_down(seconds=200))
    await rig.lpm.signals.append([SIGNAL])
    await extras.step()
    asked = rig.gateway.count("signals")
    await extras.last()
    assert rig.gateway.count("signals") == asked
