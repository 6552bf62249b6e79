"""County sites that misbehave: whatever they do, what ends in the store is right, and what is not there is not."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from parcelpost.model import OutboxEntry, TaskStatus
from parcelpost.simulator.parcels import World, auction_cases
from parcelpost.simulator.sites import SITES
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.counties import (
    STANDALONE,
    Simulated,
    add,
    data,
    fetched,
    is_worked_off,
    parcelpost,
    results,
    simulated,
)
from tests.acceptance.processes import eventually, worker
from tests.simulator import facts
from tests.simulator.asking import wrong

WORLD = World(seed=1, county="invented", size=60)
PARCELS = [name for name, site in SITES.items() if site.parcel_id]
PAGES = ("deedauction", "govease", "pioneer_taxdeed")
FEW = 5
RATES = {"500": 0.1, "reset": 0.1, "truncated": 0.15, "charset": 0.5, "slow": 0.02}
PATIENT = 1_000
"""Retries."""


def number_as(platform: str, number: int) -> str:
    as_written = SITES[platform].parcel_id
    assert as_written is not None
    return as_written(number)


def misses(entries: list[OutboxEntry]) -> dict[tuple[str, str], Any]:
    """What is stored of parcels and lists and is not as it was invented, or is not stored."""
    found = {(one.platform, one.parcel_id): data(one) for one in entries if one.data}
    wanted = {}
    for platform in {one.platform for one in entries}.intersection(PARCELS):
        for number in range(1, FEW):
            wanted[platform, number_as(platform, number)] = facts.of_parcel(platform, WORLD.at(number))
    for platform in {one.platform for one in entries}.intersection(PAGES):
        for case in (case for page in range(1, 4) for case in auction_cases(WORLD, page)):
            fact = facts.of_case(platform, case)
            wanted[platform, fact["parcel_id"] or fact["case_number"]] = fact
    if any(one.platform == "lien_register" for one in entries):
        with_liens = [parcel for parcel in WORLD.register.all() if parcel.certificates]
        wanted |= {("lien_register", parcel.parcel_id): facts.of_register(parcel) for parcel in with_liens}
    bad = {key: wrong(found[key], fact) if key in found else "missing" for key, fact in wanted.items()}
    return {key: what for key, what in bad.items() if what} | dict.fromkeys(found.keys() - wanted.keys(), "too much")


async def test_pages_that_come_slow_broken_cut_or_garbled_are_asked_for_again_until_they_are_whole(
    tmp_path: Path,
) -> None:
    with simulated(tmp_path, "--parcels", str(WORLD.size)) as county:
        orders = [*county.tasks(*PARCELS, first=FEW), *county.tasks(*PAGES, "lien_register")]
        await add(tmp_path, orders, max_retries=PATIENT)
        gone = [f"Pid={FEW}" if name == "vgsi" else number_as(name, FEW) for name in PARCELS]
        county.fault("missing", 0, *gone)
        for name, rate in RATES.items():
            county.fault(name, rate)
        county.fault("truncated", RATES["truncated"], "tax_liens.csv")
        async with worker(*STANDALONE, "--until-empty", folder=tmp_path, settings=impatient(county)) as process:
            await worked_off(tmp_path, but=1)
            assert not any(one.platform == "lien_register" for one in await results(tmp_path))
            county.fault("truncated", RATES["truncated"])
            assert await process.ended() == 0
        answers = county.answers()
    entries = await results(tmp_path)
    assert misses(entries) == {}
    missing = [(one.platform, one.status, one.success) for one in entries if one.data is None]
    assert sorted(missing) == [(name, TaskStatus.NOT_FOUND, True) for name in sorted(PARCELS)]
    counted = {status for by_status in answers.values() for status in by_status}
    assert counted >= {"200", "500", "reset"}


def impatient(county: Simulated) -> dict[str, str]:
    return {**county.settings, "fetch.timeout_seconds": "1"}


async def worked_off(folder: Path, *, but: int) -> None:
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        await eventually(lambda: is_worked_off(lpm, but=but))


async def test_a_robot_check_pauses_its_platform_and_no_other_and_costs_its_tasks_nothing(tmp_path: Path) -> None:
    with simulated(tmp_path, "--parcels", str(WORLD.size)) as county:
        await add(tmp_path, county.tasks("vgsi", "collier_pa", "mygov_due", first=FEW - 1))
        county.fault("challenge", 0, "vgsi")
        async with worker(*STANDALONE, "--until-empty", folder=tmp_path, settings=county.settings) as process:
            await worked_off(tmp_path, but=FEW - 1)
            await process.said('"event": "PlatformPaused"')
            status = json.loads(parcelpost(tmp_path, "status", "--json", "--store", "store.db"))
            blocked = await results(tmp_path)
            county.fault("challenge")
            async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
                assert await lpm.resume_platform("vgsi")
            assert await process.ended() == 0
    assert {one.platform for one in blocked} == {"collier_pa", "mygov_due"}
    ((name, pause),) = status["paused"].items()
    assert "vgsi" in name
    assert "shows a robot check (Cloudflare)" in pause["reason"]
    entries = await results(tmp_path)
    assert misses(entries) == {}
    assert {one.retries for one in entries} == {0}


async def test_a_site_that_wants_to_be_left_alone_is_and_its_tasks_end_right(tmp_path: Path) -> None:
    with simulated(tmp_path, "--parcels", str(WORLD.size)) as county:
        await add(tmp_path, county.tasks("vgsi", first=FEW - 1), max_retries=PATIENT)
        county.fault("429", 1)
        settings = {**county.settings, "fetch.concurrency_per_host": "1", "log.level": "debug"}
        async with worker(*STANDALONE, "--until-empty", folder=tmp_path, settings=settings) as process:
            await process.said('"status": 429')
            county.fault("429")
            assert await process.ended() == 0
    assert misses(await results(tmp_path)) == {}
    asked = fetched(tmp_path)
    rests = [after.began - before.ended for before, after in pairwise(asked) if before.status == 429]
    assert rests
    assert min(rests) > 1.9  # it said Retry-After: 2
