"""One frame: it fits, says what it must, and nothing from elsewhere reaches the terminal as it is."""

from __future__ import annotations

import io
import re
from itertools import product

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from parcelpost.cli.top.data import StoreFailure, TopData
from parcelpost.cli.top.terminal import TO_ASCII
from parcelpost.cli.top.view import VIEWS, View, bar_graph, frame, printed_frame, safe
from tests.cli.top import frames
from tests.cli.top.frames import FAILURE

STATES: dict[str, tuple[TopData | None, StoreFailure | None]] = {
    "loading": (None, None),
    "never read": (None, FAILURE),
    "empty": (frames.empty(), None),
    "busy": (frames.busy(), None),
    "crowded": (frames.busy(platforms=12, slots=60), None),
    "away": (frames.away(), None),
    "lost": (frames.busy(), FAILURE),
    "hostile": (frames.busy(frames.HOSTILE), None),
}
SIZES = [(80, 24), (40, 10), (200, 60), (120, 40), (20, 4), (81, 25), (1, 1), (19, 50), (300, 5), (20, 200), (120, 7)]


def draw(
    data: TopData | None,
    width: int = 80,
    height: int = 24,
    view: View = View(),
    failure: StoreFailure | None = None,
    *,
    ascii_only: bool = False,
    color: bool = False,
) -> str:
    encoding, errors = ("ascii", TO_ASCII) if ascii_only else ("utf-8", "strict")
    written = io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding, errors=errors, newline="\n")
    console = Console(
        width=width, height=height, file=file, force_terminal=color, color_system="standard" if color else None
    )
    console.print(frame(data, console, view, failure))
    file.flush()
    return written.getvalue().decode()


def words(*args: object, **options: object) -> str:
    """Without the frames of panels and the line ends between words."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", draw(*args, **options)).split())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ascii_only"), [*((name, False) for name in STATES), ("hostile", True), ("busy", True)]
)
def test_a_frame_fits_in_every_size(name: str, ascii_only: bool) -> None:
    data, failure = STATES[name]
    for (width, height), view in [*product(SIZES, VIEWS[:1]), *product([(80, 24), (33, 7)], VIEWS[1:])]:
        shown = draw(data, width, height, View(name=view), failure, ascii_only=ascii_only)
        lines = shown.removesuffix("\n").split("\n")
        assert len(lines) == height, (width, height, view)
        assert max(map(cell_len, lines)) <= width, (width, height, view)
        assert "".join(lines).isprintable()
        assert shown.isascii() or not ascii_only


@pytest.mark.parametrize(("width", "height"), [(80, 40), (120, 40), (200, 60)])
def test_everything_is_on_one_screen(width: int, height: int) -> None:
    shown = words(frames.busy(), width, height)
    for text in (
        "host-1a2b3c4d · ondemand → gateway.example.org · up 3 h",
        "Problem 1 of 2: the upstream rejected 2 results",
        "Problem 2 of 2: there is no backup yet",
        "6 problems: 2",
        "6 running · 4,960 pending (48 delayed) · 48 failed · 392,492 completed",
        "118 results to deliver, oldest 6 min · 2 rejected",
        "sent 50 results 12 s ago · received 100 tasks 70 s ago",
        "22.0 MiB of 1.0 GiB (2.2%) · 44.0 GiB free on disk · no backup",
        "rates 10 min; memory, CPU, task time 1 h",
        "slots 6 of 8 busy",
        "columbia, FL",
        "platforms 4",
        "paused until 14:30",
        "browsers 2",
        "3x 503 Service Unavailable",
    ):
        assert text in shown, text
    assert re.search(r"scraped +[▁▂▃▄▅▆▇█]{10,} +\d+/min", draw(frames.busy(), width, 24))


def test_printed_it_shows_everything_without_an_end_of_the_window() -> None:
    console = Console(width=80, file=io.StringIO())
    with console.capture() as printed:
        console.print(printed_frame(frames.busy(platforms=12, slots=60), console))
    for text in ("slots  8 of 8 busy, 52 tasks held by other processes", "beacon2", "00354-059", "3x 503", "orphaned"):
        assert text in printed.get()
    assert " more " not in printed.get()


@pytest.mark.parametrize(
    ("state", "view", "texts"),
    [
        ("empty", "all", ["no worker is running", "No problems.", f"Start one with '{frames.START}'", "No tasks yet."]),
        ("empty", "errors", ["errors None."]),
        ("empty", "browsers", ["browsers None needed yet."]),
        ("loading", "all", ["Loading ..."]),
        (
            "never read",
            "all",
            ["Cannot read the store: another program holds the lock. Fix: close it. Retrying for 9 s."],
        ),
        ("lost", "all", ["Cannot read the store: another program holds the lock.", "4,960 pending"]),
        (
            "away",
            "all",
            ["sync offline, next attempt in 3 min (4 failures): 503 Service Unavailable", "offline for 7 min"],
        ),
        ("away", "problems", ["No problems. Note: the gateway has been offline for 7 min: 503 Service Unavailable"]),
        ("busy", "problems", ["2. there is no backup yet. Fix: run 'parcelpost store backup'."]),
        ("crowded", "platforms", ["beacon2", "paused until 14:30: it blocked us"]),
        ("crowded", "slots", ["slots 8 of 8 busy, 52 tasks held by other processes +"]),
    ],
)
def test_each_state_and_view_says_what_it_must(state: str, view: str, texts: list[str]) -> None:
    data, failure = STATES[state]
    shown = words(data, 100, 26, View(name=view), failure)  # type: ignore[arg-type]
    for text in texts:
        assert text in shown


def test_the_errors_view_shows_a_long_message_in_full() -> None:
    message = " ".join(f"word{n}" for n in range(60))
    data = frames.busy()
    long = replace(data, errors=(replace(data.errors[0], error=message), *data.errors))
    assert "word59" not in draw(long, 80, 40)
    assert "word59" in draw(long, 80, 40, View(name="errors"))
    assert "shift-tab" in draw(long, view=View(shows_help=True))


def test_a_slow_task_and_a_paused_screen_stand_out() -> None:
    shown = draw(frames.busy(), 120, 60, View(paused=True), color=True)
    assert "\x1b[33m85 s\x1b[0m" in shown
    assert "\x1b[33m paused\x1b[0m" in shown


def test_marks_do_not_pile_up_and_control_characters_are_escaped() -> None:
    assert safe("e\u0301\u0301\u0301") == "é"
    assert safe("a\u202eb\x1b[2J\n") == "a\\u202eb\\x1b[2J\\n"


def test_no_more_slots_are_busy_than_there_are() -> None:
    data = frames.busy(slots=7)
    (worker,) = data.statuses
    assert "slots 4 of 4 busy, 3 tasks held by other processes" in words(
        replace(data, statuses=(replace(worker, slots=4),)), 100, 40
    )
    others = tuple(replace(task, claimed_by="scrapy-1") for task in data.running[:5])
    mixed = replace(data, running=(*others, *data.running[5:]))
    assert "slots 2 of 8 busy, 5 tasks held by other processes" in words(mixed, 100, 40)
    assert "held by" not in words(data, 100, 40)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 30)])
def test_platforms_that_are_worked_on_come_first_and_then_those_with_problems(width: int, height: int) -> None:
    data = frames.busy(platforms=12, slots=1)
    counts = {"pending": 1, "processing": 1}
    active = replace(
        data,
        running=(replace(data.running[0], platform="zz_active"),),
        platforms={**data.platforms, "zz_active": counts},
        errors=(),
    )
    shown = draw(active, width, height).split("platforms")[1]
    assert shown.index("zz_active") < shown.index("qpublic")
    full = draw(active, width, 50, View(name="platforms")).split("platforms")[1]
    assert full.index("zz_active") < full.index("qpublic") < full.index("beacon"), "qpublic fails often"


@pytest.mark.parametrize(("width", "height"), [(200, 60), (100, 60), (250, 70), (80, 100)])
def test_a_large_window_is_filled(width: int, height: int) -> None:
    lines = draw(frames.busy(platforms=2, slots=2), width, height).splitlines()
    blank = [line for line in lines if not line.strip(" │")]
    assert len(blank) <= height // 4
    graph = next(line for line in lines if line.startswith("│ scraped"))
    assert len(graph.rstrip()) > width // 3


def test_a_graph_is_as_wide_as_its_room() -> None:
    assert bar_graph([0, 1, 4, 8], 4, 1) == ["·▁▄█"]
    assert bar_graph([0, 1, 4, 8], 8, 1) == ["··▁▁▄▄██"]
    assert bar_graph([0, 1, 4, 8], 2, 2) == [" █", "▂█"]
    assert bar_graph([None, 50.0], 4, 1, 100.0) == ["··▄▄"]
    assert bar_graph([], 3, 1) == ["···"]
