"""What became of a mutated page, field by field.

A page is *silently wrong* if a value of its record differs from that of the page as it was, if it has a value that the
page never had, if a list of it is shorter, or if the page is taken for that of no parcel, and nothing says so. A value
that is missing is only missing: None means that the page does not say.

Exemptions, where a mutated page is what the site would show of another parcel:

- REMOVES_ROWS: a mutation takes whole rows out of a list, or empties them (`{}` is how sites say that there is
  nothing). The list may lack rows, and what is taken from that list, such as the last sale, may differ. Other values
  may not.
- REORDERS: a mutation changes the order of rows. Lists are compared without their order, and what is taken from the
  first row, such as the year of the first building, may be that of another row.
- Rows without a page around them (govease) that end between two rows: nothing says how many there are.
- Where the cell of a second owner is emptied, the page is that of a parcel with one owner.
- In a register of liens an empty redemption date means that the lien is outstanding: if that cell is emptied, the
  status may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parcelpost.model import Done, Encoded, NotFound, Outcome, Retry
from parcelpost.scrapers.records.record import COMPLETE

Record = Mapping[str, Any]

REMOVES_ROWS = frozenset(
    {
        "row_dropped",
        "row_emptied",
        "item_dropped",
        "item_null",
        "item_emptied",
        "list_emptied",
        "object_emptied",
        "sheet_cut_and_ended",
    }
)
REORDERS = frozenset({"rows_reversed", "list_reversed", "sections_shuffled"})
_FIRST_OF = frozenset({"year_built", "land_use_code", "land_use_desc"})
_UNREDEEMED = ("status", "redeemed", "outstanding")
_VALUES = (
    *("land_value", "building_value", "extra_feature_value", "market_value", "assessed_value", "exemptions"),
    *("exemption_value", "taxable_value", "taxable_value_school", "value_year", "value_status", "homestead"),
)
TAKEN_FROM = {
    "sales": ("last_sale_date", "last_sale_price", "last_sale_instrument", "last_sale_book_page"),
    "buildings": ("year_built", "building_area_sqft", "building_count", "bedrooms", "bathrooms"),
    "valuations": _VALUES,
    "exemptions": ("homestead",),
    "tax_bills": ("tax_year", "tax_amount", "tax_due", "delinquent", "delinquent_years", *_VALUES),
    "liens": (),
}
"""List -> the fields that a platform takes from it."""
_LINES = ("owner_names", "mailing_lines", "exemptions", "delinquent_years")
_NOT_COMPARED = frozenset(
    {"scraped_at", "raw_html_hash", "source_url", "parser_version", "unreadable", "completeness", "owner_lines"}
)
SAME, NULLS, FLAGGED, WRONG = "same", "nulls", "flagged", "silently wrong"


def records_of(outcome: Outcome) -> list[Record]:
    """The records, also those of an incomplete page."""
    if isinstance(outcome, Retry) and outcome.partial is not None:
        outcome = outcome.partial
    if not isinstance(outcome, Done) or isinstance(outcome.data, Encoded):
        return []
    return [outcome.data, *outcome.additional_records]


def judge(true: Sequence[Record], outcome: Outcome, mutation: str) -> tuple[str, list[str]]:
    """Returns the verdict on a page, and the fields that are wrong."""
    emptied = mutation == "cell_emptied"
    may_shrink = mutation in REMOVES_ROWS or (true[0]["platform"] == "govease" and mutation.startswith("cut_"))
    records = records_of(outcome)
    if not records:
        is_wrong = isinstance(outcome, NotFound) and not may_shrink
        return (WRONG, ["not found"]) if is_wrong else (FLAGGED, [])
    if records[0]["completeness"] not in (COMPLETE, true[0]["completeness"]):
        return FLAGGED, []
    wrong: list[str] = []
    nulls = False
    left, records = _without_equals(true, records)
    for record in records:
        differences = [
            list(_differences(one, record, may_shrink=may_shrink, may_reorder=mutation in REORDERS, is_emptied=emptied))
            for one in left
        ]
        if not differences:
            return WRONG, ["an invented record"]
        best = min(range(len(left)), key=lambda at: _weight(differences[at]))
        wrong += [name for name, is_wrong in differences[best] if is_wrong]
        nulls = nulls or bool(differences[best])
        del left[best]
    if left and not may_shrink:
        wrong.append("records")
    flags = {name for record in records_of(outcome) for name in record.get("unreadable") or ()}
    known = {name for record in true for name in record.get("unreadable") or ()}
    if wrong:
        return WRONG, wrong
    return (FLAGGED if flags - known else NULLS if nulls or left else SAME), []


def _without_equals(true: Sequence[Record], records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Both without the records that are in both: a register has hundreds."""
    equal = Counter(map(_text, true)) & Counter(map(_text, records))
    rest: list[list[Record]] = []
    for side in (true, records):
        matched = Counter(equal)
        left = []
        for record in side:
            if matched[_text(record)] > 0:
                matched[_text(record)] -= 1
            else:
                left.append(record)
        rest.append(left)
    return rest[0], rest[1]


def _text(record: Record) -> str:
    return repr(sorted((name, repr(value)) for name, value in record.items() if name not in _NOT_COMPARED))


def _weight(differences: Sequence[tuple[str, bool]]) -> tuple[int, int]:
    return sum(is_wrong for _, is_wrong in differences), len(differences)


def _differences(
    true: Record, record: Record, *, may_shrink: bool, may_reorder: bool, is_emptied: bool
) -> Iterator[tuple[str, bool]]:
    """Field and whether it is silently wrong, for each field that is not the same."""
    flags = {*(record.get("unreadable") or ()), *(_FIRST_OF if may_reorder else ())}
    shorter = [name for name in TAKEN_FROM if len(record.get(name) or ()) < len(true.get(name) or ())]
    excused = {field for name in shorter if may_shrink for field in (name, *TAKEN_FROM[name])}
    for name in true.keys() | record.keys():
        before, after = true.get(name), record.get(name)
        if name in _NOT_COMPARED or before == after:
            continue
        if (
            name in flags
            or (name in excused and name not in TAKEN_FROM)
            or (is_emptied and (name, before, after) == _UNREDEEMED)
        ):
            yield name, False
        elif name in TAKEN_FROM and name not in _LINES:
            for part, is_wrong in _list_differences(
                before or [], after or [], may_shrink=may_shrink, is_emptied=is_emptied
            ):
                yield f"{name}{part}", is_wrong
        elif name in _LINES:
            is_part = (may_shrink or (is_emptied and name == "owner_names")) and _is_part(after or [], before or [])
            is_part = is_part or (may_reorder and sorted(after or []) == sorted(before or []))
            yield name, bool(after) and not is_part
        else:
            yield name, after not in (None, "")


def _list_differences(
    before: Sequence[Record], after: Sequence[Record], *, may_shrink: bool, is_emptied: bool
) -> Iterator[tuple[str, bool]]:
    left = list(before)
    for item in after:
        differences = [[name for name, value in item.items() if value != one.get(name)] for one in left]
        ranked = sorted(range(len(left)), key=lambda at: _item_weight(differences[at], item))
        if not ranked:
            yield " has an invented row", True
            continue
        closest = left[ranked[0]]
        for name in differences[ranked[0]]:
            if is_emptied and (name, closest.get(name), item[name]) == _UNREDEEMED:
                continue
            is_part = may_shrink and isinstance(item[name], list) and _is_part(item[name], closest.get(name) or [])
            is_part = is_part or (
                isinstance(item[name], list) and sorted(item[name]) == sorted(closest.get(name) or [])
            )
            yield f".{name}", item[name] is not None and not is_part
        del left[ranked[0]]
    if left:
        yield " lacks rows", not may_shrink


def _item_weight(differences: Sequence[str], item: Record) -> tuple[int, int]:
    return sum(item[name] is not None for name in differences), len(differences)


def _is_part(after: Sequence[Any], before: Sequence[Any]) -> bool:
    rest = iter(before)
    return all(one in rest for one in after)
