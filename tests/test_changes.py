"""What counts as a change between two scrapes of a parcel, and what does not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.json import encode

from parcelpost.changes import Facts, Kind, Scraped, changes, compare, facts_of, merged
from tests.gateway.factories import NOON

HOUR = timedelta(hours=1)


def facts(**record: Any) -> Facts:
    return facts_of(encode(record))


def kinds(before: Facts | None, after: Facts, *others: Facts) -> list[str]:
    return [change.kind.value for change in changes(before, after, others)]


def lien(number: str = "55", **fields: Any) -> dict[str, Any]:
    return {"certificate_number": number, "certificate_year": 2023, "status": "open", "face_amount": 100, **fields}


def test_each_kind_is_found_once(subtests: pytest.Subtests) -> None:
    sale = {"date": "2020-01-02", "price": 5, "book_page": "12/34"}
    cases: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
        ({"owner_names": ["ANN SMITH"]}, {"owner_names": ["BO JONES"]}, ["owner.changed"]),
        ({"market_value": 5, "assessed_value": 4}, {"market_value": 6, "assessed_value": 5}, ["value.changed"]),
        ({"delinquent": False, "tax_due": 0}, {"delinquent": True, "tax_due": 9.5}, ["tax.delinquent"]),
        ({"delinquent": True, "tax_due": 9.5}, {"delinquent": False, "tax_due": 0}, ["tax.paid"]),
        ({"tax_due": 9.5}, {"tax_due": 0}, ["tax.paid"]),
        ({"sales": [sale]}, {"sales": [{"date": "2026-01-01", "price": 7}, sale]}, ["sale.new"]),
        ({"sales": []}, {"sales": [sale]}, ["sale.new"]),
        ({"sales": [sale]}, {"sales": [{**sale, "book_page": "1/234"}]}, ["sale.new"]),
        ({"sales": [{**sale, "book_page": "1/11"}]}, {"sales": [{**sale, "book_page": "11/1"}]}, ["sale.new"]),
        ({"liens": []}, {"liens": [lien()]}, ["lien.new"]),
        ({"liens": [lien()]}, {"liens": [lien(status="Redeemed")]}, ["lien.redeemed"]),
        ({"liens": [lien()]}, {"liens": []}, ["lien.gone"]),
        ({"liens": [lien()]}, {"liens": [lien(holder_name="FUND"), lien("56")]}, ["lien.new"]),
        ({"liens": [lien(holder_name="A")]}, {"liens": [lien(holder_name="B", face_amount=7)]}, ["lien.changed"]),
        (
            {"liens": [lien()]},
            {"liens": [lien(), lien(subsequent_tax=True, sale_date="2024-05-01")]},
            ["lien.subtaxed"],
        ),
    ]
    for before, after, expected in cases:
        with subtests.test(before=before, after=after):
            assert kinds(facts(**before), facts(**after)) == expected


def test_what_is_no_fact_is_no_change(subtests: pytest.Subtests) -> None:
    early, late = {"date": "2001-01-01", "price": 1}, {"date": "2020-01-01", "price": 2, "book_page": "1/2"}
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("spelling", {"owner_names": ["SMITH, ANN & BO"]}, {"owner_names": ["Bo", "Smith Ann"]}),
        ("accents", {"owner_names": ["PEÑA, JOSÉ"]}, {"owner_names": ["Pena Jose\u0301"]}),
        ("an apostrophe", {"owner_names": ["O'BRIEN ANN", "D\u2019ARCY"]}, {"owner_names": ["OBRIEN ANN", "DARCY"]}),
        ("a name listed twice", {"owner_names": ["ANN SMITH"]}, {"owner_names": ["ANN SMITH", "SMITH ANN"]}),
        ("padded book and page", {"sales": [late]}, {"sales": [{**late, "book_page": "0001/002"}]}),
        ("no book and page", {"sales": [late]}, {"sales": [{**late, "book_page": "0/0"}]}),
        ("liens null", {"liens": [lien()]}, {"liens": None}),
        ("liens not named", {"liens": [lien()]}, {"market_value": 5}),
        ("no longer shown", {"owner_names": ["ANN"], "market_value": 5, "delinquent": True}, {}),
        ("shown for the first time", {}, {"owner_names": ["ANN"], "market_value": 5, "delinquent": True}),
        ("parser", {"parser_version": "a/1", "scraped_at": "x"}, {"parser_version": "a/2", "scraped_at": "y"}),
        ("order of rows", {"liens": [lien("1"), lien("2")]}, {"liens": [lien("2"), lien("1")]}),
        ("another spelling of a number", {"liens": [lien("2023-000055")]}, {"liens": [lien("55")]}),
        ("liens unreadable", {"liens": [lien()]}, {"liens": [], "unreadable": ["liens"]}),
        ("liens missing", {"liens": [lien()]}, {"liens": [], "completeness": "missing: liens"}),
        ("sales unreadable before", {"sales": [], "unreadable": ["sales"]}, {"sales": [late]}),
        ("an old sale shown late", {"sales": [late]}, {"sales": [late, early]}),
        ("a sale recorded", {"sales": [{**late, "book_page": None}]}, {"sales": [late]}),
        (
            "a sale's price is corrected",
            {"sales": [{**late, "book_page": None}]},
            {"sales": [{**late, "price": 250_000}]},
        ),
        (
            "order of rows with the same number",
            {"liens": [lien(holder_name="A"), lien(holder_name="B")]},
            {"liens": [lien(holder_name="B"), lien(holder_name="A")]},
        ),
        ("more interest", {"tax_due": 5, "delinquent": True}, {"tax_due": 6, "delinquent": True}),
        (
            "a holder spelled otherwise",
            {"liens": [lien(holder_name="A.B. Fund")]},
            {"liens": [lien(holder_name="AB FUND")]},
        ),
        ("the same number written otherwise", {"market_value": 5}, {"market_value": 5.00}),
    ]
    for why, before, after in cases:
        with subtests.test(why):
            assert kinds(facts(**before), facts(**after)) == []
            assert kinds(merged(facts(**before), facts(**after), NOON), facts(**before)) == [], "nor is the way back"


def test_what_another_source_showed_already_is_not_reported_again() -> None:
    known = facts(owner_names=["ANN"], delinquent=False, market_value=5, liens=[lien()])
    new = facts(owner_names=["BO"], delinquent=True, market_value=6, liens=[lien(status="redeemed"), lien("56")])
    changed = merged(known, new, NOON)
    assert kinds(known, new) == ["owner.changed", "value.changed", "tax.delinquent", "lien.redeemed", "lien.new"]
    assert kinds(known, new, changed) == []
    assert kinds(None, new, known) == ["lien.redeemed", "lien.new"], "a further source of a known parcel"
    assert kinds(None, new) == ["parcel.new", "lien.new", "lien.new"]


def test_a_second_source_spells_otherwise_what_the_first_reported() -> None:
    first = merged(facts(owner_names=["OLD"]), facts(owner_names=["SMITH ANN", "SMITH BO", "FUND L.L.C."]), NOON)
    for spelled in (["Ann Smith & Bo Smith", "Fund LLC"], ["Smith, Ann"], ["ANN SMITH", "BO SMITH", "FUND LLC", "CY"]):
        assert kinds(facts(owner_names=["Old, Q."]), facts(owner_names=spelled), first) == [], spelled
    assert kinds(facts(owner_names=["OLD"]), facts(owner_names=["SMITH CY"]), first) == ["owner.changed"]


def test_a_source_that_lags_hides_no_change_of_another() -> None:
    """It still shows what was true before, and what becomes true again."""
    old, new = facts(owner_names=["ANN"], delinquent=False), facts(owner_names=["BO"], delinquent=True)
    first = merged(old, new, NOON)
    assert kinds(first, old, old) == ["owner.changed", "tax.paid"]
    again = merged(first, old, NOON + HOUR)
    assert kinds(merged(old, new, NOON + HOUR / 2), old, again) == [], "the other source follows, twice"
    assert kinds(old, new, new) == ["owner.changed", "tax.delinquent"], "which the other showed from its first scrape"


def test_what_could_not_be_read_is_compared_when_it_is_read_again() -> None:
    first = facts(owner_names=["ANN"], market_value=5, liens=[lien()], sales=[])
    gap = facts(liens=[], sales=[], unreadable=["liens", "owner_names", "market_value"])
    again = facts(owner_names=["BO"], market_value=5, liens=[], sales=[])
    assert kinds(first, gap) == []
    assert kinds(merged(first, gap, NOON), again) == ["owner.changed", "lien.gone"]


def test_a_change_says_what_was_and_what_is() -> None:
    before = facts(market_value=100.10, value_year=2024, liens=[lien()])
    after = facts(market_value=200, value_year=2025, liens=[lien(status="redeemed")])
    value, redeemed = changes(before, after, [])
    assert encode([value.before, value.after]) == encode(
        [{"market_value": "100.1", "value_year": 2024}, {"market_value": "200", "value_year": 2025}]
    )
    assert (redeemed.kind, redeemed.subject) == (Kind.LIEN_REDEEMED, "55")
    assert (redeemed.before["status"], redeemed.after["status"]) == ("open", "redeemed")


def test_scrapes_are_compared_in_the_order_of_their_time() -> None:
    def scrape(task_id: str, hours: int, owner: str, source_no: int = 1) -> Scraped:
        return Scraped(7, source_no, task_id, NOON + hours * HOUR, encode({"owner_names": [owner]}))

    known, found = compare([scrape("a", 0, "ANN"), scrape("b", 1, "BO")], [])
    assert [one.change.kind.value for one in found] == ["parcel.new", "owner.changed"]
    late, found = compare([scrape("c", 0, "CY"), scrape("b", 1, "BEA")], known)
    assert found == [], "an older scrape, and a page that was parsed again"
    assert late[0].facts.owner == ("BEA",)
    _, found = compare([scrape("d", 2, "BEA"), scrape("e", 3, "DI", 2)], late)
    assert found == [], "nothing new, and a further source"


def test_another_parser_of_the_same_page_changes_nothing() -> None:
    def scrape(hours: int, owner: str, parser: str, page: str = "page") -> Scraped:
        data = encode({"owner_names": [owner], "parser_version": parser})
        return Scraped(7, 1, f"t{hours}", NOON + hours * HOUR, data, page)

    scrapes = [scrape(0, "ANN", "a/1"), scrape(1, "ANN SMITH", "a/2"), scrape(2, "BO", "a/2")]
    _, found = compare(scrapes, [])
    assert [one.change.kind.value for one in found] == ["parcel.new", "owner.changed"]
    assert found[1].change.before == {"owner": ["ANN SMITH"]}, (
        "BO is on another page of the record, or this one changed"
    )


def test_what_is_known_of_a_source_is_bounded() -> None:
    known = facts(record_kind="lien", liens=[lien(str(n)) for n in range(200)])
    for batch in range(1, 8):
        numbers = range(batch * 200, batch * 200 + 200)
        known = merged(known, facts(record_kind="lien", liens=[lien(str(n)) for n in numbers]), NOON)
    assert len(known.liens) == 1_000
    assert "2023/1599" in known.liens


def test_a_record_may_hold_anything() -> None:
    values: list[Any] = [None, 1, "x", [], [None, 1, "x", [], {}], {"a": 1}, [{"date": 1, "certificate_number": {}}]]
    for value in values:
        record = dict.fromkeys(("owner_names", "sales", "liens", "market_value", "value_year", "unreadable"), value)
        assert kinds(facts(**record), facts(**record)) == []


def test_a_lien_that_is_cut_off_is_not_gone() -> None:
    many = [lien(str(number)) for number in range(250)]
    assert "lien.gone" not in kinds(facts(liens=many), facts(liens=many[::-1]))


def test_what_a_change_is_about_is_a_short_line_without_nuls() -> None:
    sale, case = {"date": "2026-01-01\0" + "x" * 1_000}, {"case_number": "C\0" + "7" * 98, "status": "open"}
    new = facts(sales=[sale], liens=[case])
    subjects = [change.subject for change in changes(facts(sales=[], liens=[]), new, [])]
    assert [(subject[:11], len(subject)) for subject in subjects] == [("2026-01-01 ", 500), ("C 777777777", 100)]
