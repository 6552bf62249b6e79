"""Which columns are found by themselves, and what becomes of the others."""

from __future__ import annotations

import pytest

from parcelpost.cli.importer import task_rows
from parcelpost.cli.importer.task_rows import Columns, parse_map
from parcelpost.errors import InvalidInput
from parcelpost.model import Priority


def test_names_that_clearly_mean_the_parcel(subtests: pytest.Subtests) -> None:
    for column in [
        "parcel_id",
        "Parcel ID",
        "PARCEL_NO",
        "parcel",
        "Parcel Number",
        "parcelId",
        "PIN",
        "APN",
        "Account",
        "Account No.",
        "Folio",
        "FOLIO_NUMBER",
        "acct#",
    ]:
        with subtests.test(column=column):
            plan = Columns({}, {"platform": "echo"}).checked_plan((column, "Owner"), "it")
            assert plan.fields == {"parcel_id": column}
            assert plan.extra == {"Owner": "Owner"}


@pytest.mark.parametrize("column", ["Owner State", "Tax Key", "pinned", "Parcel Address", "Status", "parcels"])
def test_names_that_do_not(column: str) -> None:
    assert Columns({}, {}).plan((column,)).fields == {}


def test_of_two_that_could_be_meant_the_clearer_wins_and_the_other_is_kept() -> None:
    plan = Columns({}, {}).plan(("Account", "parcel_id", "platform", "id", "Task ID"))
    assert plan.fields == {"parcel_id": "parcel_id", "platform": "platform", "task_id": "Task ID"}
    assert plan.extra == {"Account": "Account", "id": "id"}


def test_a_mapped_column_wins_and_the_one_passed_over_keeps_out_of_the_fields_way() -> None:
    task = task_rows.task_from_row(
        {"parcel_id": "wrong", "Tax Key": "9", "platform": "echo"}, Columns({"parcel_id": "Tax Key"}, {})
    )
    assert task.target.parcel_id == "9"
    assert task.target.extra == {"column parcel_id": "wrong"}


def test_a_map_may_repeat_and_hold_any_column_name() -> None:
    assert parse_map(["parcel_id=a=b", "url= Link "]) == {"parcel_id": "a=b", "url": " Link "}


@pytest.mark.parametrize("pair", ["", "parcel_id", "parcel_id=", "=x", "owner=Owner"])
def test_a_map_of_another_form_is_refused(pair: str) -> None:
    with pytest.raises(InvalidInput, match="is not FIELD=COLUMN"):
        parse_map([pair])


@pytest.mark.parametrize(
    ("text", "priority"),
    [("urgent", Priority.URGENT), (" HIGH ", Priority.HIGH), ("3", Priority.NORMAL), ("low", Priority.BATCH), (4, 4)],
)
def test_priorities_by_name_and_number(text: str | int, priority: Priority) -> None:
    row = {"platform": "echo", "pin": "1", "priority": text, "max retries": "5"}
    task = task_rows.task_from_row(row, Columns({}, {}))
    assert (task.priority, task.max_retries) == (priority, 5)


@pytest.mark.parametrize("value", [True, 1.5, [1], {"a": 1}, "1\t2", "1\u200b2"])
def test_a_parcel_must_be_text_or_a_whole_number(value: object) -> None:
    with pytest.raises(InvalidInput, match="parcel_id"):
        task_rows.task_from_row({"platform": "echo", "pin": value}, Columns({}, {}))


def test_a_spreadsheets_ways_with_numbers_are_known() -> None:
    columns = Columns({}, {"platform": "echo"})
    assert task_rows.task_from_row({"pin": '="00123"'}, columns).target.parcel_id == "00123"
    assert task_rows.task_from_row({"pin": "\u00a0 12\u00a0A "}, columns).target.parcel_id == "12 A"
    with pytest.raises(InvalidInput, match="rounded by a spreadsheet"):
        task_rows.task_from_row({"pin": "1.23457E+11"}, columns)
