"""The columns are those of the record, and have its types."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from parcelpost.export import columns
from parcelpost.export.columns import Column, Kind
from parcelpost.export.tables import TABLES
from parcelpost.scrapers.records.record import Building, Lien, Record, Sale, TaxBill, Valuation
from tests import record_page

DOCS = Path(__file__).parents[2] / "docs"
OF_THE_KEY = {"parcel_id", "state", "county", "platform", "scraped_at"}
NUMBERS = {Kind.NUMBER, Kind.MONEY}
TEXTS = {Kind.TEXT, Kind.DATE}
KINDS: dict[Any, set[Kind]] = {
    Decimal | None: NUMBERS,
    int | None: {Kind.WHOLE},
    bool | None: {Kind.FLAG},
    str | None: TEXTS,
    str: TEXTS,
    list[str]: {Kind.TEXTS},
    list[str] | None: {Kind.TEXTS},
    list[int] | None: {Kind.TEXTS},
}


@pytest.mark.parametrize(
    ("struct", "own"),
    [
        (Lien, columns.LIEN_COLUMNS),
        (Sale, columns.SALE_COLUMNS),
        (TaxBill, columns.TAX_BILL_COLUMNS),
        (Valuation, columns.VALUATION_COLUMNS),
        (Building, columns.BUILDING_COLUMNS),
        (Record, columns.PARCEL_COLUMNS),
    ],
)
def test_every_field_of_a_record_has_a_column_of_its_type(struct: type, own: tuple[Column, ...]) -> None:
    hints = get_type_hints(struct)
    expected = set(hints) - set(TABLES) - (OF_THE_KEY if struct is Record else set())
    assert {column.name for column in own} == expected
    assert [column for column in own if column.kind not in KINDS[hints[column.name]]] == []
    assert [
        column for column in own if column.name.endswith(("_date", "_deadline")) and column.kind is not Kind.DATE
    ] == []


def test_every_list_of_a_record_is_a_table() -> None:
    lists = {
        name for name, hint in get_type_hints(Record).items() if name not in {c.name for c in columns.PARCEL_COLUMNS}
    }
    assert lists - OF_THE_KEY == set(TABLES) - {"parcels"}


@pytest.mark.parametrize("name", TABLES)
def test_every_table_begins_with_the_parcel_and_no_name_comes_twice(name: str) -> None:
    names = [column.name for column in TABLES[name].columns]
    assert names[:4] == ["platform", "state", "county", "parcel_id"]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_documented_with_its_kind_and_no_other(name: str) -> None:
    fields = {(field.name, field.kind) for field in record_page.fields() if field.table == name}
    own = re.findall(
        r"^\| `(\w+)` \| ([a-z ]+) \| (\w+) \|", (DOCS / "export.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    groups = {"all", "parcels" if name == "parcels" else "lists"}
    documented = fields | {(column, kind) for column, kind, tables in own if tables in groups}
    assert documented == {(column.name, str(column.kind)) for column in TABLES[name].columns}
