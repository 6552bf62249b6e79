"""Parsers of anybody's may do anything: it costs the page they were given, and nothing else."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from parcelpost.model import Done, GiveUp, Outcome, Page, Retry, Target
from parcelpost.scrapers.platform import NotReadable, Parse
from parcelpost.worker.reparse import PageReader

TARGET = Target(parcel_id="1", state="CT", county="x")
GOOD = Page(body=b"good")


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """Lets go of what hangs, at the end."""
    event = threading.Event()
    yield event
    event.set()


def harmful(stuck: threading.Event) -> Parse:
    def parse(page: Page, target: Target) -> Outcome:
        match page.body:
            case b"raise":
                raise KeyError("owner")
            case b"exit":
                sys.exit("enough")
            case b"hang":
                stuck.wait()
        return Done(data={"parcel_id": target.parcel_id})

    return parse


async def test_whatever_a_parser_does_the_next_page_is_read(stuck: threading.Event) -> None:
    parse = harmful(stuck)
    async with PageReader.open(lambda _: parse, seconds=60) as reader:
        assert await reader.read("theirs", Page(body=b"raise"), TARGET) == Retry("KeyError: 'owner'")
        assert await reader.read("theirs", Page(body=b"exit"), TARGET) == Retry("SystemExit: enough")
        assert await reader.read("theirs", GOOD, TARGET) == Done(data={"parcel_id": "1"})


async def test_one_that_does_not_come_back_is_left_behind(stuck: threading.Event) -> None:
    parse = harmful(stuck)
    async with PageReader.open(lambda _: parse, seconds=0.05) as reader:
        outcome = await reader.read("theirs", Page(body=b"hang"), TARGET)
        assert outcome == Retry("took longer than 0.05 s and did not stop")
    async with PageReader.open(lambda _: parse, seconds=60) as reader:
        assert await reader.read("theirs", GOOD, TARGET) == Done(data={"parcel_id": "1"})


async def test_one_that_is_async_is_awaited() -> None:
    async def parse(page: Page, target: Target) -> Outcome:
        return Done(data={"body": page.body.decode()})

    async with PageReader.open(lambda _: parse) as reader:
        assert await reader.read("theirs", GOOD, TARGET) == Done(data={"body": "good"})


async def test_a_platform_that_cannot_be_imported_is_looked_for_once_and_said_to_be() -> None:
    asked: list[str] = []

    def parsers(name: str) -> Parse | NotReadable:
        asked.append(name)
        if name == "exits":
            sys.exit("no licence")
        return NotReadable("it has no parse function")

    async with PageReader.open(parsers) as reader:
        for _ in range(2):
            reason = NotReadable("it cannot be imported: SystemExit: no licence")
            assert await reader.unreadable("exits") == reason
            assert await reader.read("exits", GOOD, TARGET) == GiveUp(reason.reason)
            assert await reader.unreadable("theirs") == NotReadable("it has no parse function")
    assert asked == ["exits", "theirs"]
