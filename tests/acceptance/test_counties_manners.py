"""A worker's manners with real sites: it asks for nothing twice, not too fast, and not for what it should not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parcelpost.model import TaskStatus
from tests.acceptance.counties import STANDALONE, add, data, fetched, results, scrape, simulated
from tests.acceptance.processes import worker
from tests.website import website

WITH_SESSION = ("grizzly_gis", "realauction")
"""Whose pages take several requests: nothing can be asked for on a condition."""


async def test_pages_are_asked_for_once_in_their_time_and_then_only_if_they_have_changed(tmp_path: Path) -> None:
    with simulated(tmp_path, "--parcels", "20") as county:
        orders = county.tasks(first=2)
        await add(tmp_path, orders)
        scrape(tmp_path, {**county.settings, "storage.cache_ttl_hours": "0.00001"})
        first, records = county.answers(), await facts_of(tmp_path)
        await add(tmp_path, orders)
        scrape(tmp_path, county.settings)
        second = county.answers()
        await add(tmp_path, orders)
        scrape(tmp_path, county.settings)
        assert county.answers() == second
    robots = first.pop("robots.txt")
    assert second.pop("robots.txt") == robots == {"200": 1}
    for platform, answered in second.items():
        fresh = first[platform]["200"]
        wanted = {"200": 2 * fresh} if platform in WITH_SESSION else {"200": fresh, "304": fresh}
        assert (platform, answered) == (platform, wanted)
    assert await facts_of(tmp_path) == records


async def facts_of(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return {(one.platform, one.parcel_id): {**data(one), "scraped_at": None} for one in await results(folder)}


async def test_a_host_is_asked_at_its_pace_and_not_for_what_its_robots_txt_forbids(tmp_path: Path) -> None:
    with simulated(tmp_path, "--parcels", "6", "--platform", "vgsi", "--platform", "govease") as county:
        forbidden = {**county.tasks("govease", first=1)[0], "url": f"{county.address}/_control/faults"}
        await add(tmp_path, [*county.tasks("vgsi"), forbidden])
        paced = {**county.settings, "fetch.pace_seconds": "0.2", "log.level": "debug"}
        async with worker(*STANDALONE, "--until-empty", folder=tmp_path, settings=paced) as process:
            assert await process.ended() == 0
        assert county.answers() == {"robots.txt": {"200": 1}, "vgsi": {"200": 6}}
    asked = sorted(one.began for one in fetched(tmp_path))
    assert len(asked) == 7
    assert asked[-1] - asked[0] > 5 * 0.2  # six pauses, less what one request may have come late to the log
    (refused,) = [one for one in await results(tmp_path) if one.data is None]
    assert refused.status is TaskStatus.FAILED
    assert (refused.error or "").startswith(f"robots.txt of {county.address} does not allow")


async def test_a_private_address_is_asked_only_if_it_is_allowed_also_after_a_redirect(tmp_path: Path) -> None:
    async with website() as site:
        allowed = f"http://localhost:{site.port}"
        site.page("/home", b"", 302, Location=f"{site.url}/inside")
        site.page("/file", b"", 302, Location="file:///etc/passwd")
        site.page("/inside", b"a secret")
        place = {"platform": "govease", "state": "FL", "county": "elsewhere"}
        urls = {"redirected": f"{allowed}/home", "to a file": f"{allowed}/file", "named": f"{site.url}/inside"}
        await add(tmp_path, [{**place, "parcel_id": name, "url": url} for name, url in urls.items()])
        settings = {"fetch.allow_private": "localhost", "fetch.pace_seconds": "0"}
        async with worker(*STANDALONE, "--until-empty", folder=tmp_path, settings=settings) as process:
            assert await process.ended() == 0
        assert {one.path for one in site.asked} == {"/robots.txt", "/home", "/file"}
        assert {one.headers["host"] for one in site.asked} == {f"localhost:{site.port}"}
    errors = {one.parcel_id: one.error or "" for one in await results(tmp_path)}
    assert "127.0.0.1 is a private address" in errors["redirected"]
    assert "is not an http or https URL" in errors["to a file"]
    assert "127.0.0.1 is a private address" in errors["named"]
