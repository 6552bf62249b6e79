"""Tables, sizes, ages, progress."""

from __future__ import annotations

import asyncio

import pytest

from parcelpost.cli.output import age, count, fitted, printable, size, table
from parcelpost.cli.progress import Meter
from parcelpost.clock import ManualClock


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    assert table(("name", "count"), [("a", 1), ("long name", 20_000), ("b", None)]) == [
        "name        count",
        "a               1",
        "long name  20,000",
        "b               -",
    ]


@pytest.mark.parametrize(
    ("count_of_bytes", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (1024**3, "1.0 GiB"), (5 * 1024**4, "5.0 TiB")],
)
def test_sizes(count_of_bytes: int, text: str) -> None:
    assert size(count_of_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (172_800, "2 days")],
)
def test_ages(seconds: float, text: str) -> None:
    assert age(seconds) == text


def test_counts() -> None:
    assert (count(1, "task"), count(2_000, "task"), count(0, "process", "processes")) == (
        "1 task",
        "2,000 tasks",
        "0 processes",
    )


def test_a_long_line_breaks_between_words_and_goes_on_below_its_column() -> None:
    assert list(fitted(["  vgsi   an assessor's pages", "one two three"], 20)) == [
        "  vgsi   an",
        "         assessor's",
        "         pages",
        "one two three",
    ]


def test_what_is_not_printable_is_escaped() -> None:
    assert printable("Müller \x1b[31m\n") == "Müller \\x1b[31m\\n"


async def test_what_is_quick_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    async with Meter("copying") as meter:
        meter(1, 2)
        await asyncio.to_thread(lambda: None)
    assert capsys.readouterr() == ("", "")


async def test_what_takes_long_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    async with Meter("copying", clock=clock) as meter:
        await asyncio.to_thread(lambda: None)
        meter(3, 1_000)
        for _ in range(3):
            await asyncio.sleep(0)
        meter(4, None)
        for _ in range(3):
            await asyncio.sleep(0)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "copying ..."
    assert "copying: 3 of 1,000" in lines
    assert lines[-1] == "copying: 4"
    assert clock.monotonic() >= 12
