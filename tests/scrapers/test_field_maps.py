"""Rows of layers and tables: whose columns they are, how these are written, and what stands for nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from parcelpost.model import Blocked, Done, GiveUp, NotFound, Retry
from tests.scrapers.reading import outcome

NAL = {"PARCEL_ID": "01-2", "OWN_NAME": "BLOOM CLARA", "JV": 300, "DOR_UC": "001", "AV_NSD": 200, "TV_NSD": 150}
METRO = {"PIN": "09", "OWNER_NAME": "BLOOM CLARA", "EMV_TOTAL": 300, "SALE_VALUE": 0, "SALE_DATE": None}
PACS = {"PROP_ID": 7, "file_as_name": "BLOOM CLARA", "legal_desc": "LOT 1", "market": 300, "PIN": "007"}


def answer(*rows: dict[str, Any], under: str = "attributes") -> dict[str, Any]:
    return {"features": [{under: row} for row in rows]}


def records(platform: str, page: str | dict[str, Any]) -> list[dict[str, Any]]:
    found = outcome(platform, page)
    assert isinstance(found, Done), found
    return [dict(one) for one in (found.data, *found.additional_records)]  # type: ignore[arg-type]


@pytest.mark.parametrize("spelled", [str.lower, str.title, lambda name: f"GIS.SDE.Parcels.{name}"])
@pytest.mark.parametrize("row", [NAL, METRO, PACS])
def test_columns_are_known_in_any_case_and_with_the_name_of_their_table(row: dict[str, Any], spelled: Any) -> None:
    (found,) = records("arcgis", answer({spelled(name): value for name, value in row.items()}))
    assert (found["owner_names"], found["market_value"]) == (["BLOOM CLARA"], 300)


def test_joined_tables_that_contradict_each_other_say_nothing() -> None:
    row = {f"T1.{name}": value for name, value in NAL.items()} | {
        "T2.PARCEL_ID": "01-2",
        "T2.JV": 999,
        "T2.AV_NSD": None,
    }
    (found,) = records("arcgis", answer(row))
    assert (found["parcel_id"], found["market_value"], found["assessed_value"]) == ("01-2", None, 200)


def test_geojson_has_its_columns_under_another_name() -> None:
    (found,) = records("arcgis", answer(NAL, under="properties"))
    assert found["parcel_id"] == "01-2"


def test_columns_that_are_missing_where_they_are_empty_are_found_in_other_rows() -> None:
    full = {"parid": "1000010010", "curmkttot": "300", "bldg_class": "A1", "owner": "BLOOM CLARA"}
    first = {name: value for name, value in full.items() if name != "curmkttot"}
    found = records("socrata", msgspec.json.encode([first, full]).decode())
    assert [one["market_value"] for one in found] == [None, 300]


@pytest.mark.parametrize(
    ("given", "day"),
    [
        (623203200000, "1989-10-01"),
        (20140512, "2014-05-12"),
        ("20140512", "2014-05-12"),
        (-2209161600000, None),
        (-2208988800000, None),
        (0, None),
        (None, None),
        (" ", None),
        (1e300, None),
    ],
)
def test_a_day_is_a_moment_or_eight_digits_and_none_where_databases_begin(given: Any, day: str | None) -> None:
    (found,) = records("arcgis", answer({**METRO, "SALE_DATE": given}))
    assert found["last_sale_date"] == day


@pytest.mark.parametrize("given", [1e300, -1e300, True, "N/A", " ", None, [], {}, "12-34"])
def test_what_is_no_amount_is_none(given: Any) -> None:
    (found,) = records("arcgis", answer({**METRO, "EMV_TOTAL": given}))
    assert found["market_value"] is None


def test_zeros_stand_for_nothing_where_nothing_is_free_or_of_no_size() -> None:
    (found,) = records("arcgis", answer({**METRO, "EMV_TOTAL": 0, "YEAR_BUILT": 0, "FIN_SQ_FT": 0, "ACRES_DEED": 0}))
    assert (found["market_value"], found["year_built"], found["building_area_sqft"]) == (0, None, None)
    assert (found["land_area_acres"], found["last_sale_price"]) == (None, None)


def test_a_number_in_the_place_of_another_part_is_no_address() -> None:
    columns = ("BLDG_NUM", "PREFIX_DIR", "PREFIXTYPE", "STREETNAME", "STREETTYPE", "UNIT_INFO")
    row = {**METRO, "SUFFIX_DIR": ""}
    for parts, address in (
        (("9", "", "", "ELM", "ST", ""), "9 ELM ST"),
        (("ELM", "", "", "9", "", ""), None),
        (("9", "", "", "ELM", "1300", ""), None),
        (("9", "1300", "", "ELM", "ST", ""), None),
        (("", "", "County Road", "10", "", ""), "County Road 10"),
        (("", "", "FM", "1637", "", ""), "FM 1637"),
        (("", "", "", "US HWY", "27", ""), "US HWY 27"),
        (("TBD", "", "US HWY", "27", "", ""), "TBD US HWY 27"),
        (("", "", "", "OCEAN", "DR", "101"), "OCEAN DR 101"),
        (("", "", "", "OAK", "LN", "4"), "OAK LN 4"),
        (("ONE", "", "", "PARK", "AVE", "5"), "ONE PARK AVE 5"),
        (("", "", "", "Lake Drive Unit", "", "5"), "Lake Drive Unit 5"),
    ):
        (found,) = records("arcgis", answer({**row, **dict(zip(columns, parts, strict=True))}))
        assert found["situs_address"] == address
        assert ("situs_address" in found["unreadable"]) is (address is None)


def test_an_address_in_one_line_has_no_city_of_its_own() -> None:
    row = {"PARCELID": "1", "OWNERNME1": "BLOOM CLARA", "SITEADRESS": "9 ELM ST", "CNTASSDVALUE": 200}
    (found,) = records("arcgis", answer({**row, "PSTLADRESS": "12 OAK ST MADISON WI 53703", "ESTFMKVALUE": 210}))
    assert (found["mailing_lines"], found["mailing_city"]) == (["12 OAK ST MADISON WI 53703"], None)
    assert (found["assessed_value"], found["market_value"]) == (200, 210)


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        (
            {"PARCELID": "1", "OWNERNME1": "BLOOM", "OWNERNME2": "MOSS", "SITEADDRESS": "9 ELM", "CNTASSDVAL": 5},
            {"owner_names": ["BLOOM", "MOSS"], "situs_address": "9 ELM", "assessed_value": 5, "market_value": None},
        ),
        (
            {
                "PROP_ID": "7-1",
                "LOC_ID": "F_1",
                "OWNER1": "BLOOM",
                "TOTAL_VAL": 5,
                "LS_DATE": "20140512",
                "OWN_ZIP": "2139",
            },
            {"parcel_id": "7-1", "assessed_value": 5, "last_sale_date": "2014-05-12", "mailing_zip": "02139"},
        ),
        (
            {
                "COUNTY_PIN": "09",
                "OWNER_NAME": "BLOOM",
                "EMV_TOTAL": 5,
                "CTU_NAME": "AFTON",
                "ANUMBER": 9,
                "ST_NAME": "ELM",
            },
            {"parcel_id": "09", "situs_address": "9 ELM", "market_value": 5, "situs_city": None},
        ),
        (
            {"PRINT_KEY": "1.-2-3", "SWIS": "010100", "PRIMARY_OWNER": "BLOOM", "TOTAL_AV": 5, "FULL_MARKET_VAL": 9},
            {"parcel_id": "1.-2-3", "assessed_value": 5, "market_value": 9},
        ),
        (
            {
                "parno": "77",
                "ownname": "BLOOM",
                "siteadd": "9 ELM",
                "parval": 9,
                "landval": 4,
                "improvval": 5,
                "mzip": 27601,
            },
            {"parcel_id": "77", "land_value": 4, "building_value": 5, "market_value": 9, "mailing_zip": "27601"},
        ),
    ],
)
def test_layers_that_states_publish(row: dict[str, Any], facts: dict[str, Any]) -> None:
    (found,) = records("arcgis", answer(row))
    assert {name: found[name] for name in facts} == facts


def test_what_is_no_answer_is_told_apart() -> None:
    assert isinstance(outcome("arcgis", answer()), NotFound)
    assert isinstance(outcome("arcgis", {"features": [{"geometry": {}}]}), Retry)
    assert isinstance(outcome("arcgis", {"error": {"code": 499, "message": "Token Required"}}), Blocked)
    assert isinstance(outcome("arcgis", answer({"OBJECTID": 1})), GiveUp)
    assert isinstance(outcome("socrata", {"error": True, "message": "Request throttled"}), Retry)
    assert isinstance(outcome("socrata", {"error": True, "message": "No such column"}), GiveUp)


def test_a_table_whose_quotes_do_not_match_is_asked_for_again() -> None:
    good = "taxkey,owner_name_1,c_a_total\n" + "1,BLOOM,5\n" * 20_000
    assert not isinstance(outcome("socrata", good), Retry)
    assert isinstance(outcome("socrata", good.replace("1,BLOOM", '1,"BLOOM', 1)), Retry)


def test_of_several_parcels_only_the_one_that_was_asked_for_is_read() -> None:
    rows = ({**NAL, "PARCEL_ID": "09-9", "OWN_NAME": "CARVER LOUIS"}, NAL)
    found = outcome("arcgis", answer(*rows), asked="01-2")
    assert isinstance(found, Done)
    assert (len(found.additional_records), found.data["owner_names"]) == (0, ["BLOOM CLARA"])  # type: ignore[index]
