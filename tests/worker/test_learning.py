"""Signals reach the store in bulk, broken fields are told to everybody, and the fleet is asked for its experience."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.events import FieldBroken, FieldMended
from parcelpost.model import Broken, Done, Retry, Signal
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.looking import Try
from parcelpost.scrapers.ways import Css, Id
from parcelpost.storage.signals import MAX_SIGNALS
from parcelpost.worker.learning import FleetExperience, Learning
from parcelpost.worker.status import BROKEN_STATE, BrokenFields
from tests import traps
from tests.storage.making import a_task
from tests.worker.executing import at_work
from tests.worker.rig import Rig

SITE = ("echo", "CT", "hartford")
SIGNAL = Signal(platform="echo", field="owner", selector="#o", selector_type="css", success=True, context="CT/hartford")


@pytest.fixture
def ranking() -> Ranking:
    return Ranking()


@pytest.fixture
def learning(rig: Rig, ranking: Ranking) -> Learning:
    return Learning(rig.lpm, ranking, "w1", rig.clock, rig.events.append)


def see(ranking: Ranking, rig: Rig, *, found: bool, pages: int) -> None:
    for number in range(pages):
        ranking.note(SITE, [Try("owner", Id("o"), found)], f"page-{number}", rig.clock.now())


async def test_signals_are_stored_together_and_once(rig: Rig, learning: Learning) -> None:
    learning.take([SIGNAL] * 3)
    learning.take([SIGNAL])
    await learning.step()
    await learning.step()
    assert len(await rig.lpm.signals.unsynced()) == 4


async def test_a_signal_that_cannot_be_stored_stops_nothing(rig: Rig, learning: Learning) -> None:
    learning.take([Signal(platform="echo", field="", selector="", selector_type="nonsense", success=True)])
    await learning.step()
    learning.take([SIGNAL])
    await learning.step()
    assert len(await rig.lpm.signals.unsynced()) == 1


async def test_a_signal_that_cannot_be_stored_harms_none_beside_it(rig: Rig, learning: Learning) -> None:
    bad = Signal(platform="echo", field="", selector="", selector_type="nonsense", success=True)
    learning.take([*[SIGNAL] * 700, bad, *[SIGNAL] * 500, bad])
    await learning.step()
    assert len(await rig.lpm.signals.unsynced(2_000)) == 1_200


async def test_memory_and_disk_are_bounded(rig: Rig, learning: Learning) -> None:
    """I8: nobody takes them, and they keep coming."""
    learning.take(SIGNAL for _ in range(50_000))
    await learning.step()
    assert len(await rig.lpm.signals.recent(100_000)) == 20_000
    assert MAX_SIGNALS == 200_000


async def test_what_broke_is_told_once_and_kept_where_other_processes_see_it(
    rig: Rig, learning: Learning, ranking: Ranking
) -> None:
    see(ranking, rig, found=True, pages=40)
    await learning.step()
    see(ranking, rig, found=False, pages=20)
    for _ in range(3):
        rig.clock.advance(await learning.step())
    (told,) = rig.seen(FieldBroken)
    assert isinstance(told, FieldBroken)
    assert (told.site, told.field, told.failing, told.example) == ("CT/hartford", "owner", ["css #o"], "page-19")
    (kept,) = await rig.lpm.state.list(BROKEN_STATE, BrokenFields)
    assert [one.field for one in kept.fields] == ["owner"]
    assert [one.field for one in learning.broken] == ["owner"]
    see(ranking, rig, found=True, pages=60)
    await learning.step()
    assert len(rig.seen(FieldMended)) == 1
    (kept,) = await rig.lpm.state.list(BROKEN_STATE, BrokenFields)
    assert kept.fields == ()


async def test_a_new_worker_knows_what_the_last_one_learned(rig: Rig, learning: Learning) -> None:
    for number in range(60):
        learning.take([_signal(number, success=number < 40)])
    await learning.step()
    ranking = Ranking()
    again = Learning(rig.lpm, ranking, "w1", rig.clock, rig.events.append)
    await again.step()
    assert [type(one) for one in again.broken] == [Broken]


@pytest.mark.parametrize("found_otherwise", [False, True])
async def test_a_new_worker_knows_what_was_broken_though_no_signal_tells_it(rig: Rig, found_otherwise: bool) -> None:
    one = Broken(
        platform="echo",
        state="CT",
        county="hartford",
        field="owner",
        success_rate=0.1,
        used_to=0.9,
        failing=("css #o",),
        example="t7",
        since=rig.clock.now(),
        found_otherwise=found_otherwise,
    )
    await rig.lpm.state.put(f"{BROKEN_STATE}w1", BrokenFields(at=rig.clock.now(), fields=(one,)))
    ranking = Ranking()
    again = Learning(rig.lpm, ranking, "w1", rig.clock, rig.events.append)
    await again.step()
    (known,) = again.broken
    assert (known.field, known.failing, known.example, known.found_otherwise) == (
        "owner",
        ("css #o",),
        "t7",
        found_otherwise,
    )
    assert known.since == rig.clock.now()
    assert ranking.order(SITE).ways("owner", (Css("#o"), Css("#p")))[0] == Css("#p")


def _signal(number: int, *, success: bool) -> Signal:
    return Signal(
        platform="echo",
        field="owner",
        selector="#o",
        selector_type="css",
        success=success,
        context="CT/hartford",
        task_id=f"t{number}",
    )


async def test_the_fleet_is_asked_for_every_platform(rig: Rig, ranking: Ranking) -> None:
    rig.gateway.selectors = [
        {
            "platform": "echo",
            "field": "owner",
            "selector": ".new",
            "selector_type": "css",
            "success_rate": 0.9,
            "samples": 50,
        },
        {
            "platform": "echo",
            "field": "owner",
            "selector": ".old",
            "selector_type": "css",
            "success_rate": 0.1,
            "samples": 50,
        },
    ]
    assert await FleetExperience(rig.client, ranking, lambda: ["echo"], rig.events.append).step() > 60
    order = ranking.order(SITE).ways("owner", (Css(".old"), Css(".new")))
    assert [way.selector for way in order] == [".new", ".old"]


async def test_a_gateway_without_ranked_selectors_is_asked_once(rig: Rig, ranking: Ranking) -> None:
    rig.gateway.extras = False
    experience = FleetExperience(rig.client, ranking, lambda: ["echo", "vgsi"], rig.events.append)
    await experience.step()
    await experience.step()
    assert rig.gateway.count("selectors") == 1


async def test_a_fleet_that_cannot_be_asked_is_asked_again_before_long(rig: Rig, ranking: Ranking) -> None:
    rig.gateway.play("selectors", traps.status(503))
    experience = FleetExperience(rig.client, ranking, lambda: ["echo", "vgsi"], rig.events.append)
    assert await experience.step() <= 600
    assert await experience.step() > 600
    assert rig.gateway.count("selectors") == 3


async def test_an_attempt_hands_its_signals_on_whatever_its_end(tmp_path: Path) -> None:
    async with at_work(tmp_path) as works:
        await works.add(a_task("t1", platform="a"), lambda _: Done(data={}, signals=(SIGNAL,)))
        await works.add(a_task("t2", platform="b"), lambda _: Retry("no", signals=(SIGNAL, SIGNAL)))
        await works.add(a_task("t3", platform="c"), lambda _: Done(data={}, signals="nonsense"))  # type: ignore[arg-type]
        for _ in range(3):
            await works.step()
        assert len(works.learned) == 3
