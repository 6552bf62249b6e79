"""Routes for exploring parcels and liens: search, facets, map and downloads of what is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct
from starlette.responses import Response

from parcelpost.export import Format
from parcelpost.export.columns import Column, Kind, clean_text
from parcelpost.export.tables import Row
from parcelpost.gateway.api.params import Dollars, dollars_to_cents, utc_time
from parcelpost.gateway.context import Context
from parcelpost.gateway.downloads import MEDIA_TYPES, TablePages, table_download, table_formats
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.ledger.search_groups import FACETS, MAX_FACET_VALUES
from parcelpost.gateway.ledger.search_schema import LIENS, PARCELS
from parcelpost.gateway.models import Cluster, ParcelKey, SearchFilter, SearchFreshness, SearchOrder, SearchRow, Text
from parcelpost.gateway.parcel_paths import parcel_path
from parcelpost.gateway.routes import Role, Route
from parcelpost.places import county_slug, state_or_text

MAX_ROWS = 500
_DOWNLOADED_AT_ONCE = 1_000
_FORMAT_NAMES = {
    Format.CSV: "CSV",
    Format.JSONL: "JSON lines",
    Format.EXCEL: "an Excel workbook",
    Format.PARQUET: "Parquet",
    Format.GEOJSON: "GeoJSON",
}
_MAX_VALUES = 100
"""Of one filter."""
_MAX_OFFSET = 100_000_000
_MAX_ACRES = 1e7
_MAX_QUERY = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ColumnKind(StrEnum):
    TEXT = "text"
    MONEY = "money"
    NUMBER = "number"
    DATE = "date"
    TIME = "time"
    FLAG = "flag"
    LINK = "link"


class ShownColumn(Struct, frozen=True):
    """A column of the table."""

    name: str
    title: str
    kind: ColumnKind
    sortable: bool = True


class _Field(NamedTuple):
    """A column, and where its value stands in the index."""

    shown: ShownColumn
    source: str
    exported: Kind


def _field(name: str, title: str, kind: ColumnKind, exported: Kind, source: str = "") -> _Field:
    return _Field(ShownColumn(name, title, kind), source or name, exported)


_NUMBER = _field("parcel_id", "Parcel", ColumnKind.LINK, Kind.TEXT)
_OWNER = _field("owner", "Owner", ColumnKind.TEXT, Kind.TEXT)
_PLACE = (
    _field("situs", "Address", ColumnKind.TEXT, Kind.TEXT),
    _field("county", "County", ColumnKind.TEXT, Kind.TEXT),
    _field("state", "State", ColumnKind.TEXT, Kind.TEXT),
)
_USE = _field("use", "Use", ColumnKind.TEXT, Kind.TEXT, "land_use")
_DELINQUENT = _field("delinquent", "Delinquent", ColumnKind.FLAG, Kind.FLAG)
_TAX_DUE = _field("tax_due", "Tax due", ColumnKind.MONEY, Kind.MONEY)
_VALUE = _field("market_value", "Market value", ColumnKind.MONEY, Kind.MONEY)
_ACRES = _field("acres", "Acres", ColumnKind.NUMBER, Kind.NUMBER)
_TAX_YEAR = _field("tax_year", "Tax year", ColumnKind.NUMBER, Kind.WHOLE)
_LAST = (
    _field("platform", "Platforms", ColumnKind.TEXT, Kind.TEXTS, "platforms"),
    _field("freshness", "Freshness", ColumnKind.TEXT, Kind.TEXT),
    _field("scraped_at", "Scraped", ColumnKind.TIME, Kind.MOMENT),
    _field("changed_at", "Changed", ColumnKind.TIME, Kind.MOMENT),
)

FIELDS: Mapping[str, Sequence[_Field]] = {
    PARCELS: (
        _NUMBER,
        _OWNER,
        *_PLACE,
        _USE,
        _DELINQUENT,
        _TAX_DUE,
        _field("liens", "Liens", ColumnKind.NUMBER, Kind.WHOLE),
        _field("lien_amount", "Lien amount", ColumnKind.MONEY, Kind.MONEY),
        _VALUE,
        _ACRES,
        _TAX_YEAR,
        _field("status", "Tax status", ColumnKind.TEXT, Kind.TEXT),
        _field("sold_on", "Last sale", ColumnKind.DATE, Kind.DATE),
        *_LAST,
    ),
    LIENS: (
        _field("certificate_number", "Certificate", ColumnKind.LINK, Kind.TEXT),
        _field("certificate_year", "Year", ColumnKind.NUMBER, Kind.WHOLE),
        _field("lien_amount", "Amount", ColumnKind.MONEY, Kind.MONEY),
        _field("status", "Status", ColumnKind.TEXT, Kind.TEXT),
        _field("sold_on", "Sold", ColumnKind.DATE, Kind.DATE),
        _field("holder_name", "Holder", ColumnKind.TEXT, Kind.TEXT),
        _NUMBER,
        _OWNER,
        *_PLACE,
        _TAX_YEAR,
        _USE,
        _DELINQUENT,
        _TAX_DUE,
        _VALUE,
        _ACRES,
        *_LAST,
    ),
}
_BY_NAME = {table: {field.shown.name: field for field in fields} for table, fields in FIELDS.items()}
_DEFAULT_ORDER = SearchOrder("changed_at", is_descending=True)

Values = list[Text]
_Range = tuple[int | float | str | None, int | float | str | None]


class SearchParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All conditions must match. Those that can be repeated match any of their values."""

    q: Annotated[
        str,
        Meta(
            max_length=_MAX_QUERY,
            description="Words in the owner, address, parcel number or certificate; the last one may be unfinished",
        ),
    ] = ""
    state: Annotated[Values, Meta(max_length=_MAX_VALUES)] = []
    county: Annotated[Values, Meta(max_length=_MAX_VALUES)] = []
    platform: Annotated[Values, Meta(max_length=_MAX_VALUES)] = []
    tax_year: Annotated[list[int], Meta(max_length=_MAX_VALUES)] = []
    use: Annotated[Values, Meta(max_length=_MAX_VALUES, description="Land use, as shown")] = []
    status: Annotated[
        Values, Meta(max_length=_MAX_VALUES, description="Tax status of a parcel, or status of a lien, as shown")
    ] = []
    freshness: Annotated[list[SearchFreshness], Meta(max_length=_MAX_VALUES)] = []
    delinquent: bool | None = None
    has_liens: bool | None = None
    min_tax_due: Dollars = None
    max_tax_due: Dollars = None
    min_market_value: Dollars = None
    max_market_value: Dollars = None
    min_lien_amount: Dollars = None
    max_lien_amount: Dollars = None
    min_acres: Annotated[float, Meta(ge=0, le=_MAX_ACRES)] | None = None
    max_acres: Annotated[float, Meta(ge=0, le=_MAX_ACRES)] | None = None
    scraped_from: str = ""
    scraped_to: str = ""
    sold_from: str = ""
    sold_to: str = ""
    bbox: Annotated[
        str, Meta(max_length=200, description="Only parcels in this area: west,south,east,north in degrees")
    ] = ""
    owner: Annotated[Text, Meta(description="The owner's name exactly as shown")] = ""
    changed_since: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] = ""

    def filter(self) -> SearchFilter:
        """Raises ApiError (422)."""
        return SearchFilter(
            text=self.q,
            states=tuple(state_or_text(state) for state in self.state),
            counties=tuple(county_slug(county) or county for county in self.county),
            platforms=tuple(self.platform),
            tax_years=tuple(self.tax_year),
            uses=tuple(self.use),
            statuses=tuple(self.status),
            freshness=tuple(value.value for value in self.freshness),
            delinquent=self.delinquent,
            has_liens=self.has_liens,
            owner=self.owner,
            ranges={name: given for name, given in self._ranges().items() if given != (None, None)},
            box=_box(self.bbox) if self.bbox else None,
        )

    def _ranges(self) -> dict[str, _Range]:
        ranges: dict[str, _Range] = {
            name: (
                dollars_to_cents(f"min_{name}", getattr(self, f"min_{name}")),
                dollars_to_cents(f"max_{name}", getattr(self, f"max_{name}")),
            )
            for name in ("tax_due", "market_value", "lien_amount")
        }
        since = utc_time("changed_since", self.changed_since) if self.changed_since else None
        return {
            **ranges,
            "acres": (self.min_acres, self.max_acres),
            "sold_on": (_day_text("sold_from", self.sold_from), _day_text("sold_to", self.sold_to)),
            "scraped_at": (_day_start("scraped_from", self.scraped_from), _day_end("scraped_to", self.scraped_to)),
            "changed_at": (None if since is None else _milliseconds(since), None),
        }


class PageParams(SearchParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sort: Annotated[Text, Meta(description="Column to sort by; by default, the latest changes come first")] = ""
    order: Literal["asc", "desc"] = "asc"
    offset: Annotated[int, Meta(ge=0, le=_MAX_OFFSET)] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 50


class FacetParams(SearchParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    facet: Annotated[str, Meta(description="Only this facet")] = ""
    find: Annotated[Text, Meta(description="Only values that contain this text")] = ""


class MapParams(SearchParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    zoom: Annotated[
        float,
        Meta(
            ge=0,
            le=22,
            description="Zoom level: at 0 the world is 256 pixels wide, each level doubles that; a cell has 32 pixels",
        ),
    ] = 6.0


class DownloadParams(SearchParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sort: Text = ""
    order: Literal["asc", "desc"] = "asc"
    columns: Annotated[
        str, Meta(max_length=2_000, description="Comma-separated names of columns; by default, all in their order")
    ] = ""


class SearchRows(Struct, frozen=True):
    """One page of a table."""

    rows: Sequence[Mapping[str, Any]]
    """Values by column. `address` is the path of the parcel's detail, `key` identifies the row, and `partial` says
    whether part of the page of a source was missing or unreadable.
    """
    total: int
    is_exact: bool
    """False: more match than `total`. With words, no more than 10,000 are counted."""
    offset: int
    columns: Sequence[ShownColumn]
    formats: Sequence[Format]
    """What this gateway can download it as."""


class FacetValue(Struct, frozen=True):
    value: str | int | bool
    count: int


class Facets(Struct, frozen=True):
    """Values with their counts, the most frequent first. The counts of a facet ignore its own selection."""

    facets: Mapping[str, Sequence[FacetValue]]
    total: int
    is_exact: bool
    """False: more match than were counted. There are at least so many of each value, of some at least 0."""
    max_values: int
    """A facet lists no more values than this; `find` finds others."""


class MapCluster(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parcels close to each other."""

    lon: float
    lat: float
    count: int
    delinquent: int
    lien_amount: Decimal
    bbox: tuple[float, float, float, float]
    """West, south, east, north."""
    parcel: Mapping[str, Any] | None = None
    """The parcel, if it is a single one."""


class MapReply(Struct, frozen=True):
    clusters: Sequence[MapCluster]
    total: int
    without_coordinates: int


class SearchApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/search/parcels", self.search_parcels, Role.READER),
            Route("GET", "/v1/search/liens", self.search_liens, Role.READER),
            Route("GET", "/v1/search/parcels/facets", self.parcel_facets, Role.READER),
            Route("GET", "/v1/search/liens/facets", self.lien_facets, Role.READER),
            Route("GET", "/v1/search/parcels/map", self.parcel_map, Role.READER),
            *(self._download_route(table, form) for table in FIELDS for form in MEDIA_TYPES),
        ]

    def _download_route(self, table: str, form: Format) -> Route:
        async def download(query: DownloadParams) -> Response:
            return await self._download(table, form, query)

        download.__name__ = f"search_{table}_{form}"
        download.__doc__ = f"Download all {table} that match as {_FORMAT_NAMES[form]}, as the table shows them."
        media_type = MEDIA_TYPES[form].partition(";")[0]
        errors = (501,) if form in (Format.EXCEL, Format.PARQUET) else ()
        path = f"/v1/search/{table}.{form}"
        return Route("GET", path, download, Role.READER, errors=errors, media_type=media_type)

    async def search_parcels(self, query: PageParams) -> SearchRows:
        """Search parcels, with a total and any page of the results."""
        return await self._page(PARCELS, query)

    async def search_liens(self, query: PageParams) -> SearchRows:
        """Search liens, with a total and any page of the results."""
        return await self._page(LIENS, query)

    async def parcel_facets(self, query: FacetParams) -> Facets:
        """Count the parcels that match by state, county, platform and so on, for a list of choices."""
        return await self._facets(PARCELS, query)

    async def lien_facets(self, query: FacetParams) -> Facets:
        """Count the liens that match by state, county, platform and so on, for a list of choices."""
        return await self._facets(LIENS, query)

    async def parcel_map(self, query: MapParams) -> MapReply:
        """Return the parcels that match as clusters for a map. A cluster of one has the parcel."""
        found = await self._ledger.search_map(query.filter(), int(query.zoom))
        return MapReply(list(map(_map_cluster, found.clusters)), found.total, found.without_coordinates)

    async def _page(self, table: str, query: PageParams) -> SearchRows:
        order = _order(table, query.sort, query.order)
        page = await self._ledger.search(table, query.filter(), order, query.offset, query.limit)
        shown = [field.shown for field in FIELDS[table]]
        return SearchRows(
            [_shown_row(table, row) for row in page.rows],
            page.total,
            page.is_exact,
            query.offset,
            shown,
            table_formats(),
        )

    async def _facets(self, table: str, query: FacetParams) -> Facets:
        if query.facet and query.facet not in FACETS:
            raise ApiError(422, f"facet: must be one of {', '.join(FACETS)}")
        counted = await self._ledger.search_facets(table, query.filter(), query.facet, query.find)
        facets = {name: [FacetValue(*value) for value in values] for name, values in counted.facets.items()}
        return Facets(facets, counted.total, counted.is_exact, MAX_FACET_VALUES)

    async def _download(self, table: str, form: Format, query: DownloadParams) -> Response:
        fields = _chosen_fields(table, query.columns)
        columns = [Column(field.shown.name, field.exported) for field in fields]
        order, wanted = _order(table, query.sort, query.order), query.filter()
        return await table_download(self._context, table, columns, self._pages(table, wanted, order, fields), form)

    async def _pages(
        self, table: str, wanted: SearchFilter, order: SearchOrder, fields: Sequence[_Field]
    ) -> TablePages:
        """Which rows there are, and their order, is settled at the beginning: none is repeated or left out because the
        ledger changes meanwhile.
        """
        numbers = await self._ledger.search_numbers(table, wanted, order)
        for start in range(0, len(numbers), _DOWNLOADED_AT_ONCE):
            rows = await self._ledger.search_rows(table, numbers[start : start + _DOWNLOADED_AT_ONCE])
            yield lambda page=rows: [_DownloadedRow(_cells(fields, row), _point(row)) for row in page]  # type: ignore[misc]


class _DownloadedRow(NamedTuple):
    values: Row
    point: tuple[float, float] | None


def _chosen_fields(table: str, names: str) -> Sequence[_Field]:
    if not names:
        return FIELDS[table]
    chosen = dict.fromkeys(name.strip() for name in names.split(","))
    unknown = [name for name in chosen if name not in _BY_NAME[table]]
    if unknown:
        raise ApiError(
            422, f"columns: there is no column {unknown[0]!r:.60}; the columns are {', '.join(_BY_NAME[table])}"
        )
    return [_BY_NAME[table][name] for name in chosen]


def _cells(fields: Sequence[_Field], row: SearchRow) -> Row:
    return tuple(_cell(field, row) for field in fields)


def _cell(field: _Field, row: SearchRow) -> Any:
    value = _shown_value(field, row)
    match field.exported:
        case _ if value is None:
            return None
        case Kind.TEXT | Kind.TEXTS:
            return clean_text(value)
        case Kind.DATE:
            return date.fromisoformat(value)
        case Kind.NUMBER:
            return Decimal(repr(value))
    return value


def _point(row: SearchRow) -> tuple[float, float] | None:
    return None if row.longitude is None or row.latitude is None else (row.longitude / 1e6, row.latitude / 1e6)


def _map_cluster(cluster: Cluster) -> MapCluster:
    west, south, east, north = (place / 1e6 for place in cluster.box)
    return MapCluster(
        lon=cluster.longitude / 1e6,
        lat=cluster.latitude / 1e6,
        count=cluster.count,
        delinquent=cluster.delinquent,
        lien_amount=Decimal(cluster.lien_amount).scaleb(-2),
        bbox=(west, south, east, north),
        parcel=None if cluster.parcel is None else _shown_row(PARCELS, cluster.parcel),
    )


def _order(table: str, sort: str, order: str) -> SearchOrder:
    if not sort:
        return _DEFAULT_ORDER
    field = _BY_NAME[table].get(sort)
    if field is None or not field.shown.sortable:
        raise ApiError(422, f"sort: there is no column {sort!r:.60}; the columns are {', '.join(_BY_NAME[table])}")
    return SearchOrder(field.source, order == "desc")


def _shown_row(table: str, row: SearchRow) -> dict[str, Any]:
    values = {field.shown.name: _shown_value(field, row) for field in FIELDS[table]}
    key = ParcelKey(row.state, row.county, row.parcel_norm)
    return {
        **values,
        "address": parcel_path(key, row.parcel_id),
        "key": row.number,
        "partial": bool(row.partial),
    }


def _shown_value(field: _Field, row: SearchRow) -> Any:
    value = getattr(row, field.source)
    if value is None:
        return None
    match field.shown.kind:
        case ColumnKind.MONEY:
            return Decimal(value).scaleb(-2)
        case ColumnKind.FLAG:
            return bool(value)
        case ColumnKind.TIME:
            return _EPOCH + timedelta(milliseconds=value)
    return ", ".join(value.split("\n")) if field.source == "platforms" else value


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _day(name: str, text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ApiError(422, f"{name}: must be a date, for example 2026-11-17") from None


def _day_text(name: str, text: str) -> str | None:
    day = _day(name, text)
    return None if day is None else day.isoformat()


def _day_start(name: str, text: str) -> int | None:
    day = _day(name, text)
    return None if day is None else _milliseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))


def _day_end(name: str, text: str) -> int | None:
    start = _day_start(name, text)
    return None if start is None else start + 86_400_000 - 1


def _box(text: str) -> tuple[int, int, int, int]:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError:
        west = south = east = north = float("nan")
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
        raise ApiError(422, "bbox: must be west,south,east,north in degrees, for example -82.9,29.9,-82.3,30.4")
    return round(west * 1e6), round(south * 1e6), round(east * 1e6), round(north * 1e6)
