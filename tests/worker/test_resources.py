"""What the machine has left, looked at step by step: what is told, and what happens to the browsers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import Struct

from parcelpost.clock import ManualClock
from parcelpost.events import Event, PressureChanged, ResourcesSampled
from parcelpost.settings import Settings
from parcelpost.settings.schema import ResourcesSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.null import NullUpstream
from parcelpost.worker.control import Pressure
from parcelpost.worker.resources import PoolControl, Resources
from tests.worker.machine import GIB, MIB, Machine
from tests.worker.rig import a_context


class Figures(Struct, frozen=True):
    browsers: int
    busy: int
    pss_bytes: int
    pss_per_browser: float | None


class Pool:
    """Browsers that are nothing but the memory they use, in a container of 4 GiB where all else needs 256 MiB."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        machine.is_in("/")
        self.sizes: list[int] = []
        self.allowed: list[int] = []
        self.use()

    def use(self, *mebibytes: int) -> None:
        self.sizes = [size * MIB for size in mebibytes]
        self._machine.group("", limit=4 * GIB, used=256 * MIB + sum(self.sizes))

    @property
    def figures(self) -> Figures:
        count = len(self.sizes)
        return Figures(count, count, sum(self.sizes), sum(self.sizes) / count if count else None)

    def allow(self, most: int) -> None:
        self.allowed.append(most)

    async def stop_largest(self) -> bool:
        left = sorted(self.sizes)[:-1]
        self.use(*(size // MIB for size in left))
        return True


class Scene:
    def __init__(self, root: Path, lpm: LocalPersistenceManager) -> None:
        self.machine = Machine(root)
        self.pool = Pool(self.machine)
        self.events: list[Event] = []
        self.clock = ManualClock()
        self.context = a_context(lpm, NullUpstream(), self.clock, self.events.append)
        self.resources = self.looked_at(self.pool)

    @property
    def pressure(self) -> Pressure:
        return self.context.control.pressure

    def looked_at(self, browsers: PoolControl | None) -> Resources:
        return Resources(self.context, browsers=browsers, most_browsers=8, root=self.machine.root)

    def seen(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        yield Scene(tmp_path, lpm)


@pytest.mark.parametrize("pressure", Pressure)
async def test_this_machine_is_under_pressure_where_the_thresholds_say_so(tmp_path: Path, pressure: Pressure) -> None:
    below, above = 0.01, 100.0
    thresholds = [below if level <= pressure else above for level in list(Pressure)[1:]]
    slow, tasks, browsers = thresholds
    events: list[Event] = []
    settings = ResourcesSettings(slow_percent=slow, no_new_tasks_percent=tasks, stop_browsers_percent=browsers)
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        context = a_context(lpm, NullUpstream(), ManualClock(), events.append, Settings(resources=settings))
        await Resources(context, browsers=None, most_browsers=4).sample()
    assert context.control.pressure is pressure
    (sample,) = [event for event in events if isinstance(event, ResourcesSampled)]
    assert sample.pressure == pressure.label
    assert 0 < sample.memory_percent < 100
    assert 0 <= sample.cpu_percent <= 100
    assert sample.browsers_safe <= 4
    changes = [event for event in events if isinstance(event, PressureChanged)]
    assert [change.pressure for change in changes] == ([] if pressure is Pressure.FINE else [pressure.label])


async def test_a_change_is_told_once_with_what_it_means(scene: Scene) -> None:
    for used in (100, 2_900, 3_000, 2_800, 3_300, 100, 200):
        scene.pool.use(used)
        await scene.resources.sample()
    said = [(event.pressure, event.meaning) for event in scene.events if isinstance(event, PressureChanged)]
    assert said == [
        ("slow", "half of the slots run tasks and no browser is added"),
        ("no new tasks", "no tasks are started; running ones continue"),
        ("fine", "all slots run tasks"),
    ]
    assert len(scene.seen(ResourcesSampled)) == 7


async def test_a_pool_grows_by_what_its_browsers_were_measured_to_need(scene: Scene) -> None:
    await scene.resources.sample()
    scene.pool.use(200)
    await scene.resources.sample()
    scene.pool.use(1_000)
    await scene.resources.sample()
    assert scene.pool.allowed == [8, 8, 2]
    scene.pool.use(500, 500)
    await scene.resources.sample()
    assert scene.pool.allowed[-1] == 5


async def test_a_pool_that_makes_memory_scarce_shrinks(scene: Scene) -> None:
    scene.pool.use(*[700] * 4)
    await scene.resources.sample()
    assert scene.seen(PressureChanged) == []
    scene.pool.use(*[750] * 4)
    await scene.resources.sample()
    assert scene.pressure is Pressure.SLOW
    assert scene.pool.allowed[-1] == 3


async def test_the_largest_browser_is_stopped_at_each_look_until_there_is_room(scene: Scene) -> None:
    scene.pool.use(300, 900, 500, 800, 600, 600)
    counts = []
    for _ in range(5):
        await scene.resources.sample()
        counts.append((scene.pressure.label, len(scene.pool.sizes)))
    assert counts[:2] == [("stop browsers", 5), ("slow", 5)]
    assert scene.pool.allowed[0] == 0
    assert max(scene.pool.sizes) == 800 * MIB
    assert counts[-1] == counts[1]


async def test_without_a_pool_it_looks_all_the_same(scene: Scene) -> None:
    resources = scene.looked_at(None)
    scene.pool.use(3_700)
    await resources.sample()
    assert scene.pressure is Pressure.STOP_BROWSERS
    assert round(resources.load.memory.percent) == 97
    assert resources.summary == (
        "97% of the memory (4.0 GiB) is used: "
        "no tasks are started and browsers are stopped; their tasks are retried later"
    )


async def test_it_knows_since_when_memory_is_short(scene: Scene) -> None:
    since = []
    for used in (100, 3_300, 3_300, 2_900, 100):
        scene.clock.advance(10)
        scene.pool.use(used)
        await scene.resources.sample()
        began = scene.resources.short_since
        since.append(began and (scene.clock.now() - began).total_seconds())
    assert since == [None, 0, 10, 0, None], "a change of the pressure is a new beginning"


async def test_while_all_is_fine_there_is_nothing_to_say(scene: Scene) -> None:
    await scene.resources.sample()
    assert scene.resources.summary == ""
    assert scene.seen(PressureChanged) == []
