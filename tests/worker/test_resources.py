"""What the machine has left, looked at step by step: what is told, and what happens to the browsers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import Struct

from parcelpost.clock import ManualClock
from parcelpost.events import Event, PressureChanged, ResourcesSampled
from parcelpost.settings.schema import ResourcesSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.resources import Browsers, Resources
from parcelpost.worker.status import SHORTAGE_STATE, Pressure, Shortage, ShortageNotes
from tests.worker.machine import GIB, MIB, Machine
from tests.worker.rig import SOON_BUSY


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
    def __init__(self, root: Path) -> None:
        self.machine = Machine(root)
        self.pool = Pool(self.machine)
        self.events: list[Event] = []
        self.resources = self.looked_at(self.pool)

    def looked_at(self, browsers: Browsers | None) -> Resources:
        return Resources(
            ResourcesSettings(),
            browsers=browsers,
            most_browsers=8,
            clock=ManualClock(),
            emit=self.events.append,
            root=self.machine.root,
        )

    def seen(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def real(settings: ResourcesSettings, events: list[Event]) -> Resources:
    return Resources(settings, browsers=None, most_browsers=4, clock=ManualClock(), emit=events.append)


@pytest.mark.parametrize("pressure", Pressure)
async def test_this_machine_is_under_pressure_where_the_thresholds_say_so(pressure: Pressure) -> None:
    below, above = 0.01, 100.0
    thresholds = [below if level <= pressure else above for level in list(Pressure)[1:]]
    slow, tasks, browsers = thresholds
    events: list[Event] = []
    settings = ResourcesSettings(slow_percent=slow, no_new_tasks_percent=tasks, stop_browsers_percent=browsers)
    resources = real(settings, events)
    assert await resources.step() == 5
    assert resources.pressure is pressure
    (sample,) = [event for event in events if isinstance(event, ResourcesSampled)]
    assert sample.pressure == pressure.words
    assert 0 < sample.memory_percent < 100
    assert 0 <= sample.cpu_percent <= 100
    assert sample.browsers_safe <= 4
    changes = [event for event in events if isinstance(event, PressureChanged)]
    assert [change.pressure for change in changes] == ([] if pressure is Pressure.FINE else [pressure.words])


async def test_a_change_is_told_once_with_what_it_means(scene: Scene) -> None:
    for used in (100, 2_900, 3_000, 2_800, 3_300, 100, 200):
        scene.pool.use(used)
        await scene.resources.step()
    said = [(event.pressure, event.meaning) for event in scene.events if isinstance(event, PressureChanged)]
    assert said == [
        ("slow", "half of the slots work and no browser is added"),
        ("no new tasks", "no task is started, those that run go on"),
        ("fine", "all slots work"),
    ]
    assert len(scene.seen(ResourcesSampled)) == 7


async def test_a_pool_grows_by_what_its_browsers_were_measured_to_need(scene: Scene) -> None:
    await scene.resources.step()
    scene.pool.use(200)
    await scene.resources.step()
    scene.pool.use(1_000)
    await scene.resources.step()
    assert scene.pool.allowed == [8, 8, 2]
    scene.pool.use(500, 500)
    await scene.resources.step()
    assert scene.pool.allowed[-1] == 5


async def test_a_pool_that_makes_memory_scarce_shrinks(scene: Scene) -> None:
    scene.pool.use(*[700] * 4)
    await scene.resources.step()
    assert scene.seen(PressureChanged) == []
    scene.pool.use(*[750] * 4)
    await scene.resources.step()
    assert scene.resources.pressure is Pressure.SLOW
    assert scene.pool.allowed[-1] == 3


async def test_the_largest_browser_is_stopped_at_each_look_until_there_is_room(scene: Scene) -> None:
    scene.pool.use(300, 900, 500, 800, 600, 600)
    counts = []
    for _ in range(5):
        await scene.resources.step()
        counts.append((scene.resources.pressure.words, len(scene.pool.sizes)))
    assert counts[:2] == [("stop browsers", 5), ("slow", 5)]
    assert scene.pool.allowed[0] == 0
    assert max(scene.pool.sizes) == 800 * MIB
    assert counts[-1] == counts[1]


async def test_without_a_pool_it_looks_all_the_same(scene: Scene) -> None:
    resources = scene.looked_at(None)
    scene.pool.use(3_700)
    await resources.step()
    assert resources.pressure is Pressure.STOP_BROWSERS
    assert round(resources.load.memory.percent) == 97
    assert resources.summary == (
        "97 % of the memory (4.0 GiB) is used: "
        "no task is started and browsers are stopped, their tasks wait for better times"
    )


async def test_other_processes_are_told_of_it_once_the_store_takes_it(scene: Scene, tmp_path: Path) -> None:
    clock = ManualClock()
    async with LocalPersistenceManager.open(tmp_path / "store.db", options=SOON_BUSY, clock=clock) as lpm:
        notes = ShortageNotes(scene.resources, lpm, "worker-1", clock)

        async def told_after_using(mebibytes: int) -> list[tuple[str, bool, str]]:
            scene.pool.use(mebibytes)
            await scene.resources.step()
            assert await notes.step() == 1
            told = await lpm.state.list(SHORTAGE_STATE, Shortage)
            assert all((one.worker_id, one.owner) == ("worker-1", lpm.owner_id) for one in told)
            return [(one.pressure, one.starts_tasks, one.summary) for one in told]

        assert await told_after_using(100) == []
        with closing(sqlite3.connect(lpm.path, isolation_level=None)) as another:
            another.execute("BEGIN IMMEDIATE")
            assert await told_after_using(3_300) == []
        assert await told_after_using(3_300) == [("no new tasks", False, scene.resources.summary)]
        assert await told_after_using(2_900) == [("slow", True, scene.resources.summary)]
        assert await told_after_using(100) == [("fine", True, "")]


async def test_while_all_is_fine_there_is_nothing_to_say(scene: Scene) -> None:
    await scene.resources.step()
    assert scene.resources.summary == ""
    assert scene.seen(PressureChanged) == []
