"""How much a page may tell us."""

from __future__ import annotations

from parcelpost.scrapers.browser.page import MessageLimit


def test_it_is_told_once_and_each_kind_is_counted_by_itself() -> None:
    told: list[str] = []
    flood = MessageLimit(told.append)
    for _ in range(1_000):
        assert not flood.rises("words", 0)
        assert not flood.rises("errors")
    assert told == []
    assert flood.rises("words")
    assert flood.rises("errors")
    assert told == ["more than 1,000 lines on its console"]


def test_a_line_counts_for_what_is_in_it() -> None:
    told: list[str] = []
    flood = MessageLimit(told.append)
    assert not flood.rises("words", 999)
    assert flood.rises("words", 2)


def test_who_listens_counts_too() -> None:
    told: list[str] = []
    listener = MessageLimit(told.append).listener("windows")
    for _ in range(200):
        listener("one more")
    assert told == ["more than 100 windows"]
