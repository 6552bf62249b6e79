"""Collects what could not be read from a page. The record names all of it, so that null never means `none`."""

from __future__ import annotations

from collections.abc import Iterable

from parcelpost.scrapers.records.record import Record

VALUES = "values"
"""Argument of `note`: the list of valuations and the fields taken from it."""
_LAST_SALE = ("last_sale_date", "last_sale_price", "last_sale_instrument", "last_sale_book_page")
_TAKEN_FROM = {
    "sales": _LAST_SALE,
    "buildings": ("year_built", "building_area_sqft", "building_count", "bedrooms", "bathrooms"),
    VALUES: (
        *(
            "valuations",
            "value_year",
            "value_status",
            "land_value",
            "building_value",
            "extra_feature_value",
            "market_value",
        ),
        *("assessed_value", "exemptions", "exemption_value", "taxable_value", "taxable_value_school", "homestead"),
    ),
    "exemptions": ("homestead",),
    "tax_bills": ("tax_year", "tax_amount", "tax_due", "delinquent", "delinquent_years"),
}
"""List -> the fields that are taken from it: if a row of it is not readable, they are not known."""


class Problems:
    """Of one page. `unreadable`: field -> why; `missing`: sections that every such page has."""

    def __init__(self) -> None:
        self.unreadable: dict[str, str] = {}
        self.missing: list[str] = []

    def note(self, field: str, why: str) -> None:
        """The page shows the field, or should, but it could not be read."""
        self.unreadable.setdefault(field, why)

    def lacks(self, section: str) -> None:
        if section not in self.missing:
            self.missing.append(section)

    def __str__(self) -> str:
        return "; ".join(f"{field}: {why}" for field, why in self.unreadable.items())


def mark_unreadable(record: Record, fields: Iterable[str]) -> None:
    """Names the fields in the record, and those that are taken from them, which become null."""
    names = dict.fromkeys(fields)
    for name in list(names):
        for taken in _TAKEN_FROM.get(name, ()):
            if taken != "valuations":
                setattr(record, taken, None)
            names[taken] = None
    names.pop(VALUES, None)
    record.unreadable = sorted({*record.unreadable, *names})
