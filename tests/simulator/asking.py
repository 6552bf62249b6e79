"""Pages of a simulated site, asked for without a server."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from parcelpost.model import Done, Outcome, Page, Target
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import SITES
from parcelpost.simulator.web import Layout, Request, Response
from tests.simulator.facts import Facts

AS_EVER = Layout()


def parcel_page(platform: str, world: World, number: int, looks: Layout = AS_EVER) -> Page:
    site = SITES[platform]
    assert site.parcel_id is not None
    return ask(platform, world, site.parcel_id(number), looks)


def ask(platform: str, world: World, parcel_id: str, looks: Layout = AS_EVER) -> Page:
    """The page of a parcel, or what the site says of one that it does not have."""
    site = SITES[platform]
    if platform == "grizzly_gis":
        form = urlencode({"bHandoff_PIN": parcel_id}).encode()
        target = "/gis/recordSearch_2_Results/"
        return _page(site.respond(Request(method="POST", target=target, headers={}, body=form), world, looks))
    target = site.address.replace("{parcel}", quote(parcel_id))
    if platform == "socrata":
        where = f"borough='{parcel_id[0]}' and block='{int(parcel_id[1:6])}' and lot='{int(parcel_id[6:])}'"
        target = f"/resource/9rz4-mjek.json?$where={quote(where)}"
    return _page(site.respond(Request(method="GET", target=target, headers={}), world, looks))


def list_page(platform: str, world: World, number: int, looks: Layout = AS_EVER) -> Page:
    target = SITES[platform].address.replace("{page}", str(number))
    request = Request(method="GET", target=target, headers={"cookie": "auctionsession=1"})
    return _page(SITES[platform].respond(request, world, looks))


def parsed(platform: str, page: Page) -> Outcome:
    found = county_platform(platform)
    assert found is not None
    return found.parse(page, Target(parcel_id="", state="FL", county="invented")).outcome


def records(platform: str, page: Page) -> list[dict[str, Any]]:
    outcome = parsed(platform, page)
    assert isinstance(outcome, Done), outcome
    assert isinstance(outcome.data, dict)
    return [outcome.data, *map(dict, outcome.additional_records)]


def wrong(record: dict[str, Any], facts: Facts) -> dict[str, tuple[Any, Any]]:
    """What the record says otherwise than it should: field -> (wanted, got). `sales.date` is every sale's date."""
    found = {}
    for name, wanted in facts.items():
        field, _, member = name.partition(".")
        got = [one.get(member) for one in record[field]] if member else record.get(field)
        if got != wanted:
            found[name] = (wanted, got)
    return found


def _page(response: Response) -> Page:
    return Page(body=response.body, content_type=response.content_type)
