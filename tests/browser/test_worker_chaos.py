"""A worker whose sites need a browser, while browsers, renderers and Playwright's driver are killed at random."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from parcelpost.model import BrowserState
from parcelpost.simulator.parcels import World
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.counties import STANDALONE, add, data, is_worked_off, results, simulated
from tests.acceptance.processes import WorkerProcess, eventually, worker
from tests.browser.pools import drivers, kill, markers, needs_chromium, renderers
from tests.lengths import short_and_long
from tests.simulator import facts
from tests.simulator.asking import wrong

pytestmark = needs_chromium

KILL_EVERY = 6
"""Tasks that end between two kills."""
SETTINGS = {"browser.most": "2", "executor.slots": "3", "browser.idle_seconds": "600"}


class Watched:
    """The worker's browsers: what its store says of them, and what really runs."""

    def __init__(self, lpm: LocalPersistenceManager, worker: int) -> None:
        self._lpm = lpm
        self._worker = worker
        self.tokens: set[str] = set()
        """All pools whose browsers were ever seen, by what their markers begin with."""

    async def rows(self) -> list[BrowserState]:
        rows = await self._lpm.browsers.all()
        self.tokens |= {row.marker.partition("-")[0] for row in rows if row.marker}
        return rows

    def running(self) -> set[str]:
        """The markers of all browsers that run."""
        return {marker for token in self.tokens for marker in markers(token)}

    async def agree(self) -> bool:
        rows = await self.rows()
        running = self.running()
        said = {row.marker for row in rows if row.status in ("idle", "busy")}
        return said <= running <= {row.marker for row in rows}

    async def strike(self, chance: random.Random) -> None:
        found = [row for row in await self.rows() if row.status in ("idle", "busy")]
        if not found:
            return
        row = chance.choice(found)
        match chance.choice(["browser", "browser", "renderer", "renderer", "driver"]):
            case "renderer" if pages := renderers(row):
                kill(chance.choice(pages))
            case "driver" if found_drivers := drivers(self._worker):
                kill(found_drivers.pop())
            case _:
                kill(row.pid)


async def _under_fire(running: WorkerProcess, lpm: LocalPersistenceManager, watched: Watched) -> int:
    """Until the work is done. How often something was killed."""
    chance, kills = random.Random(6), 0
    while not await is_worked_off(lpm):
        assert running.returncode is None, "it ended too soon"
        if (await lpm.queue_depth()).completed >= KILL_EVERY * (kills + 1):
            kills += 1
            await watched.strike(chance)
            await eventually(watched.agree)
        await asyncio.sleep(0.1)
    return kills


@pytest.mark.timeout(600)
@short_and_long("tasks", (24,), (200,))
async def test_every_task_ends_with_its_result_and_nothing_is_left(tmp_path: Path, tasks: int) -> None:
    world = World(seed=1, county="invented", size=tasks)
    asked = ("--platform", "grizzly_gis", "--parcels", str(tasks), "--fault", "script=1")
    with simulated(tmp_path, *asked) as county:
        await add(tmp_path, county.tasks("grizzly_gis"), max_retries=0)
        async with (
            LocalPersistenceManager.open(tmp_path / "store.db") as lpm,
            worker(*STANDALONE, "--until-empty", folder=tmp_path, settings={**county.settings, **SETTINGS}) as running,
        ):
            watched = Watched(lpm, running.pid)
            kills = await asyncio.wait_for(_under_fire(running, lpm, watched), 500)
            assert await running.ended() == 0
            assert await watched.rows() == []
            assert watched.running() == set()
    assert kills >= tasks // KILL_EVERY - 2
    deaths = (tmp_path / "worker.log").read_text().count('"event": "BrowserDied"')
    assert deaths >= kills // 2, "the others were renderers"
    found = {entry.parcel_id: data(entry) for entry in await results(tmp_path)}
    expected = {
        fact["parcel_id"]: fact for n in range(1, tasks + 1) if (fact := facts.of_parcel("grizzly_gis", world.at(n)))
    }
    assert found.keys() == expected.keys()
    assert {key: bad for key, fact in expected.items() if (bad := wrong(found[key], fact))} == {}
