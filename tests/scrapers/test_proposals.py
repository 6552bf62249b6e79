"""Field maps that are proposed for tables nobody mapped: what is certain, and what a worker makes of it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from bench import layers as bench
from parcelpost.model import Done, GiveUp
from parcelpost.scrapers.platform import decode_json
from parcelpost.scrapers.records.columns import Column, described
from parcelpost.scrapers.records.field_map_proposal import CERTAIN_FROM, LIKELY_FROM, Proposal, propose
from parcelpost.scrapers.records.field_maps import plain_row
from parcelpost.scrapers.records.vocabulary import readings
from parcelpost.scrapers.tabular import column_name, standard_json
from tests.scrapers.reading import outcome

ROWS: list[dict[str, Any]] = [
    {
        "PIN": f"12-34{number}",
        "OWNER": name,
        "SITEADDR": f"{number} OAK ST",
        "LANDVAL": 5_000 + number,
        "BLDGVAL": 90_000,
        "SALEDT": 1_418_601_600_000,
    }
    for number, name in enumerate(("BLOOM CLARA", "MOSS HOLDINGS LLC", "DIAZ SAM", "HARPER RUTH", "NGUYEN PETER"), 1)
]


def proposal(*rows: dict[str, Any], columns: list[Column] | None = None, asked: str = "") -> Proposal:
    return propose(columns or described(rows), [plain_row(row) for row in rows], asked)


def with_column(name: str, *values: Any) -> list[dict[str, Any]]:
    return [{**row, name: values[at % len(values)]} for at, row in enumerate(ROWS)]


def certain(found: Proposal) -> dict[str, tuple[str, ...]]:
    return {field: one.columns for field, one in found.fields.items() if one.confidence >= CERTAIN_FROM}


def attributes(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"features": [{"attributes": row} for row in rows], **more}


@pytest.mark.parametrize("file", ["learned", "held_out"])
def test_nine_of_ten_cells_of_unknown_layers_are_placed_right_and_none_wrong_though_certain(file: str) -> None:
    sure, likely = bench.Score(), bench.Score()
    for layer in bench.layers(file):
        sure.add(bench.score(layer, CERTAIN_FROM))
        likely.add(bench.score(layer, LIKELY_FROM))
    assert sure.wrong == []
    assert sure.right / sure.cells >= 0.9
    assert likely.right / likely.cells >= 0.95


SPELLINGS = {
    "parcel_id": (
        "TAXPIN PINNUM PIN_NO PARCEL_NUM PARCELNBR PRCL_NBR PCL_ID PARCEL_IDENTIFICATION_NUMBER "
        "ParcelNumber TaxParcelID TAX_PARCEL_NO CNTY_PIN ASSESSOR_PARCEL_NUMBER APN_NUM FOLIO_NO TMS_NUM "
        "GPIN MAP_PARCEL PARCELID_1 ParID PARCELNUMBER PIN10 PRCLID PARCEL_ID_ PINNumber "
        "AssessorsParcelNumber"
    ),
    "tax_account": (
        "ACCT_NO ACCOUNTNO TAX_ACCT ACCTNUM AccountNumber TAXACCTNUM PROP_ACCT ALT_PARCEL_ID ALT_PIN AccountID"
    ),
    "owner_names": (
        "OWNER1 OWNERNAME OWNER_NAME_1 OWN_NM OWNERNM OWN_NAME1 OwnerFullName CURRENT_OWNER PRIMARY_OWNER "
        "OWNER_OF_RECORD PROPERTY_OWNER OWNERS_NAME OWNER_LINE_1 DEED_HOLDER CO_OWNER OWNER2 SECOND_OWNER "
        "OWNERNAM1 OwnerNm2"
    ),
    "mailing.line": (
        "MAIL_ADDR MAILADDR1 MAILING_ADDRESS_1 OWNER_ADDRESS OWN_ADDR1 OWNADR1 OWNERADD1 MAIL_ADD "
        "MAILING_STREET PSTLADDRESS MailAddress TAXPAYER_ADDRESS MAIL_LINE_1 BILLING_ADDRESS "
        "OWNER_ADDR_LINE1 MAILADD2 OwnerMailingAddress OWNER_STREET MAILSTREET M_ADDRESS CARE_OF "
        "MAIL_CARE_OF OwnerAddr2 TAXPAYERADDR1"
    ),
    "mailing_city": (
        "MAIL_CITY OWNER_CITY OWNCITY MAILCITY PSTLCITY MAILING_CITY M_CITY TAXPAYER_CITY MailCity "
        "OWNERCITYNAME BILLING_CITY"
    ),
    "mailing_state": (
        "MAIL_STATE MAIL_ST OWNER_STATE OWN_ST OWNSTATE PSTLSTATE MAILING_STATE OWNERST M_STATE MAILST TAXPAYER_STATE"
    ),
    "mailing_zip": (
        "MAIL_ZIP OWNER_ZIP OWNZIP PSTLZIP5 MAILING_ZIP_CODE OWN_ZIPCODE MAILZIP5 OWNERZIPCODE M_ZIP "
        "MAIL_ZIP_CODE TAXPAYER_ZIP"
    ),
    "situs_address": (
        "SITUS_ADDR SITE_ADDR SITEADDRESS PROP_ADDR PROPERTY_ADDRESS PHYS_ADDR PHYSICAL_ADDRESS LOC_ADDR "
        "PROPERTY_LOCATION LOCATION PARCEL_ADDRESS SITUSADDRESS PROPLOC PROP_LOC SITE_LOCATION "
        "FULL_SITE_ADDRESS PropertyFullAddress SITUS_1 PROP_STREET PREMISE_ADDRESS SITEADD "
        "SITUS_FULL_ADDRESS PROP_ADDRESS1 PHYADDR"
    ),
    "situs_city": (
        "SITUS_CITY SITE_CITY PROP_CITY PROPERTY_CITY PHYS_CITY SITECITY LOC_CITY PropCity SITUSCITY PARCEL_CITY"
    ),
    "situs_zip": "SITUS_ZIP SITE_ZIP PROP_ZIP PROPERTY_ZIP_CODE PHYS_ZIP LOC_ZIP SITEZIP5 PROPZIP",
    "legal_description": (
        "LEGAL LEGAL_DESC LEGALDESC LEGAL1 LEGAL_DESCRIPTION LGL_DESC LEGAL_DSC LegalDescr LEGALDES "
        "BRIEF_LEGAL SHORT_LEGAL FULL_LEGAL LEGAL_LINE1"
    ),
    "subdivision": "SUBDIVISION SUBDIV SUBD_NAME SUBDIVNAME SUB_NAME SUBDIVISION_NAME SUBDNAME PLAT_NAME SUBDNM",
    "land_use_code": (
        "USE_CODE USECD LAND_USE_CODE LUCODE LUC LU_CODE PROP_CLASS PROPERTY_CLASS CLASS_CODE LANDUSE "
        "PROP_USE_CD PROPERTY_USE_CODE LANDUSECD DOR_CODE CLASS_CD STATE_USE_CODE USE_CD"
    ),
    "land_use_desc": (
        "USE_DESC USEDSCRP LAND_USE_DESC LU_DESC CLASS_DESC LANDUSE_DESCRIPTION PROPERTY_USE_DESC "
        "LUC_DESC PROP_CLASS_DESC CLASSDESCR"
    ),
    "zoning": "ZONING ZONE ZONE_CODE ZONING_CODE ZONECLASS ZONE_CLASS ZONING_DISTRICT",
    "land_area_acres": (
        "ACRES ACREAGE GISACRES GIS_ACRES DEED_ACRES DEEDACRES CALC_ACRES CALC_AC DEEDED_ACREAGE "
        "TOTAL_ACRES LAND_ACRES LEGAL_ACRES ACRES_CALC LOT_ACRES TAX_ACRES PARCEL_ACRES AC ASSESSED_ACRES "
        "RECORDED_ACRES ACRESGIS"
    ),
    "building_area_sqft": (
        "LIVING_AREA LIVAREA HEATED_SQFT HEATEDAREA BLDG_SQFT BUILDING_AREA BLDG_AREA TOTAL_LIVING_AREA "
        "FINISHED_AREA FIN_SQFT LIV_AREA SFLA TOT_LVG_AREA SQFT_LIVING BLDGSF BLDG_SQ_FT "
        "TOTAL_FINISHED_AREA LIVING_SQFT HEATED_SF"
    ),
    "year_built": (
        "YEAR_BUILT YEARBUILT YR_BUILT YRBLT YEARBLT YR_BLT ACT_YR_BLT ACTUAL_YEAR_BUILT BUILT_YEAR "
        "YEAR_BLT YRBUILT BLDG_YEAR_BUILT"
    ),
    "land_value": (
        "LAND_VALUE LANDVAL LAND_VAL LNDVAL LANDVALUE LAND_MKT_VAL MKT_LAND LAND_APPR APPRLAND "
        "ASSESSED_LAND LAND_ASSESSED_VALUE LAND_AV LANDASSD APPRAISED_LAND_VALUE MARKET_LAND_VALUE "
        "LAND_MARKET TOT_LAND_VAL CURR_LAND_VALUE LANDMARKETVALUE LND_VALUE"
    ),
    "building_value": (
        "BLDG_VALUE BLDGVAL IMPR_VALUE IMPVAL IMP_VAL IMPROVEMENT_VALUE IMPROVVAL BUILDING_VALUE "
        "BLDG_MKT_VAL IMPR_APPR ASSESSED_IMPROVEMENTS BLDG_ASSESSED IMPRVALUE APPRAISED_IMPROVEMENT_VALUE "
        "TOTAL_IMP_VALUE IMPS_VALUE IMPROVEMENTVALUE MKT_IMPR STRUCTURE_VALUE"
    ),
    "market_value": (
        "MARKET_VALUE MKT_VAL TOTAL_MARKET_VALUE TOT_MKT_VAL FMV FAIR_MARKET_VALUE JUST_VALUE "
        "APPRAISED_VALUE TOT_APPR APPR_VALUE APPRAISAL TOTAL_APPRAISED_VALUE MKTVALUE MARKETVAL "
        "TOTALMARKETVALUE FULL_CASH_VALUE TRUE_VALUE EST_MKT_VAL TOTAL_APPR_VALUE APPRTOTAL JUSTVAL "
        "TOTAPPRVAL"
    ),
    "assessed_value": (
        "ASSESSED_VALUE ASSD_VAL ASSDVALUE TOTAL_ASSESSED_VALUE TOT_ASSD_VAL ASSESSED_VAL ASSESSED_TOTAL "
        "TOTALASSD ASSESSEDVALUE TOTAL_AV ASMT_TOTAL ASSESSMENT TOTAL_ASSESSMENT ASSESS_VAL "
        "NET_ASSESSED_VALUE ASSESSEDVAL"
    ),
    "taxable_value": (
        "TAXABLE_VALUE TAXABLE_VAL TAXABLEVAL TXBL_VAL TOTAL_TAXABLE_VALUE NET_TAXABLE_VALUE CNTTXBLVAL "
        "TAXABLE COUNTY_TAXABLE_VALUE"
    ),
    "last_sale_date": (
        "SALE_DATE SALEDATE SALEDT LAST_SALE_DATE LASTSALEDATE SALES_DATE SALE_DT DATE_SOLD LSTSALEDT "
        "SALE_DATE_1 TRANSFER_DATE RECENT_SALE_DATE DATEOFSALE"
    ),
    "last_sale_price": (
        "SALE_PRICE SALEPRICE SALE_AMT SALES_PRICE LAST_SALE_PRICE LASTSALEPRICE SALEAMOUNT SALE_PRC "
        "SALE_VALUE CONSIDERATION SALE_AMOUNT SLPRICE LASTSALEAMT TRANSFER_PRICE SALEPRC1"
    ),
    "tax_year": "TAX_YEAR TAXYR TAX_YR TAXYEAR",
    "value_year": "ASSESSMENT_YEAR ROLL_YEAR VALUE_YEAR ASMT_YEAR VALUATION_YEAR APPRAISAL_YEAR TAX_ROLL_YEAR",
    "tax_amount": "TAX_AMT TOTAL_TAX TAX_AMOUNT TOT_TAX NET_TAX TAXAMOUNT ANNUAL_TAX PROPERTY_TAX TOTALTAXES",
    "last_sale_book_page": "BOOK_PAGE DEED_BOOK_PAGE BOOKPAGE BKPG DEEDBKPG DEED_BK_PG OR_BOOK_PAGE",
    "bedrooms": "BEDROOMS BEDS NUM_BEDROOMS BDRMS BEDRMS NO_BEDROOMS",
    "bathrooms": "BATHROOMS BATHS NUM_BATHS TOTAL_BATHS",
    "situs.number": (
        "HOUSE_NUM HOUSE_NUMBER ST_NUM STREET_NUMBER STNUM ADDR_NUM ADDRNUM SITUS_NUM PROP_HOUSE_NUM "
        "STREET_NO HOUSENO SITUS_HOUSE_NO ADDRESS_NUMBER HSE_NO"
    ),
    "situs.street": (
        "STREET_NAME ST_NAME STNAME STREETNAME SITUS_STREET_NAME ADDR_STREET ROAD_NAME PROP_STREET_NAME STRNAME"
    ),
    "situs.suffix": "STREET_TYPE ST_TYPE STREETTYPE ST_SUFFIX STREET_SUFFIX STTYPE SITUS_STREET_SUFFIX",
    "situs.prefix": "PRE_DIR PREDIR ST_DIR STREET_DIRECTION PREFIX_DIR STREET_DIR",
    "homestead": "HOMESTEAD HMSTD HOMESTEAD_FLAG HOMESTEAD_EXEMPTION HX",
}
OTHERS = (
    "OWNER_OCC OWNTYPE OWNER_ID OWNERSHIP_DATE PARCEL_TYPE PARCEL_AREA LAND_SQFT LANDAREA BLDG_NUM "
    "BLDG_CLASS SALE_YEAR SALE_TYPE SALE_QUAL DEED_TYPE TAX_DIST TAX_CODE TAX_RATE TAX_STATUS EXEMPT_CODE "
    "ADDR_TYPE ADDRESS_ID SITE_ID PROP_TYPE PROP_NAME PROPERTY_NAME BUSINESS_NAME SUBDIV_LOT SUB_CODE "
    "ZONE_DATE FLOOD_ELEVATION WETLAND_ZONE SCHOOL_ZONE FIRE_ZONE "
    "LOT_VALUE AG_VALUE PERSONAL_PROP_VALUE EXEMPTION_TYPE "
    "ASSESSMENT_DATE ASSESSOR_ID MARKET_AREA APPRAISER APPRAISAL_DATE VALUE_DATE SALE_DOC YEAR_REMODELED "
    "EFF_YEAR_BUILT YEAR_BUILT_EFF LAND_TYPE LAND_CLASS LAND_CODE MAP_PAGE BOOK PAGE CITY_CODE "
    "CITY_LIMITS STATE_FIPS ZIP_PLUS4 COUNTY COUNTY_NAME COUNTY_ID GEOID ACRES_AG MAIL_CODE MAIL_DATE "
    "OWNER_DATE UNITS STORIES CENSUS_TRACT PARCEL_DATE PARCEL_STATUS OLD_PIN PREV_PARCEL PARENT_PIN "
    "NEW_PARCEL_ID CONDO_ID LEGAL_START_DATE LEGAL_AREA STATEDAREA LASTUPDATE LAST_EDITED_DATE "
    "CREATED_DATE EDIT_DATE SALE_RATIO TAX_EXEMPT EXEMPT ASSESSOR_NAME CLERK_NAME AGENT_NAME SCHOOL_NAME "
    "STREET_CODE PLACE_NAME OWNER_PHONE OWNER_EMAIL GRANTOR SELLER BUYER PREV_SALE_DATE PREV_SALE_PRICE "
    "PRIOR_SALE_AMT LAND_VALUE_PRIOR LAST_YEAR_VALUE PY_LAND_VAL PROPOSED_VALUE CAMA_VALUE TAX_VALUE "
    "NET_VALUE MILLAGE TAX_DISTRICT WATER_ACRES FRONT_FEET BASEMENT_SQFT GARAGE_SQFT PORCH_AREA LOT_AREA "
    "LOT_SIZE TOTAL_AREA GROSS_AREA AREA SHAPE_AREA BATHS_HALF FULL_BATH HALF_BATH ROOMS OBJECTID FID "
    "GLOBALID NAME VALUE TOTAL YEAR DATE TYPE CODE ID NUMBER KEY CLASS USE DESCRIPTION STATUS "
)


def test_names_are_understood_in_many_spellings(subtests: pytest.Subtests) -> None:
    for field, names in SPELLINGS.items():
        for name in names.split():
            with subtests.test(name=name):
                found = readings(name)
                assert field in [one.field for one in found]
                assert found[0].score >= CERTAIN_FROM


def test_a_name_of_something_else_is_never_certain(subtests: pytest.Subtests) -> None:
    for name in OTHERS.split():
        with subtests.test(name=name):
            assert not any(one.score >= CERTAIN_FROM for one in readings(name))


def test_the_name_of_a_table_before_that_of_the_column_does_not_matter() -> None:
    for before in ("DBO.PARCELS.", "GIS.SDE.Tax_Parcels.", "GIS_DBO_Entity_"):
        rows = [{f"{before}{name}": value for name, value in row.items()} for row in ROWS]
        assert certain(proposal(*rows)).keys() >= {"parcel_id", "owner_names", "situs_address", "land_value"}


def test_the_essential_columns_of_a_plain_table_are_certain() -> None:
    found = proposal(*ROWS)
    assert found.missing() == []
    assert certain(found) == {
        "parcel_id": ("PIN",),
        "owner_names": ("OWNER",),
        "situs_address": ("SITEADDR",),
        "land_value": ("LANDVAL",),
        "building_value": ("BLDGVAL",),
        "last_sale_date": ("SALEDT",),
    }


CONTRADICTED = [
    ("OWNER_NAME", "owner_names", (1, 2, 3)),
    ("SITUS_ADDRESS", "situs_address", ("4", "7", "12")),
    ("MARKET_VALUE", "market_value", ("R1", "C2", "AG")),
    ("TAXABLE_VALUE", "taxable_value", (1, 2, 3)),
    ("YEAR_BUILT", "year_built", (12, 7, 3)),
    ("MAIL_STATE", "mailing_state", ("12", "13", "14")),
    ("MAIL_ZIP", "mailing_zip", ("A", "BC", "DE")),
    ("LAST_SALE_DATE", "last_sale_date", (2014, 2015, 2016)),
    ("MAIL_STATE", "mailing_state", ("TAMPA", "OCALA")),
    ("MAIL_CITY", "mailing_city", ("FL", "TX")),
    ("ACRES", "land_area_acres", (6_500, 12_000)),
    ("SALE_PRICE", "last_sale_price", (1_418_601_600_000, 1_318_601_600_000)),
    ("TAX_YEAR", "tax_year", (1924, 1956, 1978)),
    ("LAND_VALUE_2", "land_value", (7_000,)),
    ("LATITUDE", "latitude", (Decimal("500000.5"), Decimal("500001.5"))),
]


def test_a_name_does_not_decide_against_its_values() -> None:
    for name, field, values in CONTRADICTED:
        assert name not in certain(proposal(*with_column(name, *values))).get(field, ()), field


def test_the_same_number_in_all_rows_does_not_identify_a_parcel() -> None:
    rows = [{"PARCELID": "77", **{name: value for name, value in row.items() if name != "PIN"}} for row in ROWS]
    assert "parcel_id" not in certain(proposal(*rows))


def test_two_columns_with_the_same_claim_are_not_certain_unless_they_agree() -> None:
    found = proposal(*with_column("OWNER_NAME", "SOMEBODY ELSE"))
    assert "owner_names" not in certain(found)
    assert "it may also be" in found.fields["owner_names"].reason
    agreeing = [{**row, "OWNER_NAME": row["OWNER"]} for row in ROWS]
    assert len(certain(proposal(*agreeing))["owner_names"]) == 1
    other_number = [{**row, "PARCELID": f"900{at}"} for at, row in enumerate(ROWS)]
    assert "parcel_id" not in certain(proposal(*other_number))
    assert certain(proposal(*other_number, asked="12342"))["parcel_id"] == ("PIN",)


def test_of_two_spellings_of_a_number_the_displayed_one_is_taken() -> None:
    rows = [{"PARCELID": row["PIN"].replace("-", ""), **row} for row in ROWS]
    assert certain(proposal(*rows))["parcel_id"] == ("PIN",)


def test_a_value_of_unknown_kind_is_likely_at_most() -> None:
    rows = with_column("TOTVAL", 77_000)
    found = proposal(*rows)
    assert found.fields["market_value"].confidence < CERTAIN_FROM
    higher = [{**row, "ASSDVAL": 30_000} for row in rows]
    assert certain(proposal(*higher))["market_value"] == ("TOTVAL",)
    parts = [
        {"PIN": row["PIN"], "LAND_ASSD": 10, "BLDG_ASSD": 990 + at, "TOTAL_VALUE": 1_000 + at}
        for at, row in enumerate(ROWS)
    ]
    assert certain(proposal(*parts))["assessed_value"] == ("TOTAL_VALUE",)


def test_an_address_of_nobody_in_particular_is_not_certain() -> None:
    rows = [
        {**row, "ADDRESS": f"{at} ELM AVE", "CITY": "TAMPA", "STATE": "FL", "ZIP": "33602"}
        for at, row in enumerate(ROWS)
    ]
    found = certain(proposal(*rows))
    assert "mailing" not in found and "mailing_city" not in found
    assert found["situs_address"] == ("SITEADDR",)
    states = [{**row, "STATE": state} for row, state in zip(rows, ("FL", "TX", "NY", "FL", "GA"), strict=True)]
    found = certain(proposal(*states))
    assert (found["mailing"], found["mailing_city"], found["mailing_zip"]) == (("ADDRESS",), ("CITY",), ("ZIP",))


def test_an_address_before_the_owners_city_or_equal_to_the_owners_is_not_that_of_the_property() -> None:
    plain = [{name: value for name, value in row.items() if name != "SITEADDR"} for row in ROWS]
    rows = [{**row, "ADDRESS": f"{at} ELM AVE", "MAIL_CITY": "TAMPA"} for at, row in enumerate(plain)]
    found = proposal(*rows)
    assert "situs_address" not in found.fields
    assert found.fields["mailing"].confidence < CERTAIN_FROM
    copied = [{**row, "ADDRESS": f"{at} ELM AVE", "MAILADDR": f"{at} ELM AVE"} for at, row in enumerate(plain)]
    assert "situs_address" not in certain(proposal(*copied))
    copied[0]["MAILADDR"] = "PO BOX 7"
    assert certain(proposal(*copied))["situs_address"] == ("ADDRESS",)


def test_an_address_with_the_city_gives_way_to_its_parts() -> None:
    rows = [{**row, "SITEADDR": f"{row['SITEADDR']}, CITY OF AFTON"} for row in ROWS]
    found = proposal(*rows)
    assert found.fields["situs_address"].confidence < CERTAIN_FROM
    assert found.fields["situs_address"].reason == "it includes the city"
    parts = [{**row, "BLDG_NUM": str(at), "STREETNAME": "OAK", "STREETTYPE": "ST"} for at, row in enumerate(rows, 1)]
    assert certain(proposal(*parts))["situs_address"] == ("BLDG_NUM", "STREETNAME", "STREETTYPE")


def test_a_count_of_buildings_is_not_their_value_because_vacant_lots_add_up() -> None:
    rows = [
        {"PIN": f"12-34{n}", "OWNER": f"BLOOM {chr(65 + n)}", "LANDVAL": 5_000 + n, "BLDG": int(n > 7)}
        | {"TOTVAL": 5_000 + n + (90_000 if n > 7 else 0)}
        for n in range(10)
    ]
    assert "building_value" not in certain(proposal(*rows))


def test_the_state_of_the_propertys_address_is_not_the_owners() -> None:
    rows = [
        {"PIN": f"12-34{n}", "OWNER": f"BLOOM {chr(65 + n)}", "OWNERADDRESS": f"{n} FAR AWAY RD"}
        | {"ADDRESS": f"{n} OAK ST", "CITY": "MARIGOLD", "STATE": "FL", "ZIP": "32000", "LANDVAL": 5_000 + n}
        for n in range(10)
    ]
    assert "mailing_state" not in certain(proposal(*rows))


def test_an_alias_that_says_something_else_takes_the_certainty() -> None:
    named = [Column(name) for name in ROWS[0] if name != "OWNER"]
    rows = tuple(ROWS)
    assert "owner_names" in certain(proposal(*rows, columns=[*named, Column("OWNER", "Owner Name")]))
    assert "owner_names" not in certain(proposal(*rows, columns=[*named, Column("OWNER", "Previous Owner")]))
    opaque = [{**{name: value for name, value in row.items() if name != "OWNER"}, "F7": row["OWNER"]} for row in ROWS]
    assert certain(proposal(*opaque, columns=[*named, Column("F7", "Owner Name")]))["owner_names"] == ("F7",)


def test_a_worker_reads_a_table_by_what_is_certain_and_marks_the_record() -> None:
    found = outcome("arcgis", attributes(*with_column("TOTVAL", 77_000)))
    assert isinstance(found, Done) and isinstance(found.data, dict)
    assert {name: found.data[name] for name in ("field_map", "parcel_id", "owner_names", "last_sale_date")} == {
        "field_map": "proposed",
        "parcel_id": "12-341",
        "owner_names": ["BLOOM CLARA"],
        "last_sale_date": "2014-12-15",
    }
    assert (found.data["land_value"], found.data["market_value"]) == (5_001, None)
    assert found.data["unreadable"] == ["market_value"], "TOTVAL is one, but not for certain"


@pytest.mark.parametrize("name", ["FLOODZONE", "FLD_ZONE", "FEMA_FLOOD_ZONE", "Flood_Zone"])
def test_the_flood_zone_of_a_layer_is_in_the_record(name: str) -> None:
    found = outcome("arcgis", attributes(*with_column(name, "AE")[:1]))
    assert isinstance(found, Done)
    assert isinstance(found.data, dict)
    assert found.data["flood_zone"] == "AE"
    assert "flood_zone" not in certain(proposal(*with_column(name, 1, 0))), "a flag is no zone"


def test_a_worker_says_which_essential_columns_it_could_not_place() -> None:
    rows = [{"PIN": row["PIN"], "NAME": row["OWNER"], "VALUE": 70_000} for row in ROWS]
    found = outcome("arcgis", attributes(*rows))
    assert isinstance(found, GiveUp)
    assert found.reason.startswith(
        "no field map matches these columns, and it is not certain which of them are "
        "the owner or the address (perhaps NAME); a value (perhaps VALUE): "
    )
    assert "parcelpost platforms map" in found.reason


def test_the_description_of_the_columns_in_an_answer_is_used() -> None:
    rows = [{"F1": row["PIN"], "F2": row["OWNER"], "F3": row["LANDVAL"]} for row in ROWS]
    fields = [
        {"name": "F1", "alias": "Parcel Number", "type": "esriFieldTypeString"},
        {"name": "F2", "alias": "Owner Name", "type": "esriFieldTypeString"},
        {"name": "F3", "alias": "Land Value", "type": "esriFieldTypeDouble"},
    ]
    found = outcome("arcgis", attributes(*rows, fields=fields))
    assert isinstance(found, Done) and isinstance(found.data, dict)
    assert (found.data["owner_names"], found.data["land_value"]) == (["BLOOM CLARA"], 5_001)
    fields[2]["type"] = "esriFieldTypeDate"
    assert isinstance(outcome("arcgis", attributes(*rows, fields=fields)), GiveUp)


def test_a_year_is_not_taken_for_a_moment() -> None:
    table = {"PARCEL_ID": "1", "OWN_NAME": "B", "JV": 3, "DOR_UC": "1"}
    metro = {"PIN": "09", "OWNER_NAME": "BLOOM", "EMV_TOTAL": 300, "SALE_VALUE": 0, "SALE_DATE": 2014}
    for row in (table, metro):
        found = outcome("arcgis", attributes(row))
        assert isinstance(found, Done) and isinstance(found.data, dict)
        assert found.data["last_sale_date"] is None


NUMBERS = [
    (b'{"a": NaN, "b": [-Infinity, Infinity]}', {"a": None, "b": [None, None]}),
    (b'{"NaN": "NaN, \\" Infinity", "a": 1.5e3}', {"NaN": 'NaN, " Infinity', "a": 1500}),
]


@pytest.mark.parametrize(("body", "document"), NUMBERS)
def test_numbers_that_are_none_are_read_as_nothing(body: bytes, document: Any) -> None:
    assert decode_json(body) == document


def test_a_layer_with_nan_is_read() -> None:
    rows = '{"features": [{"attributes": {"PIN": "09", "OWNER_NAME": "B", "EMV_TOTAL": NaN, "SALE_VALUE": 7}}]}'
    found = outcome("arcgis", rows)
    assert isinstance(found, Done) and isinstance(found.data, dict)
    assert (found.data["market_value"], found.data["last_sale_price"]) == (None, 7)


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 200_000 + b"\\", b'"a' * 200_000, b"-" * 200_000, b"NaN" * 100_000])
def test_hostile_text_is_looked_through_once(text: bytes) -> None:
    assert len(standard_json(text)) >= 1


def test_hostile_columns_give_a_proposal_and_no_error() -> None:
    names = [f"OWNER{'_OWNER' * at}{'X' * 300}" for at in range(200)] + [f"PIN{at}" for at in range(500)]
    names += ["", ".", "é", "\x00", "NaN", "_" * 500, "1" * 5_000, "DBO_" * 100]
    values = ["A" * 10_000, None, 10**400, -1, True, {"a": 1}, ["x"], "\ud800", float("1e300")]
    rows = [
        {column_name(name): values[(at + row) % len(values)] for at, name in enumerate(names)} for row in range(300)
    ]
    assert len(propose([Column(name, name * 3) for name in names], rows).placements) == len(names)
