"""Texts that pages of parcels use as labels and as headings: where one stands in a value's place, there is no value."""

from __future__ import annotations

_NEVER_VALUES = frozenset(
    {
        *("account", "account #", "account number", "acct", "acct#", "acreage", "acres", "actual year built"),
        *("address", "alternate id", "amount", "appraised value", "area", "assessed value", "assessment year"),
        *("bathrooms", "bedrooms", "bill #", "bill number", "book & page", "book/page", "building value", "co-owner"),
        *("date", "deed acres", "deed book", "deed date", "deed type", "desc", "description"),
        *("effective year", "exempt value", "exemptions", "folio", "folio number", "grantee", "grantor"),
        *("gross acres", "gross living area", "heated area", "improvement value", "instrument"),
        *("instrument type", "just value", "land area", "land use", "land use code", "land value", "legal"),
        *("legal description", "legal reference", "living area", "location", "location address", "mail to"),
        *("mailing address", "map/parcel", "market value", "mblu", "name", "neighborhood", "notes"),
        *("number of units", "or book/page", "owner", "owner address", "owner information", "owner name"),
        *("owner name & address", "owner's", "owners", "parcel", "parcel #", "parcel id", "parcel id number"),
        *("parcel no", "parcel number", "physical address", "pid", "pin", "price", "prop id", "property address"),
        *("property class", "property id", "property type", "property use", "property use code", "qualification"),
        *("qualified", "remarks", "s/t/r", "sale amount", "sale date", "sale price", "sales history", "sec/twp/rng"),
        *("section", "section/township/range", "site", "site address", "site location", "situs", "situs address"),
        *("square feet", "subdivision", "tax amount", "tax class", "tax code", "tax district", "tax id", "tax year"),
        *("taxable value", "taxes", "total acres", "total assessed value", "total market value", "total value"),
        *("unit of measure", "use", "use code", "use code description", "value", "vacant/improved", "year"),
        *("year blt", "year built", "zip", "zip code", "zone", "zoning", "zoning code"),
    }
)
_SELDOM_VALUES = frozenset(
    {
        *("building", "buildings", "city", "class", "code", "country", "county", "improvement", "improvements"),
        *("land", "range", "state", "total", "township", "type", "units"),
    }
)
"""A district may be that of the city, and a use that of land: beside each other they are headings."""


def is_label(text: str, beside: str) -> bool:
    """Whether what stands beside that label is another one. Both are written as labels are compared."""
    return text in _NEVER_VALUES or (text in _SELDOM_VALUES and beside in _SELDOM_VALUES)
