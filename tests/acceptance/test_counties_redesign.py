"""A site is redesigned while a worker scrapes it: hardly a record loses a field, and everybody is told."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from parcelpost.simulator.parcels import World
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.counties import (
    STANDALONE,
    Simulated,
    add,
    ask,
    data,
    gateway,
    is_worked_off,
    parcelpost,
    results,
    simulated,
)
from tests.acceptance.processes import eventually, worker
from tests.lengths import short_and_long
from tests.simulator import facts
from tests.simulator.asking import wrong
from tests.storage.factories import look

FURTHER = 20
FAILING = "#MainContent_lblPid"
FAILING_TABLES = (("sales", "#MainContent_grdSales"), ("buildings", "[id$='tblBldg']"))
FAILING_AT_LEEPA = "#parcelLabel"
TRIES_THAT_FAILED = "SELECT count(*) FROM learning_signals WHERE selector IN (?, ?) AND NOT success"


@short_and_long("parcels", (120,), (200,))
async def test_a_redesign_half_way_costs_hardly_a_record_a_field_and_is_told_to_everybody(
    tmp_path: Path, parcels: int
) -> None:
    sites = ("--platform", "vgsi", "--platform", "leepa", "--parcels", str(parcels + FURTHER))
    with simulated(tmp_path, *sites) as county:
        tasks = county.tasks("vgsi")
        county.fault("redesign", 0, "leepa")  # as a county that nobody has seen before
        await add(tmp_path, [*tasks[: parcels // 2], *county.tasks("leepa", first=60)])
        async with worker(*STANDALONE, folder=tmp_path, settings=county.settings) as process:
            await worked_off(tmp_path)
            county.fault("redesign", 1)
            await add(tmp_path, tasks[parcels // 2 : parcels])
            await worked_off(tmp_path)
            process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
        lost = losing(await results(tmp_path), parcels)
        assert len(lost) < parcels * 0.02, lost
        named = broken(tmp_path)
        check(named, tmp_path)
        with gateway(tmp_path) as upstream:
            await known_after_a_restart(tmp_path, county, upstream)
            assert named.keys() <= broken(tmp_path).keys()
            await taken_over(tmp_path / "fresh", county, upstream)


async def known_after_a_restart(folder: Path, county: Simulated, upstream: str) -> None:
    """By the worker, and by a gateway that it tells of it."""
    before = tries_of_what_fails(folder)
    arguments = (*STANDALONE, "--gateway", upstream)
    async with worker(*arguments, folder=folder, settings=county.settings) as process:
        await eventually(lambda: names_it(upstream))
        async with LocalPersistenceManager.open(folder / "store.db") as lpm:
            await eventually(lambda: has_sent_its_signals(lpm))
        await add(folder, county.tasks("vgsi")[-FURTHER:])
        await worked_off(folder)
        process.kill()  # it may still be delivering: of no use here
    ranked = ask(f"{upstream}/internal/selectors?platform=vgsi")["selectors"]
    assert ("parcel_id", FAILING) in {(one["field"], one["selector"]) for one in ranked}
    assert tries_of_what_fails(folder) - before <= 1  # to see whether it works again


async def taken_over(folder: Path, county: Simulated, upstream: str) -> None:
    """A worker that has seen no page begins with the ways that did well elsewhere."""
    folder.mkdir()
    settings = {**county.settings, "worker.platforms": "leepa", "log.level": "debug"}
    arguments = (*STANDALONE, "--gateway", upstream)
    async with worker(*arguments, folder=folder, settings=settings) as process:
        await process.said('"event": "FleetSelectorsReceived", "platform": "leepa"')
        site = f"{county.address}/leepa/Display/DisplayParcel.aspx?STRAP="
        tasks = county.tasks("leepa", first=5)
        await add(folder, [{**task, "county": "elsewhere", "url": site + task["parcel_id"]} for task in tasks])
        await worked_off(folder)
        process.send_signal(signal.SIGTERM)
        assert await process.ended() == 0
    assert len(await results(folder)) == len(tasks)
    assert tries_of_what_fails(folder) == 0


async def has_sent_its_signals(lpm: LocalPersistenceManager) -> bool:
    return await lpm.signals.unsynced(1) == []


def tries_of_what_fails(folder: Path) -> int:
    ((count,),) = look(folder / "store.db", TRIES_THAT_FAILED, FAILING, FAILING_AT_LEEPA)
    return int(count)


async def worked_off(folder: Path) -> None:
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        await eventually(lambda: is_worked_off(lpm))


def losing(entries: list[Any], parcels: int) -> dict[str, list[str]]:
    """Records that say of a field, or of a table, something else than their page shows, and of which."""
    found = {entry.parcel_id: data(entry) for entry in entries if entry.platform == "vgsi"}
    assert len(found) == parcels
    world = World(seed=1, county="invented", size=parcels + FURTHER)
    wrongs = {one: wrong(shown, facts.of_parcel("vgsi", world.at(int(one)))) for one, shown in found.items()}
    return {one: list(fields) for one, fields in wrongs.items() if fields}


def broken(folder: Path) -> dict[tuple[str, str, str], dict[str, Any]]:
    """What `parcelpost status` says, by county, field and selector."""
    status = json.loads(parcelpost(folder, "status", "--json", "--store", "store.db"))
    return {
        (one["field"]["county"], one["field"]["field"], way): one
        for one in status["broken"]
        for way in one["field"]["failing"]
    }


def check(named: dict[tuple[str, str, str], dict[str, Any]], folder: Path) -> None:
    said = parcelpost(folder, "status", "--store", "store.db")
    for field, way in (("parcel_id", FAILING), *FAILING_TABLES):
        one = named["invented", field, f"css {way}"]
        assert one["field"]["since"]
        assert (folder / one["page"]).is_file()
        assert f"vgsi NH/invented: {field} is found by other selectors since " in said
        assert f"css {way}" in said


async def names_it(upstream: str) -> bool:
    platforms = {one["platform"]: one for one in ask(f"{upstream}/v1/overview")["platforms"]}
    failing = platforms.get("vgsi", {"outdated_selectors": []})["outdated_selectors"]
    return ("NH/invented", "parcel_id", f"css {FAILING}") in {
        (one["site"], one["field"], one["selector"]) for one in failing
    }
