"""Field maps that an operator writes: which one is used, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.model import GiveUp, Json, Retry, Target
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.records.field_maps import (
    FieldMap,
    FieldMaps,
    build_field_map,
    load_field_maps,
    parse_field_map,
    shipped_field_maps,
)
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import Record

PARCEL = {"parcel_id": {"text": ["PIN"]}}
TARGET = Target(parcel_id="", state="WI", county="Rivers County")


def a_map(name: str = "mine", *has: str, **fields: Any) -> FieldMap:
    return build_field_map(name, {"has": list(has) or ["PIN"], "fields": {**PARCEL, **fields}}, "here")


def read(maps: FieldMaps, *rows: dict[str, Json]) -> list[Record]:
    found = maps.read("arcgis", TARGET, rows)
    assert isinstance(found, list), found
    return found


def test_those_that_come_with_the_program_can_be_read() -> None:
    assert {one.name for one in shipped_field_maps()} >= {
        "florida_nal",
        "metrogis",
        "nyc_lien_list",
        "nyc_valuation",
        "pacs",
    }
    assert all(one.has for one in shipped_field_maps())


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "needs [fields] with a parcel_id"),
    ({"fields": {"owner_names": {"texts": ["A"]}}}, "needs [fields] with a parcel_id"),
    ({"fields": 7}, "needs [fields] with a parcel_id"),
    ({"has": "PIN", "fields": PARCEL}, 'needs a list of columns in has, for example has = ["PIN", "OWNER"]'),
    ({"has": ["PIN", 7], "fields": PARCEL}, 'needs a list of columns in has, for example has = ["PIN", "OWNER"]'),
    ({"fields": PARCEL, "columns": {}}, "has the unknown key 'columns'; allowed keys: has, kind, fields, lien"),
    ({"fields": PARCEL, "kind": "auction"}, "needs kind to be parcel or lien, not 'auction'"),
    ({"fields": PARCEL, "kind": "lien"}, 'needs either both [lien] and kind = "lien", or neither'),
    ({"fields": PARCEL, "lien": {"status": {"text": ["S"]}}}, 'needs either both [lien] and kind = "lien", or neither'),
    (
        {"fields": {**PARCEL, "zoning": {"text": ["A"], "like": "["}}},
        "needs like of zoning to be a regular expression",
    ),
    (
        {"fields": {**PARCEL, "owner_name": {"text": ["A"]}}},
        "has 'owner_name', which is not a field of a record that can be mapped (did you mean owner_names?)",
    ),
    (
        {"fields": {**PARCEL, "parser_version": {"text": ["A"]}}},
        "has 'parser_version', which is not a field of a record that can be mapped",
    ),
    (
        {"fields": {**PARCEL, "sales": {"texts": ["A"]}}},
        "has 'sales', which is not a field of a record that can be mapped (did you mean state?)",
    ),
    (
        {"fields": {**PARCEL, "market_value": {"text": ["A"]}}},
        "converts market_value with 'text'; possible for this field: money, price, some, year, whole",
    ),
    (
        {"fields": {**PARCEL, "year_built": {"money": ["A"]}}},
        "converts year_built with 'money'; possible for this field: year, whole",
    ),
    (
        {"fields": {**PARCEL, "homestead": {"yes": ["A"]}}},
        "converts homestead with 'yes', which is not a conversion; possible for this field: flag",
    ),
    (
        {"fields": {**PARCEL, "homestead": ["A"]}},
        'needs homestead in the form homestead = { flag = ["COLUMN"] }',
    ),
    (
        {"fields": {**PARCEL, "zoning": {"text": "A"}}},
        'needs a list of columns for zoning, for example zoning = { text = ["COLUMN"] }',
    ),
    (
        {"fields": {**PARCEL, "zoning": {"text": ["--"]}}},
        'needs a list of columns for zoning, for example zoning = { text = ["COLUMN"] }',
    ),
    ({"fields": {"parcel_id": {"bbl": ["A"]}}}, "needs 3 columns for parcel_id, because of bbl"),
    (
        {"fields": PARCEL, "kind": "lien", "lien": {"face": {"money": ["F"]}}},
        "has 'face', which is not a field of a lien that can be mapped",
    ),
]


def test_what_is_wrong_with_a_map_is_said(subtests: pytest.Subtests) -> None:
    for given, problem in WRONG:
        with subtests.test(given=given, problem=problem):
            with pytest.raises(InvalidSettings) as error:
                build_field_map("mine", given, "parcelpost.toml:3")
            assert str(error.value).startswith(f"parcelpost.toml:3: the field map mine {problem}")
            assert "field_maps" in error.value.hint


def test_a_folders_files_are_maps_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "rivers.toml").write_text('has = ["PIN"]\n[fields]\nparcel_id = { text = ["PIN"] }\n')
    (tmp_path / "README").write_text("not a map")
    assert [(one.name, one.has) for one in load_field_maps(tmp_path)] == [("rivers", frozenset({"PIN"}))]
    (tmp_path / "bad.toml").write_text("has = [")
    with pytest.raises(InvalidSettings, match=r"bad\.toml: the field map bad is not valid TOML"):
        load_field_maps(tmp_path)
    (tmp_path / "bad.toml").write_bytes(b"has = ['\xff']")
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load_field_maps(tmp_path)
    with pytest.raises(InvalidSettings, match="no_such cannot be read: No such file"):
        load_field_maps(tmp_path / "no_such")


def test_deep_nesting_is_no_map() -> None:
    with pytest.raises(InvalidSettings, match="is not valid TOML"):
        parse_field_map("deep", "a = " + "[" * 100_000, "deep.toml")


def test_of_maps_that_fit_the_operators_own_goes_first_and_of_these_the_one_with_the_most_marks() -> None:
    row = {"PIN": "1", "OWNER_NAME": "ANN", "EMV_TOTAL": 5, "SALE_VALUE": 0}
    assert read(FieldMaps(), row)[0].market_value == 5
    few = a_map("few", zoning={"text": ["OWNER_NAME"]})
    assert read(FieldMaps([few]), row)[0].zoning == "ANN"
    more = a_map("more", "PIN", "EMV_TOTAL", zoning={"text": ["EMV_TOTAL"]})
    assert read(FieldMaps([few, more]), row)[0].zoning == "5"


def test_the_map_that_a_countys_entry_names_goes_before_all() -> None:
    def maps(county: str, platform: str = "arcgis") -> FieldMaps:
        entry = County(platform=platform, state="WI", county=county, site="https://x.org/0", field_map="named")
        named = build_field_map("named", {"fields": {"parcel_id": {"text": ["ACCOUNT"]}}}, "here")
        return FieldMaps([named, a_map()], Counties([entry]))

    row = {"PIN": "1", "ACCOUNT": "2"}
    assert read(maps("rivers"), row)[0].parcel_id == "2"
    assert read(maps("hills"), row)[0].parcel_id == "1"
    assert read(maps("rivers", "socrata"), row)[0].parcel_id == "1"
    needs = GiveUp("the field map named needs the column ACCOUNT, which is missing")
    assert maps("rivers").read("arcgis", TARGET, [{"PIN": "1"}]) == needs


def test_a_map_without_marks_is_used_only_by_name() -> None:
    unmarked = build_field_map("mine", {"fields": PARCEL}, "here")
    assert isinstance(FieldMaps([unmarked]).read("arcgis", TARGET, [{"PIN": "1"}]), GiveUp)


def test_a_column_that_the_first_row_leaves_out_is_seen_in_the_others() -> None:
    maps = FieldMaps([a_map("mine", "PIN", "OWNER")])
    assert len(read(maps, {"pin": "1"}, {"pin": "2", "owner": "ANN"})) == 2


def test_rows_that_name_no_parcel_may_come_better_later() -> None:
    assert FieldMaps([a_map()]).read("arcgis", TARGET, [{"PIN": None}]) == Retry("the rows have no parcel number")


def test_two_of_one_name_and_an_entry_that_names_none_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="there are two field maps named mine"):
        FieldMaps([a_map(), a_map()])
    entry = County(platform="socrata", state="WI", county="x", site="https://x.org", field_map="no_such")
    with pytest.raises(InvalidSettings, match="socrata WI/x names the field map 'no_such'") as error:
        FieldMaps([a_map()], Counties([entry]))
    assert {"florida_nal,", "metrogis,", "mine,"} <= set(error.value.hint.split())


def test_one_of_the_operators_own_may_replace_the_programs() -> None:
    own = build_field_map("metrogis", {"fields": {"parcel_id": {"text": ["ACCOUNT"]}}}, "here")
    entry = County(platform="arcgis", state="WI", county="rivers", site="https://x.org/0", field_map="metrogis")
    assert read(FieldMaps([own], Counties([entry])), {"ACCOUNT": "3"})[0].parcel_id == "3"


def test_a_change_of_a_map_or_of_its_use_is_seen_by_the_digest() -> None:
    entry = County(platform="arcgis", state="WI", county="x", site="https://x.org/0", field_map="mine")
    digests = {
        FieldMaps().digest,
        FieldMaps([a_map()]).digest,
        FieldMaps([a_map(zoning={"text": ["Z"]})]).digest,
        FieldMaps([a_map()], Counties([entry])).digest,
    }
    assert len(digests) == 4
    assert FieldMaps([a_map("m", "A", "B", "C")]).digest == FieldMaps([a_map("m", "C", "A", "B")]).digest


def test_a_text_that_is_not_like_its_column_is_null_and_named() -> None:
    maps = FieldMaps([a_map(land_use_code={"text": ["CLASS"], "like": "[A-Z][0-9]"})])
    found = read(maps, {"PIN": "1", "CLASS": "Y4"}, {"PIN": "2", "CLASS": "401"}, {"PIN": "3", "CLASS": None})
    assert [(one.land_use_code, one.unreadable) for one in found] == [("Y4", []), (None, ["land_use_code"]), (None, [])]


def test_a_value_of_another_kind_than_those_of_the_other_rows_is_null_and_named() -> None:
    maps = FieldMaps([a_map(situs_zip={"zip": ["ZIP"]}, owner_names={"texts": ["OWNER"]})])
    rows: list[dict[str, Json]] = [{"PIN": str(at), "ZIP": "54321", "OWNER": "BLOOM"} for at in range(9)]
    found = read(maps, *rows, {"PIN": "9", "ZIP": "BLOOM", "OWNER": "CARVER"})
    assert [one.unreadable for one in found] == [[]] * 9 + [["situs_zip"]]
    problems = Problems()
    shifted: dict[str, Json] = {"PIN": "9", "ZIP": "BLOOM", "OWNER": "54321"}
    left = maps.read("arcgis", TARGET, [*rows, shifted], problems=problems)
    assert isinstance(left, list)
    assert len(left) == 9
    assert problems.missing == ["1 rows, whose values do not fit their columns"]
