"""One module per simulated platform: its site's responses and parcel numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from parcelpost.simulator import parcels
from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import (
    arcgis,
    broward_bcpa,
    collier_pa,
    deedauction,
    govease,
    grizzly_gis,
    leepa,
    lien_register,
    miamidade_pa,
    mygov_due,
    pioneer_taxdeed,
    qpublic,
    realauction,
    socrata,
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
    "deedauction": Site(respond=deedauction.respond, address="/auction/110?page={page}"),
    "govease": Site(respond=govease.respond, address="/fl/flinvented/1348/?page={page}"),
    "grizzly_gis": Site(respond=grizzly_gis.respond, address="/gis/?pin={parcel}", parcel_id=parcels.parcel_id),
    "leepa": Site(
        respond=leepa.respond, address="/Display/DisplayParcel.aspx?STRAP={parcel}", parcel_id=leepa.parcel_id
    ),
    "lien_register": Site(respond=lien_register.respond, address="/tax_liens.csv", state="CO"),
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
    "pioneer_taxdeed": Site(respond=pioneer_taxdeed.respond, address="/?page={page}"),
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
