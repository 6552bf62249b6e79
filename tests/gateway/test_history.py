"""What changed between the scrapes of a parcel."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from time import process_time
from typing import Any

import msgspec
import pytest

from parcelpost.gateway import history as comparing
from parcelpost.gateway.history import Change, History, _by_key, record
from parcelpost.gateway.models import RecordVersion
from parcelpost.search_fields import lien_keys

NOW = datetime(2026, 3, 1, tzinfo=UTC)

CASES: list[tuple[dict[str, Any], dict[str, Any], list[Change]]] = [
    ({"tax_due": 1}, {"tax_due": 1}, []),
    ({"tax_due": 0}, {"tax_due": None}, [Change("tax_due", 0, None)]),
    ({"tax_due": 0}, {}, [Change("tax_due", 0, None)]),
    ({"zoning": None}, {}, []),
    ({"exemptions": []}, {"exemptions": None}, []),
    ({"homestead": True}, {"homestead": 1}, [Change("homestead", True, 1)]),
    ({"homestead": False}, {"homestead": 0}, [Change("homestead", False, 0)]),
    ({"owner_names": ["A"]}, {"owner_names": ["A", "B"]}, [Change("owner_names", ["A"], ["A", "B"])]),
    ({"scraped_at": 1, "raw_html_hash": "a", "parser_version": 1}, {"scraped_at": 2, "raw_html_hash": "b"}, []),
    ({"a": 1, "b": 1}, {"b": 2, "a": 2}, [Change("b", 1, 2), Change("a", 1, 2)]),
    ({"liens": "none"}, {"liens": []}, [Change("liens", "none", [])]),
]


def changes(older: Mapping[str, Any], newer: Mapping[str, Any]) -> list[Change]:
    return comparing.changes(older, newer, keys(older), keys(newer))


def keys(data: Mapping[str, Any]) -> list[str]:
    return lien_keys(data, msgspec.json.encode(data))


def test_a_change_is_told_by_field(subtests: pytest.Subtests) -> None:
    for older, newer, expected in CASES:
        with subtests.test(older=older, newer=newer, expected=expected):
            assert changes(older, newer) == expected


def test_liens_go_by_their_certificates_whatever_their_order() -> None:
    old = [{"certificate_number": "7", "status": "open"}, {"certificate_number": "8", "status": "open"}]
    new = [{"certificate_number": "9"}, {"certificate_number": "8", "status": "redeemed"}]
    assert changes({"liens": old}, {"liens": new}) == [
        Change("liens[9]", None, {"certificate_number": "9"}, "/9"),
        Change("liens[8].status", "open", "redeemed", "/8"),
        Change("liens[7]", {"certificate_number": "7", "status": "open"}, None, "/7"),
    ]
    assert changes({"liens": old}, {"liens": old[::-1]}) == []


def test_liens_without_a_certificate_go_by_case_or_place_and_the_same_number_twice_is_two_liens() -> None:
    old = {"liens": [{"case_number": "C1", "status": "open"}, {"status": "open"}, {"status": "open"}]}
    new = {"liens": [{"case_number": "C1", "status": "sold"}, {"status": "open"}, {"status": "sold"}]}
    assert [change.field for change in changes(old, new)] == ["liens[C1].status", "liens[no. 3].status"]
    same = {"certificate_number": "7", "tax_year": 2020}
    assert changes({"liens": [same, same]}, {"liens": [same, {**same, "tax_year": 2021}]}) == [
        Change("liens[7 of 2021]", None, {"certificate_number": "7", "tax_year": 2021}, "2021/7"),
        Change("liens[7 of 2020 (2)]", same, None, "2020/7 (2)"),
    ]


def test_the_same_number_of_two_years_is_two_liens_in_whatever_order_they_are() -> None:
    old = [{"certificate_number": "55", "certificate_year": year, "status": "open"} for year in (2022, 2023)]
    new = [{"certificate_number": "2023-000055", "status": "redeemed"}, old[0]]
    assert changes({"liens": old}, {"liens": new})[:2] == [
        Change("liens[2023-000055].certificate_number", "55", "2023-000055", "2023/55"),
        Change("liens[2023-000055].status", "open", "redeemed", "2023/55"),
    ]


def test_a_later_tax_is_not_its_certificate() -> None:
    certificate = {"certificate_number": "7", "certificate_year": 2023, "status": "open"}
    later = {"certificate_number": "7", "tax_year": 2023, "subsequent_tax": True, "sale_date": "2024-03-02"}
    redeemed = {**certificate, "status": "redeemed"}
    assert changes({"liens": [later, certificate]}, {"liens": [redeemed, later]}) == [
        Change("liens[7].status", "open", "redeemed", "2023/7")
    ]
    (change,) = changes({"liens": [certificate]}, {"liens": [certificate, later]})
    assert change.field == "liens[7, later tax of 2024-03-02]"


def test_names_that_look_like_numbered_ones_stay_apart() -> None:
    liens = [{"case_number": name, "place": place} for place, name in enumerate(["C (2)", "C", "C", "C", "C (2)"])]
    told = [change.lien for change in changes({"liens": []}, {"liens": liens})]
    assert told == ["case C2", "case C", "case C (2)", "case C (3)", "case C2 (2)"]


def test_a_lien_has_the_number_that_its_key_has_whatever_the_order_of_the_rows() -> None:
    """Liens of one certificate are numbered by what they say, also by amounts with cents."""
    dear, cheap = ({"certificate_number": "55", "tax_year": 2020, "face_amount": amount} for amount in (700.5, 700.25))
    later = {**cheap, "subsequent_tax": True}
    new = {"liens": [{**dear, "holder_name": "B"}, cheap, {**later, "tax_year": 2021}, {"face_amount": 5}]}
    assert keys(new) == ["2020/55 (2)", "2020/55", "2020/55", ""]
    versions = [a_version(new, 1), a_version({"liens": [cheap, dear]})]
    assert [(change.field, change.lien) for change in history(versions, 10).scrapes[0].changes] == [
        ("liens[55 of 2020 (2)].holder_name", "2020/55 (2)"),
        ("liens[55 of 2021, later tax of 2021]", ""),
        ("liens[no. 4]", ""),
    ]


def test_a_later_tax_has_the_key_of_a_certificate_of_its_number_and_a_case_has_its_own() -> None:
    later = {"subsequent_tax": True}
    liens = [
        {"certificate_number": "55", "certificate_year": 2020},
        {"certificate_number": "55", **later},
        {"case_number": "C1"},
        {"case_number": "C2", **later},
    ]
    assert keys({"liens": liens}) == ["2020/55", "2020/55", "case C1", "case C2"]
    assert keys({"liens": liens[2:]}) == ["case C1", "case C2"]


def test_thousands_of_liens_of_one_case_cost_no_more_than_so_many_cases() -> None:
    """The first thousand are compared one by one. Without a counter for each name this takes minutes."""
    started = process_time()
    before = {"liens": [{"case_number": "C1", "status": "open"}] * 20_000}
    after = {"liens": [{"case_number": "C1", "status": "sold"}] * 20_001}
    told = changes(before, after)
    assert len(_by_key(after["liens"], keys(after))) == 20_001
    assert process_time() - started < 20
    assert [told[0].field, told[999].field] == ["liens[C1].status", "liens[C1 (1000)].status"]
    assert told[1_000:] == [Change("liens beyond 1,000", 19_000, 19_001)]


def a_version(data: dict[str, Any] | bytes, days: int = 0) -> RecordVersion:
    at = NOW + timedelta(days=days)
    return RecordVersion(
        task_id=f"t{days}",
        worker_id="w",
        scraped_at=at,
        received_at=at,
        late=False,
        parse_duration_ms=3,
        raw_sha256=None,
        raw_file=None,
        data=data if isinstance(data, bytes) else msgspec.json.encode(data),
    )


def history(versions: list[RecordVersion], most: int) -> History:
    told = History(most)
    told.add(versions)
    told.end()
    return told


def test_each_scrape_is_compared_with_the_one_before_it() -> None:
    versions = [a_version({"tax_due": due}, days) for due, days in ((3, 2), (2, 1), (2, 0))]
    told = history(versions, 10).scrapes
    assert [scrape.changes for scrape in told] == [[Change("tax_due", 2, 3)], [], []]
    assert [scrape.first for scrape in told] == [False, False, True]


def test_the_oldest_one_told_is_not_the_first_where_there_are_more() -> None:
    versions = [a_version({"tax_due": due}, due) for due in (3, 2, 1)]
    told = history(versions, 2)
    assert [(scrape.first, len(scrape.changes)) for scrape in told.scrapes] == [(False, 1), (False, 1)]
    assert not told.is_whole
    assert history(versions, 3).is_whole
    assert history([], 2).scrapes == []


def test_it_makes_no_difference_in_which_parts_it_is_told() -> None:
    versions = [a_version({"tax_due": due}, due) for due in (5, 4, 3, 2, 1)]
    told = History(3)
    rooms = []
    while not told.is_full:
        rooms.append(told.room)
        told.add([version for version in versions if told.oldest is None or version.scraped_at < told.oldest[0]][:1])
    told.end()
    assert rooms == [4, 3, 2, 1]
    assert (told.scrapes, told.is_whole) == (history(versions, 3).scrapes, False)


def test_changes_that_are_large_together_end_it_early() -> None:
    versions = [a_version({"notes": str(number) * 1_000_000}, 100 - number) for number in range(10)]
    told = history(versions, 100)
    assert 0 < len(told.scrapes) < 5
    assert not told.is_whole


def test_records_that_are_large_together_end_it_early() -> None:
    """However little has changed in them: all of them are read and compared by whoever asks for the parcel."""
    large = msgspec.json.encode({"notes": "x" * 16_000_000})
    told = history([a_version(large, 100 - number) for number in range(8)], 100)
    assert 2 <= len(told.scrapes) < 7
    assert not told.is_whole


def test_money_is_compared_and_told_exactly() -> None:
    assert record(b'{"a": 10.10, "b": 1e99999999999999999999}')["a"] == Decimal("10.10")
    assert changes(record(b'{"a": 10.10}'), record(b'{"a": 10.1}')) == []
    told = changes(record(b'{"a": 0.1}'), record(b'{"a": 12345678901234567890.01}'))
    assert msgspec.json.Encoder(decimal_format="number").encode(told[0].after) == b"12345678901234567890.01"


def test_a_long_list_is_read_as_a_short_one_is() -> None:
    liens = ", ".join(f'{{"certificate_number": "C-{number}", "amount": 1.10}}' for number in range(10_000))
    text = f' {{"owner": null, "liens": [{liens}], "notes": [[1, true]]}}'
    found: Any = record(text.encode())
    assert found == msgspec.json.Decoder(float_hook=Decimal).decode(text)
    assert str(found["liens"][-1]["amount"]) == "1.10"
    for broken in (text[:-1], text.replace("C-9999", '"'), "[1]", "7", "", '{"liens":' + "[" * 300_000):
        assert record(broken.encode()) == {}
