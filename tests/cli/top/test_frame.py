"""One frame: it fits, says what it must, and nothing from elsewhere reaches the terminal as it is."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
from msgspec.structs import replace

from parcelpost.cli.top.data import ScreenData
from parcelpost.cli.top.frame import frame
from parcelpost.cli.top.text import ansi, cells, plain, width_of
from parcelpost.cli.top.view import VIEWS, ViewState
from tests.cli.top import frames

STATES: dict[str, Callable[[], ScreenData]] = {
    "empty": frames.empty,
    "missing": frames.missing,
    "damaged": frames.damaged,
    "busy": frames.busy,
    "crowded": lambda: frames.busy(platforms=12, slots=60),
    "away": frames.away,
    "lost sight": frames.lost_sight,
    "hostile": lambda: frames.busy(frames.HOSTILE),
}
SIZES = [(80, 24), (40, 10), (200, 60), (120, 30), (20, 4), (81, 25), (1, 1), (19, 50), (300, 5)]


def text(seen: ScreenData, width: int = 80, height: int = 24, how: ViewState = ViewState()) -> str:
    return "\n".join(map(plain, frame(seen, width, height, how)))


def test_a_frame_fits_in_every_size(subtests: pytest.Subtests) -> None:
    for ascii_only in [False, True]:
        for name, state in STATES.items():
            with subtests.test(ascii_only=ascii_only, name=name):
                for (width, height), view in product(SIZES, VIEWS):
                    how = ViewState(view=view, ascii_only=ascii_only)
                    lines = frame(state(), width, height, how)
                    assert len(lines) == (height if width >= 20 and height >= 4 else 1)
                    assert max(map(width_of, lines)) <= width
                    shown = "".join(span.text for line in lines for span in line)
                    assert shown.isprintable()
                    assert shown.isascii() or not ascii_only


@pytest.mark.parametrize("width", [80, 160])
def test_everything_is_on_one_screen(width: int) -> None:
    shown = text(frames.busy(), width, 40)
    for word in (
        "host-1a2b3c4d · ondemand → gateway.example.org · up 3 h",
        "Attention: the gateway refused 2 results",
        "+1 more: key 6",
        "4,960 to do (48 later) · 6 running · 392,492 done · 48 failed",
        "118 results to deliver, the oldest for 6 min · 2 rejected",
        "sent 50 results 12 s ago · got 100 tasks 70 s ago",
        "22.0 MiB of 1.0 GiB, 2.2 % · 44.0 GiB free on disk · no backup",
        "scraped ",
        "slots 6 of 8 busy",
        "columbia, FL",
        "platforms 4",
        "paused until 14:30",
        "browsers 2",
        "3x 503 Service Unavailable",
    ):
        assert word in shown, word
    assert re.search(r"scraped +[▁▂▃▄▅▆▇█]{10,} +\d+/min", shown)


def test_it_is_the_same_for_the_same_data() -> None:
    assert frame(frames.busy(), 80, 24) == frame(frames.busy(), 80, 24)


def test_all_is_well_and_nothing_to_do() -> None:
    shown = text(frames.empty())
    assert "no worker is running" in shown
    assert "All is well." in shown
    assert f"No worker is running. Start one with '{frames.START}'" in shown.replace("\n", " ")
    assert "errors none" in shown


def test_a_store_that_is_not_there_is_waited_for() -> None:
    shown = text(frames.missing(), 60).replace("\n", " ")
    assert "There is no store at local_data/parcelpost.db yet. A worker makes it:" in shown
    assert "Waiting for it." in shown


def test_a_damaged_store_is_told_with_what_to_do() -> None:
    shown = text(frames.damaged())
    assert "The store cannot be read: the file is damaged: page 7" in shown
    assert "What to do: run 'parcelpost store check'" in shown


def test_what_was_seen_stays_while_the_store_cannot_be_read() -> None:
    shown = text(frames.lost_sight()).replace("\n", " ")
    assert "For 9 s the store cannot be read: another program holds the lock. What to do: close it." in shown
    assert "4,960 to do" in shown


def test_an_outage_is_told() -> None:
    assert "sync    backing off, next try in 3 min (4 failures): 503 Service Unavailable" in text(frames.away())


def test_while_the_gateway_is_away_all_is_well_but_for_that() -> None:
    wanted = "All is well; the gateway has been away for 7 min (503 Service Unavailable), and everything is kept here"
    for how in (ViewState(), ViewState(view="attention")):
        assert wanted in text(frames.away(), how=how).replace("\n", " ")


def test_the_view_of_errors_shows_all_of_a_long_one() -> None:
    long = " ".join(f"word{n}" for n in range(60))
    seen = replace(frames.busy(), troubles=(replace(frames.busy().troubles[0], error=long), *frames.busy().troubles))
    assert "word59" not in text(seen, 80, 24)
    assert "word59" in text(seen, 80, 40, ViewState(view="errors"))


def test_each_view_has_the_whole_screen() -> None:
    crowded = frames.busy(platforms=12, slots=60)
    assert text(crowded, how=ViewState(view="platforms")).count("paused until") == 1
    assert "beacon2" in text(crowded, how=ViewState(view="platforms"))
    slots = text(crowded, 100, 40, ViewState(view="slots"))
    assert re.search(r"^slots 8 of 8 busy, 52 held by others \+\d+ more ─", slots, re.MULTILINE)
    assert "there is no backup yet" in text(crowded, how=ViewState(view="attention"))
    assert "tab, right" in text(crowded, how=ViewState(helps=True))


def test_a_slow_task_and_what_is_paused_stand_out() -> None:
    coloured = "\n".join(ansi(line, color=True) for line in frame(frames.busy(), 120, 40, ViewState(paused=True)))
    assert "\x1b[33m85 s\x1b[0m" in coloured
    assert "\x1b[33mpaused  \x1b[0m" in coloured


def test_without_color_there_is_none() -> None:
    codes = {
        code
        for line in frame(frames.busy(), 120, 40)
        for code in re.findall(r"\x1b\[([\d;]*)m", ansi(line, color=False))
    }
    assert codes <= {"0", "1", "2", "7"}


def test_marks_do_not_pile_up_and_wide_letters_count_twice() -> None:
    how = ViewState()
    assert how.text("e\u0301\u0301\u0301") == "é"
    assert how.text("a\u202eb\x1b[2J\n") == "a\\u202eb\\x1b[2J\\n"
    assert cells("字a") == 3
    assert ViewState(ascii_only=True).text("字") == "\\u5b57"


def test_no_more_slots_are_busy_than_there_are_and_what_others_hold_is_told() -> None:
    seen = frames.busy(slots=7)
    (worker,) = seen.statuses
    few = replace(seen, statuses=(replace(worker, slots=4),))
    assert "slots 4 of 4 busy, 3 held by others" in text(few, 100, 40)
    strange = tuple(replace(one, claimed_by="scrapy-1") for one in seen.running[:5])
    mixed = replace(seen, running=(*strange, *seen.running[5:]))
    assert "slots 2 of 8 busy, 5 held by others" in text(mixed, 100, 40)
    assert "slots 7 of 8 busy \N{BOX DRAWINGS LIGHT HORIZONTAL}" in text(seen, 100, 40)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 30)])
def test_a_platform_that_is_worked_on_is_not_cut_off_for_others_that_wait(width: int, height: int) -> None:
    seen = frames.busy(platforms=12, slots=1)
    last = replace(seen.running[0], platform="zz_active")
    counts = {"pending": 1, "processing": 1}
    busy = replace(seen, running=(last,), platforms={**seen.platforms, "zz_active": counts})
    shown = text(busy, width, height).split("platforms")[1]
    assert "zz_active" in shown


def test_a_large_window_is_filled() -> None:
    for width, height in [(200, 60), (100, 60), (250, 70)]:
        lines = text(frames.busy(platforms=2, slots=2), width, height).splitlines()
        empty = sum(not line.strip() for line in lines)
        assert empty <= height // 6, (width, height)
        graph = next(line for line in lines if line.startswith("scraped"))
        assert len(graph.rstrip()) > width // 3
