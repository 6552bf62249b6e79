"""What counties' pages gave, at a real gateway: a list's records, a Scrapy project's items, what is read anew."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from parcelpost.simulator.parcels import World, auction_cases
from parcelpost.simulator.sites import SITES
from tests.acceptance.counties import (
    STANDALONE,
    Simulated,
    add,
    ask,
    data,
    gateway,
    parcelpost,
    results,
    scrape,
    simulated,
    written,
)
from tests.acceptance.processes import command

pytestmark = pytest.mark.xdist_group("counties at a gateway")

WORLD = World(seed=1, county="invented", size=60)
SPIDER = Path(__file__).parents[1] / "contrib" / "vgsi_spider.py"
SCRAPY = (
    'ITEM_PIPELINES={"parcelpost.contrib.scrapy.ParcelpostPipeline": 300}',
    'SPIDER_MIDDLEWARES={"parcelpost.contrib.scrapy.KeepPages": 10}',
    "PARCELPOST_STORE=store.db",
    "PARCELPOST_STATE=NH",
    "PARCELPOST_COUNTY=invented",
    "TELNETCONSOLE_ENABLED=False",
)
OLDER_PARSER = """
from msgspec.structs import replace
from parcelpost.scrapers.platforms import vgsi
from parcelpost.scrapers.records.record import Record

newer = vgsi.PLATFORM

def read(reading):
    found = newer.read(reading)
    if isinstance(found, Record):
        found.zoning = None
    return found

vgsi.PLATFORM = replace(newer, version=0, read=read)
"""


class Stage(NamedTuple):
    upstream: str
    """A gateway's address."""
    county: Simulated
    folder: Path
    """Where the gateway was started."""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("stage")
    with gateway(folder) as upstream, simulated(folder, "--parcels", str(WORLD.size)) as county:
        yield Stage(upstream, county, folder)


def test_every_record_of_a_list_is_at_the_gateway_once_though_it_ordered_only_the_list(
    tmp_path: Path, stage: Stage
) -> None:
    upstream, county, _ = stage
    where = {**county.tasks("arcgis", first=1)[0], "parcel_id": "all", "where": "1=1"}
    orders = written(tmp_path, [where, *county.tasks("deedauction"), *county.tasks("lien_register")])
    parcelpost(stage.folder, "gateway", "add", orders, settings=county.settings)
    run = ("run", "--gateway", upstream, "--store", "store.db", "--until-empty")
    said = parcelpost(tmp_path, *run, settings=county.settings)
    assert "0 to deliver, 0 rejected" in said
    found = {name: parcels(upstream, name) for name in ("arcgis", "deedauction", "lien_register")}
    number_as = SITES["arcgis"].parcel_id
    assert number_as is not None
    assert found["arcgis"].keys() == {number_as(number) for number in range(1, WORLD.size + 1)}
    assert found["deedauction"].keys() == {case.number for page in (1, 2, 3) for case in auction_cases(WORLD, page)}
    assert found["lien_register"].keys() == {parcel.parcel_id for parcel in WORLD.register.all() if parcel.certificates}
    assert {(row["platform"], row["state"], row["tasks"]) for row in ask(f"{upstream}/v1/queue")["queue"]} == {
        ("arcgis", "done", 1),
        ("deedauction", "done", 3),
        ("lien_register", "done", 1),
    }
    assert {len(one_parcel(upstream, source)["history"]) for source in found["deedauction"].values()} == {1}
    assert all(source["raw"] for by_number in found.values() for source in by_number.values())


async def test_what_a_scrapy_project_scrapes_goes_into_the_store_and_from_there_to_the_gateway(
    tmp_path: Path, stage: Stage
) -> None:
    options = [part for setting in SCRAPY for part in ("-s", setting)]
    arguments = ["-a", f"site={stage.county.address}/vgsi/inventednh", "-a", f"parcels={WORLD.size}"]
    command = [sys.executable, "-m", "scrapy", "runspider", str(SPIDER), *arguments, *options]
    crawl = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert crawl.returncode == 0, crawl.stderr
    stored = await results(tmp_path)
    said = scrape(tmp_path, {}, "--gateway", stage.upstream)
    owners = {str(parcel.number): parcel.owners[0] for parcel in WORLD.all()}
    assert {one.parcel_id: data(one)["owner_names"] for one in stored} == {n: [name] for n, name in owners.items()}
    assert {one.synced_at for one in stored} == {None}
    assert "0 to deliver, 0 rejected" in said
    found = parcels(stage.upstream, "old_vgsi", records=True)
    assert {number: source["record"]["owner_names"][0] for number, source in found.items()} == owners
    values = {number: int(source["record"]["market_value"]) for number, source in found.items()}
    assert values == {str(parcel.number): parcel.market for parcel in WORLD.all()}
    assert all(source["raw"] for source in found.values())


def parcels(upstream: str, platform: str, *, records: bool = False) -> dict[str, Any]:
    """What this platform shows of each parcel, by number."""
    asked = f"{upstream}/v1/parcels?platform={platform}&limit=1000&records={records}"
    found = [
        {**source, "address": parcel["address"]}
        for parcel in ask(asked)["parcels"]
        for source in parcel["sources"]
        if source["platform"] == platform
    ]
    assert len({source["parcel_id"] for source in found}) == len(found)
    return {source["parcel_id"]: source for source in found}


def one_parcel(upstream: str, source: dict[str, Any]) -> Any:
    """That source of the parcel, with its record and history."""
    told = ask(f"{upstream}{quote(source['address'], safe='/%')}")
    (same,) = [one for one in told["sources"] if one["platform"] == source["platform"]]
    return same


class Reparsed(NamedTuple):
    before: Any
    """A parcel at the gateway, as an older parser read it."""
    counts: dict[str, Any]
    said: str
    """By the run that delivered it again."""
    after: Any
    signals: dict[bool, int]
    """How many the first run had sent at its end, and how many not."""


@pytest.fixture(scope="module")
def reparsed(tmp_path_factory: pytest.TempPathFactory, stage: Stage) -> Reparsed:
    upstream, county, _ = stage
    folder = tmp_path_factory.mktemp("reparsed")
    (folder / "sitecustomize.py").write_text(OLDER_PARSER)
    asyncio.run(add(folder, [*county.tasks("vgsi", first=3), *county.tasks("govease", first=1)]))
    deliver = ("run", *STANDALONE, "--gateway", upstream, "--until-empty")
    older = command(*deliver, settings=county.settings)
    subprocess.run(older, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, check=True, capture_output=True)
    signals = sent_signals(folder / "store.db")
    parcel = parcels(upstream, "vgsi")["2"]
    before, asked = one_parcel(upstream, parcel), county.answers()
    counts = json.loads(parcelpost(folder, "reparse", "--json", "--store", "store.db"))
    said = parcelpost(folder, *deliver, settings=county.settings)
    assert county.answers() == asked
    return Reparsed(before, counts, said, one_parcel(upstream, parcel), signals)


def sent_signals(store: Path) -> dict[bool, int]:
    with closing(sqlite3.connect(store)) as db:
        found = db.execute("SELECT synced, count(*) FROM learning_signals GROUP BY synced")
        return {bool(synced): count for synced, count in found}


def test_what_was_learned_in_a_short_run_is_sent_before_it_ends(reparsed: Reparsed) -> None:
    assert reparsed.signals.keys() == {True}


def test_what_an_improved_parser_reads_is_stored_and_delivered_again(reparsed: Reparsed) -> None:
    assert reparsed.before["record"]["zoning"] is None
    listed = len(list(auction_cases(WORLD, 1)))
    assert (reparsed.counts["pages"], reparsed.counts["changed"], reparsed.counts["unchanged"]) == (4, 3, listed)
    assert (reparsed.counts["added"], reparsed.counts["unreadable"]) == (0, 0)
    assert "0 to deliver, 0 rejected" in reparsed.said


def test_the_gateway_has_it_in_place_of_what_was_read_wrongly(reparsed: Reparsed) -> None:
    """Its history is that of the parcel, not that of the parser."""
    assert reparsed.after["record"]["zoning"] == "RD"
    assert [one["changes"] for one in reparsed.after["history"]] == [
        one["changes"] for one in reparsed.before["history"]
    ]
