"""A page of another parcel than the one that was asked for is no record of it."""

from __future__ import annotations

import msgspec
import pytest

from parcelpost.model import Done, Page, Retry, Target
from parcelpost.scrapers.platforms import county_platform
from parcelpost.scrapers.records.identity import is_other_parcel
from tests.scrapers.reading import is_read, outcome, qpublic, two_columns

SHOWN = "11-2S-15-00010-001"
OWNER = "BLOOM CLARA<br>12 PINE ST<br>STONEBRIDGE, GA 30999"


def test_the_same_number_in_another_writing_and_a_number_of_another_kind_contradict_nothing(
    subtests: pytest.Subtests,
) -> None:
    for asked in [
        *(
            "",
            SHOWN,
            "112S1500010001",
            "112s15-00010-001",
            " 11 2S 15 00010 001 ",
            "11-2S-15-10-1",
            "011-2S-15-00010-001",
        ),
        *("15-2S-11-00010-001", "152S1100010001", "15-2S-11-00010001", "00010-001-11-2S-15", "011-2S-15-00010-001"),
        *("R00010-001", "77412", "the corner lot", "12-023-11-2S-15-00010-001", "15-2S-11-0000-00010-0010"),
    ]:
        with subtests.test(asked=asked):
            assert not is_other_parcel(asked, [SHOWN, None])


@pytest.mark.parametrize(
    "asked", ["11-2S-15-00010-002", "112S1500010010", "00-00-00-00604-013", "18-05-21-00-000-0670-0", "112N1500010001"]
)
def test_another_number_of_the_same_kind_is_another_parcel(asked: str) -> None:
    assert is_other_parcel(asked, [SHOWN, "R00010-001"])


def test_counting_numbers_differ_whatever_their_length() -> None:
    assert is_other_parcel("1204", ["837", "959"])
    assert not is_other_parcel("959", ["837", "959"])
    assert not is_other_parcel("00837", ["837"])


def test_a_page_of_another_parcel_is_tried_again() -> None:
    page = qpublic(summary=two_columns(parcel_id="045B-010-022"), owner=OWNER)
    assert is_read(outcome("qpublic", page, asked="045b010022"))
    found = outcome("qpublic", page, asked="045B010023")
    assert isinstance(found, Retry)
    assert "'045B-010-022'" in found.reason
    assert "'045B010023'" in found.reason


def test_a_number_under_another_label_is_the_parcel_s_too_but_not_its_parent_s() -> None:
    summary = two_columns(parcel_id="12-34-56", account_number="77", alternate_id="99-34-56", parent_parcel="98-34-56")
    page = qpublic(summary=summary, owner=OWNER)
    assert is_read(outcome("qpublic", page, asked="993456"))
    assert not is_read(outcome("qpublic", page, asked="983456"))


def test_json_may_hold_the_number_under_any_name_but_its_parent_s() -> None:
    info = {"FolioNumber": "10-7916-003-0960", "ParentFolio": "10-7916-003-0001", "OldNumber": "1079160030777"}
    roll = {"AssessmentInfos": [{"Year": 2024, "TotalValue": 5, "LandValue": 5}]}
    page = {"PropertyInfo": info, "Assessment": roll, "OwnerInfos": [{"Name": "BLOOM CLARA"}], "Completed": True}
    for asked in ("1079160030960", "10-7916-003-0777"):
        assert is_read(outcome("miamidade_pa", page, asked=asked))
    for asked in ("1079160030001", "1079160030961"):
        assert not is_read(outcome("miamidade_pa", page, asked=asked))


@pytest.mark.parametrize("extra", [{"where": "CITY='X'"}, {}])
def test_a_row_that_answers_a_where_goes_by_its_own_number(extra: dict[str, str]) -> None:
    platform = county_platform("arcgis")
    assert platform is not None
    row = {"PARCEL_ID": "136577001", "OWN_NAME": "BLOOM CLARA", "JV": 5, "DOR_UC": "001"}
    body = msgspec.json.encode({"features": [{"attributes": row}]})
    target = Target(parcel_id="136577002", state="FL", county="x", extra=extra)
    found = platform.parse(Page(body=body, content_type="application/json"), target).outcome
    assert isinstance(found, Done if extra else Retry), found
