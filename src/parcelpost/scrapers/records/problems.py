"""Collects what could not be read from a page. The record names all of it, so that null never means `none`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

from parcelpost.scrapers.records.record import Record, Valuation

T = TypeVar("T")
_MAX_COMPARED = 20
VALUES = "values"
"""Argument of `note`: the list of valuations and the fields taken from it."""
LAST_SALE = "last_sale"
"""Argument of `note`: the fields of the last sale, but not the list of sales."""
_LAST_SALE = ("last_sale_date", "last_sale_price", "last_sale_instrument", "last_sale_book_page")
_TAKEN_FROM = {
    "sales": _LAST_SALE,
    LAST_SALE: _LAST_SALE,
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
        *("classified_land_value", "classified_use_value", "assessment_cap_value"),
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


def drop_repeated(record: Record, problems: Problems) -> None:
    """Drops items that a page shows twice. Two different ones for one year or bill contradict each other."""
    record.owner_names = list(dict.fromkeys(record.owner_names))
    record.sales = _distinct(record.sales, lambda sale: sale.book_page or sale.clerk_number)
    record.liens = _distinct(record.liens, lambda lien: lien.certificate_number or lien.case_number)
    record.valuations = _distinct(record.valuations, lambda one: one.year if any(_amounts(one)) else None)
    seen = set()
    for one in record.valuations:
        key = (one.year, one.status, *(amount is None for amount in _amounts(one)))
        if one.year is not None and any(_amounts(one)) and key in seen:
            problems.note(VALUES, "the page has two different lists of values for one year")
        seen.add(key)
    if _contradict_each_other(record) or any(map(_contradict_each_other, record.valuations)):
        problems.note(VALUES, "the values contradict each other: a part is larger than the whole")
    shown: list[Record | Valuation] = [record, *record.valuations] if record.state == "FL" else []
    for each in shown:
        _drop_contradicting_taxable_values(each, problems)
    if len(_distinct(record.tax_bills, lambda bill: bill.bill_number)) < len(record.tax_bills):
        problems.note("tax_bills", "the page lists a bill twice")


def _contradict_each_other(one: Record | Valuation) -> bool:
    """Whether the land, or the assessed value, is worth more than the parcel, or more is taxed than assessed."""
    taxed = one.taxable_value + (one.exemption_value or 0) if one.taxable_value else None
    pairs = (one.land_value, one.market_value), (one.assessed_value, one.market_value), (taxed, one.assessed_value)
    return any(part is not None and whole and part > whole + 1 for part, whole in pairs)


def _drop_contradicting_taxable_values(one: Record | Valuation, problems: Problems) -> None:
    """In Florida schools tax what others tax, and what only others exempt or cap: if they tax less, one is wrong."""
    school, others = one.taxable_value_school, one.taxable_value
    if school is not None and others is not None and others > school + 1:
        one.taxable_value = one.taxable_value_school = None
        of = "valuations." if isinstance(one, Valuation) else ""
        for name in ("taxable_value", "taxable_value_school"):
            problems.note(f"{of}{name}", "schools tax less than others")


def _amounts(one: Valuation) -> tuple[Decimal | None, ...]:
    return one.market_value, one.assessed_value, one.taxable_value


def _distinct(items: list[T], identity: Callable[[T], object]) -> list[T]:
    """Without equal items of one identity; items without an identity stay."""
    known: dict[object, list[T]] = {}
    kept = []
    for item in items:
        same = known.setdefault(identity(item), [])
        if identity(item) is None or item not in same:
            kept.append(item)
            same += [item] if len(same) < _MAX_COMPARED else []
    return kept


def mark_unreadable(record: Record, fields: Iterable[str]) -> None:
    """Names the fields in the record, and those that are taken from them, which become null."""
    names = dict.fromkeys(fields)
    for name in list(names):
        for taken in taken_from(name):
            if taken != "valuations":
                setattr(record, taken, None)
            names[taken] = None
    names = {name: None for name in names if name not in (VALUES, LAST_SALE)}
    record.unreadable = sorted({*record.unreadable, *names})


def taken_from(field: str) -> Sequence[str]:
    """The fields that are taken from a list, or from one of its columns: `last_sale_price` from `sales.price`."""
    name, _, column = field.partition(".")
    taken = _TAKEN_FROM.get(VALUES if name == "valuations" and column else name, ())
    if not column or field == "sales.date":  # without dates, no sale is known to be the last
        return taken
    return [one for one in taken if f"_{one}".endswith(f"_{column}")]
