"""What a platform makes of pages that are not what it serves, or not only that."""

from __future__ import annotations

import pytest

from parcelpost.model import Blocked, Done, Outcome, Page, Retry, Target
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Piece
from parcelpost.scrapers.html.extract import Field
from parcelpost.scrapers.html.selectors import Id
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import Record

GUARD = "<script src='https://js.datadome.co/tags.js'></script>"


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


OWNER = Field("owner_names", (Id("o"),), _words)


def _read(reader: PageReader) -> ReadResult:
    owner = reader.extractor.value(OWNER)
    return Record(parcel_id="1", owner_names=[owner]) if owner else Retry("no owner")


PLATFORM = CountyPlatform(name="made_up", version=1, read=_read)


def read(html: str) -> Outcome:
    return PLATFORM.parse(Page(body=html.encode()), Target(parcel_id="1", state="CT", county="x")).outcome


def test_a_parcels_page_that_carries_a_guards_script_is_read() -> None:
    assert isinstance(read(f"<html><body>{GUARD}<b id=o>ANN</b></body></html>"), Done)


@pytest.mark.parametrize("html", [f"<html>{GUARD}</html>", f"<html>{GUARD}"], ids=["whole", "without an end"])
def test_a_page_with_a_guards_script_and_no_record_is_a_challenge(html: str) -> None:
    assert isinstance(read(html), Blocked)


def test_a_large_page_is_a_challenge_by_its_title_and_not_by_a_guards_script() -> None:
    words = "<!--" + "x" * 80_000 + "-->"
    assert isinstance(read(f"<html><title>Just a moment...</title>{words}</html>"), Blocked)
    assert isinstance(read(f"<html>{GUARD}{words}</html>"), Retry)


def test_a_page_without_an_end_is_tried_again_although_it_shows_the_record() -> None:
    assert isinstance(read("<html><body><b id=o>ANN</b>"), Retry)
