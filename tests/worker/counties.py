"""Counties of one platform, each on a host of its own, and an executor that fetches from them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Priority, Target, Task
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.fetch.client import PageFetcher
from tests.scrapers.fetching import HERE
from tests.website import Asked, Reply, Website
from tests.worker.executing import Works, at_work

NAMES = ("adams", "baker", "clark")


def host_of(county: str, site: Website) -> str:
    return f"{county}.example:{site.port}"


def a_parcel(county: str, number: int, priority: Priority = Priority.NORMAL) -> Task:
    target = Target(parcel_id=str(number), state="FL", county=county)
    return Task(task_id=f"{county}-{number}", platform="arcgis", target=target, priority=priority)


def asked_of(site: Website, county: str) -> list[str]:
    """The parcels that a county's host was asked for, in order."""
    at = [one for one in site.asked if one.headers["host"] == host_of(county, site) and one.path != "/robots.txt"]
    return [one.query["where"].split("'")[1] for one in at]


def serve_parcels(site: Website) -> None:
    """Every host has every parcel."""

    def query(asked: Asked) -> Reply:
        parcel = asked.query["where"].split("'")[1]
        found = {"features": [{"attributes": {"PARCEL_ID": parcel, "OWN_NAME": "DOE", "JV": 1.10, "DOR_UC": "000"}}]}
        return Reply(json.dumps(found).encode(), headers={"Content-Type": "application/json"})

    site.pages["/rest/0/query"] = query


async def _here(_host: str, _port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def at_counties(
    folder: Path,
    site: Website,
    clock: Clock = SystemClock(),
    *,
    paces: dict[str, float],
    slots: int = 4,
    **options: Any,
) -> AsyncIterator[Works]:
    """`paces`: county -> the seconds that it wants between two requests."""
    ids = {"parcel_column": "PARCEL_ID"}
    entries = [
        County(
            platform="arcgis",
            state="FL",
            county=name,
            site=f"http://{host_of(name, site)}/rest/0",
            ids=ids,
            pace_seconds=pace,
        )
        for name, pace in paces.items()
    ]
    fetch = replace(HERE, **options)
    async with PageFetcher.open(fetch, clock=clock, resolve=_here) as fetcher:
        sites = CountySites(counties=Counties(entries), sessions=fetcher.session, clock=clock)
        about: dict[str, Any] = {
            "availability": fetcher.availability,
            "sites": sites,
            "slots": slots,
            "idle_seconds": 0.2,
        }
        async with at_work(folder, clock, **about) as works:
            yield works
