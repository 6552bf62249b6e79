"""The simulated sites: one module per platform, or one for several simple lists. Their county entries and tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from parcelpost.scrapers.platform import fetch_by_url
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator import parcels
from parcelpost.simulator.parcels import AUCTION_DAY, World, page_count
from parcelpost.simulator.sites import (
    arcgis,
    broward_bcpa,
    collier_pa,
    grizzly_gis,
    leepa,
    miamidade_pa,
    mygov_due,
    qpublic,
    realauction,
    socrata,
    tax_sales,
    vgsi,
)
from parcelpost.simulator.web import Layout, Request, Response


class Site(Struct, frozen=True, kw_only=True):
    respond: Callable[[Request, World, Layout], Response]
    address: str
    """Path of a page below the site's root; `{parcel}` is the site's own number, `{page}` the page of a list."""
    state: str = "FL"
    parcel_id: Callable[[int], str] | None = None
    """None: it shows lists, not parcels."""
    begins: str = ""
    """Path of a county's pages below the site's root."""
    ids: Mapping[str, str] = {}
    """Values that distinguish the county from others on the platform."""


SITES: Mapping[str, Site] = {
    "arcgis": Site(
        respond=arcgis.respond,
        address="/arcgis/rest/services/Parcels/MapServer/0/query?where=PIN%3D%27{parcel}%27&outFields=*&f=json",
        state="MN",
        parcel_id=arcgis.parcel_id,
        begins="/arcgis/rest/services/Parcels/MapServer/0",
        ids={"parcel_column": "PIN"},
    ),
    "beacon": Site(
        respond=qpublic.respond,
        address="/Application.aspx?AppID=1&LayerID=2&PageTypeID=4&PageID=3&KeyValue={parcel}",
        state="IA",
        parcel_id=parcels.parcel_id,
        ids={"AppID": "1", "LayerID": "2", "PageID": "3"},
    ),
    "broward_bcpa": Site(
        respond=broward_bcpa.respond,
        address="/BcpaClient/search.aspx/getParcelInformation?folioNumber={parcel}",
        parcel_id=broward_bcpa.parcel_id,
    ),
    "collier_pa": Site(
        respond=collier_pa.respond,
        address="/main_search/RecordDetail.html?FolioID={parcel}",
        parcel_id=collier_pa.parcel_id,
    ),
    "deedauction": Site(respond=tax_sales.deedauction, address="/auction/110?page={page}"),
    "govease": Site(respond=tax_sales.govease, address="/fl/flinvented/1348/?page={page}"),
    "grizzly_gis": Site(respond=grizzly_gis.respond, address="/gis/?pin={parcel}", parcel_id=parcels.parcel_id),
    "leepa": Site(
        respond=leepa.respond, address="/Display/DisplayParcel.aspx?STRAP={parcel}", parcel_id=leepa.parcel_id
    ),
    "lien_register": Site(respond=tax_sales.lien_register, address="/tax_liens.csv", state="CO"),
    "miamidade_pa": Site(
        respond=miamidade_pa.respond,
        address="/PApublicServiceProxy/PaServicesProxy.ashx?Operation=GetPropertySearchByFolio"
        "&clientAppName=PropertySearch&folioNumber={parcel}",
        parcel_id=miamidade_pa.parcel_id,
    ),
    "mygov_due": Site(
        respond=mygov_due.respond,
        address="/api/v2/due/PPT/{parcel}?detail_level=public",
        parcel_id=parcels.parcel_id,
    ),
    "pioneer_taxdeed": Site(respond=tax_sales.pioneer_taxdeed, address="/?page={page}"),
    "qpublic": Site(
        respond=qpublic.respond,
        address="/Application.aspx?AppID=1&LayerID=2&PageTypeID=4&PageID=3&KeyValue={parcel}",
        parcel_id=parcels.parcel_id,
        ids={"AppID": "1", "LayerID": "2", "PageID": "3"},
    ),
    "realauction": Site(
        respond=realauction.respond,
        address="/index.cfm?zaction=AUCTION&Zmethod=UPDATE&FNC=LOAD&AREA=W&PageDir=0&doR=1&bypassPage={page}",
    ),
    "socrata": Site(
        respond=socrata.respond,
        address="/resource/9rz4-mjek.json?$limit=1000&$offset=0&$order=:id",
        state="NY",
        parcel_id=socrata.parcel_id,
        ids={"dataset": "9rz4-mjek", "parcel_column": "bbl"},
    ),
    "vgsi": Site(
        respond=vgsi.respond,
        address="/inventednh/Parcel.aspx?Pid={parcel}",
        state="NH",
        parcel_id=vgsi.parcel_id,
        begins="/inventednh",
    ),
}


TASK_COLUMNS = ("platform", "state", "county", "parcel_id", "url", "auction_date")


def counties_toml(address: str, worlds: Mapping[str, World]) -> str:
    """In the form of the package's own counties."""
    return "\n".join(_entry(address, platform, world) for platform, world in worlds.items())


def sample_parcel_id(platform: str, world: World) -> str:
    """The first parcel's number, as the platform writes it; '' where it shows lists."""
    number_as = SITES[platform].parcel_id
    return number_as(1) if number_as is not None and world.size else ""


def task_rows(address: str, worlds: Mapping[str, World]) -> Iterator[tuple[str, ...]]:
    """A row for each parcel, or for each page of a list."""
    for platform, world in worlds.items():
        site = SITES[platform]
        start = (platform, site.state, world.county)
        if site.parcel_id is not None:
            yield from ((*start, site.parcel_id(number), "", "") for number in range(1, world.size + 1))
        elif platform == "realauction":
            yield *start, AUCTION_DAY.isoformat(), "", AUCTION_DAY.isoformat()
        else:
            count = page_count(world) if "{page}" in site.address else 1
            urls = (f"{address}/{platform}{site.address.replace('{page}', str(page))}" for page in range(1, count + 1))
            yield from ((*start, f"page-{page}", url, "") for page, url in enumerate(urls, 1))


def _entry(address: str, platform: str, world: World) -> str:
    site = SITES[platform]
    lines = ["[[county]]", f'platform = "{platform}"', f'state = "{site.state}"', f'county = "{world.county}"']
    lines.append(f'site = "{address}/{platform}{site.begins}"')
    platform_code = county_platform(platform)
    if site.parcel_id is not None and platform_code is not None and platform_code.fetch is fetch_by_url:
        lines.append(f'url = "{address}/{platform}{site.address}"')
    if site.ids:
        ids = ", ".join(f'{name} = "{value}"' for name, value in site.ids.items())
        lines.append(f"ids = {{ {ids} }}")
    return "\n".join([*lines, ""])
