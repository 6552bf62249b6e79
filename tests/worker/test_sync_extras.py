"""Signals and figures go to those who want them, and never in anybody's way."""

from __future__ import annotations

from parcelpost.model import Signal
from parcelpost.storage.history import Sample
from tests import traps
from tests.worker.rig import Rig

SIGNAL = Signal(platform="echo", field="owner", selector="td.owner", selector_type="css", success=True)


async def step(rig: Rig) -> None:
    """A step of the sync, with an outbox that is empty; at the next one they are due again."""
    await rig.sync.step()
    rig.clock.advance(30)


async def test_signals_and_samples_are_sent_once(rig: Rig) -> None:
    await rig.lpm.signals.append([SIGNAL] * 3)
    await rig.lpm.metrics.record(Sample(tasks_completed=7))
    for _ in range(3):
        await step(rig)
    assert len(rig.gateway.signals) == 3
    assert len(rig.gateway.metrics) == 1
    assert await rig.lpm.signals.unsynced() == []


async def test_every_round_is_in_the_sync_log(rig: Rig) -> None:
    await rig.lpm.signals.append([SIGNAL] * 3)
    await rig.lpm.metrics.record(Sample(tasks_completed=7))
    rig.gateway.play("signals", traps.slow_down(seconds=1))
    await step(rig)
    rig.clock.advance(300)
    await step(rig)
    rounds = await rig.lpm.sync_log.recent()
    told = {(one.record_type, one.record_count, one.success) for one in rounds}
    assert told == {("learning_signals", 0, False), ("learning_signals", 3, True), ("agent_metrics", 1, True)}
    assert {one.direction for one in rounds} == {"upload"}


async def test_samples_are_sent_after_the_clock_was_set_back(rig: Rig) -> None:
    rig.clock.advance(365 * 86_400)
    await rig.lpm.metrics.record(Sample(tasks_completed=1))
    await step(rig)
    rig.clock.advance(-365 * 86_400)
    for completed in (2, 3):
        await rig.lpm.metrics.record(Sample(tasks_completed=completed))
        await step(rig)
        await step(rig)
    assert [sample["tasks_completed"] for sample in rig.gateway.metrics] == [1, 2, 3]


async def test_a_gateway_without_them_is_asked_once(rig: Rig) -> None:
    rig.gateway.extras = False
    for _ in range(3):
        await rig.lpm.signals.append([SIGNAL])
        await rig.lpm.metrics.record(Sample())
        await step(rig)
    assert (rig.gateway.count("signals"), rig.gateway.count("metrics")) == (1, 1)


async def test_one_that_is_away_is_left_alone_for_a_while(rig: Rig) -> None:
    await rig.lpm.signals.append([SIGNAL])
    rig.gateway.play("signals", traps.slow_down(seconds=200))
    for _ in range(7):
        await step(rig)
    assert rig.gateway.count("signals") == 1
    rig.clock.advance(300)
    await step(rig)
    assert len(rig.gateway.signals) == 1


async def test_what_is_left_at_the_end_is_sent_at_once_unless_the_gateway_is_away(rig: Rig) -> None:
    await rig.sync.step()
    await rig.lpm.signals.append([SIGNAL])
    await rig.sync.goodbye()
    assert len(rig.gateway.signals) == 1
    await rig.save("t1")
    rig.gateway.play("results", traps.slow_down(seconds=200))
    await rig.sync.step()
    await rig.lpm.signals.append([SIGNAL])
    await rig.sync.goodbye()
    assert rig.gateway.count("signals") == 1
