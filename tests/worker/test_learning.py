"""Signals reach the store in bulk, and broken fields are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.events import FieldBroken, FieldFixed
from parcelpost.model import Broken, Done, Retry, Signal
from parcelpost.scrapers.html.extract import SelectorResult
from parcelpost.scrapers.html.selectors import Css, Id
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.learning.sections import PageSections
from parcelpost.storage.learning_signals import MAX_SIGNALS
from parcelpost.worker.learning import Learning
from parcelpost.worker.status import WorkerStatus, publish
from tests.storage.factories import a_task
from tests.worker.executing import at_work
from tests.worker.rig import Rig

SITE = ("echo", "CT", "hartford")
SIGNAL = Signal(platform="echo", field="owner", selector="#o", selector_type="css", success=True, context="CT/hartford")


@pytest.fixture
def ranking() -> Ranking:
    return Ranking()


@pytest.fixture
def learning(rig: Rig, ranking: Ranking) -> Learning:
    return Learning(rig.context, ranking)


async def step(learning: Learning) -> None:
    """As the janitor does it."""
    await learning.load()
    await learning.flush()
    learning.find_broken()


def see(ranking: Ranking, rig: Rig, *, found: bool, pages: int) -> None:
    for number in range(pages):
        ranking.note(SITE, [SelectorResult("owner", Id("o"), found)], f"page-{number}", rig.clock.now())


async def test_signals_are_stored_together_and_once(rig: Rig, learning: Learning) -> None:
    learning.take([SIGNAL] * 3)
    learning.take([SIGNAL])
    await step(learning)
    await step(learning)
    assert len(await rig.lpm.signals.unsynced()) == 4


async def test_a_signal_that_cannot_be_stored_stops_nothing(rig: Rig, learning: Learning) -> None:
    learning.take([Signal(platform="echo", field="", selector="", selector_type="nonsense", success=True)])
    await step(learning)
    learning.take([SIGNAL])
    await step(learning)
    assert len(await rig.lpm.signals.unsynced()) == 1


async def test_a_signal_that_cannot_be_stored_harms_none_beside_it(rig: Rig, learning: Learning) -> None:
    bad = Signal(platform="echo", field="", selector="", selector_type="nonsense", success=True)
    learning.take([*[SIGNAL] * 700, bad, *[SIGNAL] * 500, bad])
    await step(learning)
    assert len(await rig.lpm.signals.unsynced(2_000)) == 1_200


async def test_memory_and_disk_are_bounded(rig: Rig, learning: Learning) -> None:
    """I8: nobody takes them, and they keep coming."""
    learning.take(SIGNAL for _ in range(50_000))
    await step(learning)
    assert len(await rig.lpm.signals.recent(100_000)) == 20_000
    assert MAX_SIGNALS == 200_000


async def test_what_broke_is_reported_once_and_so_is_what_was_fixed(
    rig: Rig, learning: Learning, ranking: Ranking
) -> None:
    see(ranking, rig, found=True, pages=40)
    await step(learning)
    see(ranking, rig, found=False, pages=20)
    for _ in range(3):
        await step(learning)
        rig.clock.advance(2)
    (told,) = rig.seen(FieldBroken)
    assert isinstance(told, FieldBroken)
    assert (told.site, told.field, told.failing, told.example) == ("CT/hartford", "owner", ["css #o"], "page-19")
    assert [one.field for one in learning.broken] == ["owner"]
    see(ranking, rig, found=True, pages=60)
    await step(learning)
    assert len(rig.seen(FieldFixed)) == 1
    assert learning.broken == []


async def test_a_new_worker_knows_what_the_last_one_learned(rig: Rig, learning: Learning) -> None:
    for number in range(60):
        learning.take([_signal(number, success=number < 40)])
    await step(learning)
    ranking = Ranking()
    again = Learning(rig.context, ranking)
    await step(again)
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
    now = rig.clock.now()
    status = WorkerStatus(
        name="worker-1",
        worker_id="worker-1",
        owner="of the last run",
        published_at=now,
        started_at=now,
        mode="ondemand",
        broken=(one,),
    )
    await publish(rig.lpm.state, status)
    ranking = Ranking()
    again = Learning(rig.context, ranking)
    await step(again)
    (known,) = again.broken
    assert (known.field, known.failing, known.example, known.found_otherwise) == (
        "owner",
        ("css #o",),
        "t7",
        found_otherwise,
    )
    assert known.since == rig.clock.now()
    assert ranking.order(SITE).ranked("owner", (Css("#o"), Css("#p")))[0] == Css("#p")


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


async def test_an_attempt_hands_its_signals_on_whatever_its_end(tmp_path: Path) -> None:
    async with at_work(tmp_path) as works:
        await works.add(a_task("t1", platform="a"), lambda _: Done(data={}, signals=(SIGNAL,)))
        await works.add(a_task("t2", platform="b"), lambda _: Retry("no", signals=(SIGNAL, SIGNAL)))
        await works.add(a_task("t3", platform="c"), lambda _: Done(data={}, signals="nonsense"))  # type: ignore[arg-type]
        for _ in range(3):
            await works.step()
        await works.learning.flush()
        assert len(await works.lpm.signals.unsynced()) == 3


async def test_a_new_worker_knows_what_the_pages_of_a_site_have(rig: Rig, learning: Learning, ranking: Ranking) -> None:
    page = PageSections(shown=["the end of the page"], absent=[], results=[])
    half = PageSections(shown=[], absent=["the end of the page"], results=[])
    ranking.sections.note(SITE, page, "p-0")
    await step(learning)
    for number in range(19):
        ranking.sections.note(SITE, half, f"p-{number}")
    await step(learning)
    again = Ranking()
    await step(Learning(rig.context, again))
    assert again.sections.gone(SITE) == set()
    again.sections.note(SITE, half, "p-20")
    assert again.sections.gone(SITE) == {"the end of the page"}, "the twentieth parcel"
