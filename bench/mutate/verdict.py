"""What became of a mutated page, field by field.

A page is *silently wrong* if a value of its record differs from that of the page as it was, if it has a value that the
page never had, if a list of it is shorter, or if the page is taken for that of no parcel, and nothing says so. A value
that is missing is only missing: None means that the page does not say.

Exemptions, where a mutated page is what the site would show of another parcel:

- REMOVES_ROWS: a mutation takes whole rows out of a list, or empties them (`{}` is how sites say that there is
  nothing). The list may lack rows, and what is taken from that list, such as the last sale, may differ. Other values
  may not.
- ADDS_ROWS: a mutation adds rows. In a list of parcels or liens these are more of them, and values of another year of
  the same parcel are right.
- REORDERS: a mutation changes the order of rows. Lists are compared without their order, and what is taken from the
  first row, such as the year of the first building, may be that of another row.
- Rows without a page around them (govease, arcgis) that end between two rows: nothing says how many there are.
- A field map that was proposed for a table says so in `field_map`, and may read columns that another map does not.
- EMPTIES: a value that is put together from several cells or members, such as an address, may lack the emptied one.
  A masked value, an error or `Loading...` is not empty: there the page shows that it has something.
- Where the cell of a second owner is emptied, the page is that of a parcel with one owner.
- In a register of liens an empty redemption date means that the lien is outstanding: if that cell is emptied, the
  status may differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from parcelpost.model import Done, Encoded, NotFound, Outcome, Retry
from parcelpost.scrapers.records.record import COMPLETE

Record = Mapping[str, Any]

REMOVES_ROWS = frozenset(
    {
        "row_dropped",
        "row_emptied",
        "list_says_none",
        "item_dropped",
        "list_emptied",
        "object_emptied",
        "sheet_cut_and_ended",
    }
)
ADDS_ROWS = frozenset(
    {
        *("look_alike_first", "item_duplicated", "row_duplicated", "second_parcel_before", "second_parcel_after"),
        *("other_year_before", "other_year_after", "look_alike_before", "look_alike_after", "section_duplicated"),
        "look_alike_last",
    }
)
EMPTIES = frozenset({"cell_emptied", "value_null", "value_emptied", "value_not_available"})
REORDERS = frozenset({"rows_reversed", "list_reversed", "sections_shuffled"})
_FIRST_OF = frozenset({"year_built", "land_use_code", "land_use_desc"})
_UNREDEEMED = ("status", "redeemed", "outstanding")
_VALUES = (
    *("land_value", "building_value", "extra_feature_value", "market_value", "assessed_value", "exemptions"),
    *("classified_land_value", "classified_use_value", "assessment_cap_value"),
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
_ROWS = ("arcgis", "socrata", "lien_register")
OTHER_YEAR = 1977
"""That mutations use: no page has it."""
_LINES = ("owner_names", "mailing_lines", "exemptions", "delinquent_years")
_NONE_IF_EMPTY = ("exemptions", "delinquent_years")
"""An empty list of these says that there are none."""
_NOT_COMPARED = frozenset(
    {
        "scraped_at",
        "raw_html_hash",
        "source_url",
        "parser_version",
        "unreadable",
        "completeness",
        "owner_lines",
        "field_map",
    }
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
    emptied = mutation in EMPTIES
    is_bare = true[0]["platform"] in ("govease", "arcgis") and len(true) > 1
    may_shrink = mutation in REMOVES_ROWS or (is_bare and mutation.startswith(("cut_", "middle_dropped")))
    may_grow = mutation in ADDS_ROWS and (true[0]["record_kind"] == "lien" or true[0]["platform"] in _ROWS)
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
            list(
                _differences(
                    *(one, record, mutation),
                    may_shrink=may_shrink,
                    may_reorder=mutation in REORDERS,
                    is_emptied=emptied,
                )
            )
            for one in left
        ]
        if not differences:
            if may_grow:
                break
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
    true: Record, record: Record, mutation: str, *, may_shrink: bool, may_reorder: bool, is_emptied: bool
) -> Iterator[tuple[str, bool]]:
    """Field and whether it is silently wrong, for each field that is not the same."""
    adds_rows = mutation in ADDS_ROWS
    flags = {*(record.get("unreadable") or ()), *(_FIRST_OF if may_reorder else ())}
    is_proposed = record.get("field_map") == "proposed" != true.get("field_map")
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
            or (is_emptied and isinstance(after, str) and after in str(before))
            or (may_reorder and sorted(str(after).split(", ")) == sorted(str(before).split(", ")))
            or (name == "permit_count" and (may_shrink or adds_rows))
            or (may_shrink and isinstance(after, str) and after in str(before))
            or (is_proposed and before is None)
        ):
            yield name, False
        elif name in TAKEN_FROM and name not in _LINES:
            for part, is_wrong in _list_differences(
                name, before or [], after or [], flags, may_shrink=may_shrink, is_emptied=is_emptied
            ):
                yield f"{name}{part}", is_wrong
        elif name in _LINES:
            is_part = (may_shrink or (is_emptied and name == "owner_names")) and _is_part(after or [], before or [])
            is_part = is_part or (may_reorder and sorted(after or []) == sorted(before or []))
            says_none = after is not None and name in _NONE_IF_EMPTY
            yield name, (bool(after) or says_none) and not is_part
        else:
            yield name, after not in (None, "")


def _list_differences(
    of: str, before: Sequence[Record], after: Sequence[Record], flags: Set[str], *, may_shrink: bool, is_emptied: bool
) -> Iterator[tuple[str, bool]]:
    left = list(before)
    for item in after:
        if item.get("year") == OTHER_YEAR:
            continue
        differences = [[name for name, value in item.items() if value != one.get(name)] for one in left]
        ranked = sorted(range(len(left)), key=lambda at: _item_weight(differences[at], item))
        if not ranked:
            yield " has an invented row", True
            continue
        closest = left[ranked[0]]
        for name in differences[ranked[0]]:
            if f"{of}.{name}" in flags:
                continue
            if is_emptied and (name, closest.get(name), item[name]) == _UNREDEEMED:
                continue
            if is_emptied and isinstance(item[name], str) and item[name] in str(closest.get(name)):
                continue
            is_part = (
                (may_shrink or is_emptied)
                and isinstance(item[name], list)
                and _is_part(item[name], closest.get(name) or [])
            )
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
