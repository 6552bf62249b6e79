"""How soon a killed worker scrapes again, with many tasks in its store."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from parcelpost.chaos.processes import HOST, Command, Member, wait_for_port, wait_until
from parcelpost.chaos.topology import PLATFORM
from parcelpost.clock import Clock
from parcelpost.errors import ParcelpostError
from parcelpost.files_and_sockets import free_port
from parcelpost.simulator import sites
from parcelpost.simulator.parcels import World

_SAVES_BEFORE_A_KILL = 20
_PATIENCE_SECONDS = 600.0
_SETTINGS = {
    "fetch.allow_private": HOST,
    "fetch.pace_seconds": "0.02",
    "fetch.concurrency_per_host": "8",
    "resources.slow_percent": "100",
    "log.level": "warning",
}


class Recoveries(Struct, frozen=True, kw_only=True):
    tasks: int
    seconds: Sequence[float]
    """From each kill to the next saved result."""

    @property
    def median(self) -> float:
        return sorted(self.seconds)[len(self.seconds) // 2]


async def measure(folder: Path, tasks: int, kills: int, clock: Clock) -> Recoveries:
    port = free_port()
    place = ["--platform", PLATFORM, "--parcels", str(tasks), "--port", str(port)]
    county = Member("county", Command(words=["simulate", "county", *place]), folder / "county", clock)
    worlds = {PLATFORM: World(seed=1, county="invented", size=tasks)}
    address = f"http://{HOST}:{port}"
    counties, file, store = folder / "counties.toml", folder / "tasks.csv", folder / "parcelpost.db"
    counties.write_text(sites.counties_toml(address, worlds), "utf-8")
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerows((sites.TASK_COLUMNS, *sites.task_rows(address, worlds)))
    settings = _SETTINGS | {"fetch.counties_file": str(counties)}
    add = Command(words=["import", str(file), "--store", str(store)], settings={"fetch.counties_file": str(counties)})
    adding = Member("import", add, folder / "import", clock)
    run = Command(words=["run", "--mode", "standalone", "--store", str(store)], settings=settings)
    worker = Member("worker", run, folder / "worker", clock)
    try:
        await county.start()
        await adding.start()
        if await adding.wait() or not await wait_for_port(port, county, clock):
            raise ParcelpostError(f"the tasks cannot be added: {adding.last_lines()}", hint=f"see {adding.log}")
        await worker.start()
        seconds = [await _kill_once(worker, clock) for _ in range(kills)]
    finally:
        for member in (worker, adding, county):
            await member.kill()
    return Recoveries(tasks=tasks, seconds=seconds)


async def _kill_once(worker: Member, clock: Clock) -> float:
    await _until_saved(worker, clock, _SAVES_BEFORE_A_KILL)
    await worker.kill()
    killed = clock.monotonic()
    await worker.start()
    return await _until_saved(worker, clock, 1) - killed


async def _until_saved(worker: Member, clock: Clock, count: int) -> float:
    """Returns when this process had saved so many results."""
    times: list[float] = []

    def are_saved() -> bool:
        times[:] = _saves(worker)
        return len(times) >= count

    if not await wait_until(are_saved, clock, lambda: not worker.runs, _PATIENCE_SECONDS):
        raise ParcelpostError(f"the worker saves nothing: {worker.last_lines()}", hint=f"see {worker.log}")
    return times[count - 1]


def _saves(worker: Member) -> list[float]:
    if not worker.told_file.exists():
        return []
    content = worker.told_file.read_bytes()
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    told = (msgspec.json.decode(line) for line in lines)
    return [at for at, pid, event, *_ in told if event == "saved" and pid == worker.pid]
