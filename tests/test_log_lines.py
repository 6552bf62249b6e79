"""Events as log lines."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost import events
from parcelpost.clock import ManualClock
from parcelpost.events import Event
from parcelpost.log_lines import LINES, make_log

EVENTS = sorted(Event.__subclasses__(), key=lambda one: one.__name__)
SYNCED = events.ResultsSynced(results=3, reports=0, raw_files=1, seconds=0.41)
LEVELS = ("debug", "info", "warning", "error")


def make(kind: type[Event], text: str = "some text") -> Event:
    """One with a value of the right type in every field."""
    values: dict[Any, Any] = {str: text, int: 7, float: 7.5, bool: True, list[int]: [2], list[str]: [text]}
    return kind(**{field.name: values[field.type] for field in msgspec.structs.fields(kind)})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(event: Event, *, level: str = "debug", format: str = "json") -> str:  # noqa: A002
    stream = io.StringIO()
    make_log(level, format, stream, ManualClock())(event)
    return stream.getvalue()


def spoken(event: Event) -> str:
    """The sentence of the line for people."""
    return written(event, format="human").split(maxsplit=2)[2].rstrip("\n")


def test_every_event_has_a_level_and_a_sentence() -> None:
    assert set(LINES) == set(EVENTS)


def test_every_event_is_one_line_in_both_forms(subtests: pytest.Subtests) -> None:
    for kind in EVENTS:
        with subtests.test(kind=kind):
            line = json.loads(written(make(kind)))
            assert (line["time"], line["event"]) == ("2026-01-01T00:00:00.000Z", kind.__name__)
            assert line["level"] in LEVELS
            fields = {"store_level" if name == "level" else name for name in kind.__struct_fields__}
            assert set(line) == {"time", "level", "event"} | fields
            text = written(make(kind), format="human")
            assert text.count("\n") == 1
            assert text.split()[1] == line["level"]


def test_what_came_from_outside_can_neither_end_the_line_nor_move_the_cursor(subtests: pytest.Subtests) -> None:
    for format_ in ["human", "json"]:
        for kind in EVENTS:
            with subtests.test(format_=format_, kind=kind):
                hostile = "\x1b[2J\r\n\u2028\u202e\ud800\0\x85" + "x" * 100_000
                text = written(make(kind, hostile), format=format_)
                assert text.endswith("\n")
                assert text[:-1].isprintable()
                assert len(text) < 3_000


def test_a_line_for_people_has_local_time_level_and_sentence() -> None:
    local = datetime(2026, 1, 1, tzinfo=UTC).astimezone()
    assert written(SYNCED, format="human") == f"{local:%H:%M:%S} info    3 results delivered (1 raw file) in 0.4 s\n"


def test_a_line_for_programs_has_the_fields() -> None:
    assert json.loads(written(SYNCED)) == {
        "time": "2026-01-01T00:00:00.000Z",
        "level": "info",
        "event": "ResultsSynced",
        "results": 3,
        "reports": 0,
        "raw_files": 1,
        "seconds": 0.41,
    }


def test_auto_is_for_people_on_a_terminal_and_json_elsewhere() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        make_log("info", "auto", stream)(SYNCED)
    assert "3 results delivered" in terminal.getvalue()
    assert json.loads(file.getvalue())["results"] == 3


def attempt(outcome: str) -> Event:
    return events.AttemptEnded(task_id="t1", platform="vgsi", outcome=outcome, seconds=1.0, reason="")


def away(denied: bool) -> Event:
    return events.UpstreamOffline(loop="sync", reason="503", denied=denied, retry_in_seconds=45.0)


def test_an_upstream_that_responds_with_an_error_is_not_called_offline() -> None:
    reason = "GET /internal/work returned 503: its database is down"
    event = msgspec.structs.replace(away(denied=False), reason=reason, responded=True)
    assert spoken(event) == f"sync: the upstream responds with an error ({reason}); next attempt in 45 s"
    assert spoken(away(denied=False)) == "sync: the upstream is offline (503); next attempt in 45 s"


def test_the_level_says_whether_somebody_must_look(subtests: pytest.Subtests) -> None:
    for event, level in [
        (attempt("done"), "debug"),
        (attempt("not_found"), "debug"),
        (attempt("retry"), "info"),
        (attempt("give_up"), "info"),
        (attempt("blocked"), "info"),
        (away(denied=False), "warning"),
        (away(denied=True), "error"),
        (events.TasksReceived(new=0, known=0, bad=0), "debug"),
        (events.TasksReceived(new=1, known=0, bad=0), "info"),
        (events.TasksReceived(new=1, known=0, bad=1), "warning"),
        (events.EntryRefused(task_id="t1", reason="no", rejected=False), "warning"),
        (events.EntryRefused(task_id="t1", reason="no", rejected=True), "error"),
        (events.CommandReceived(command="pause", known=True), "info"),
        (events.CommandReceived(command="dance", known=False), "warning"),
        (events.BrowserOrphansRemoved(owner="worker-1-0123abcd", processes=0), "info"),
        (events.BrowserOrphansRemoved(owner="worker-1-0123abcd", processes=2), "warning"),
        (events.StorageLevelChanged(level="fine", bytes=1, max_bytes=2, free_bytes=3), "info"),
        (events.StorageLevelChanged(level="executor must stop", bytes=1, max_bytes=2, free_bytes=3), "warning"),
    ]:
        with subtests.test(event=event, level=level):
            assert json.loads(written(event))["level"] == level


@pytest.mark.parametrize(("level", "shown"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_lines_below_the_level_are_left_out(level: str, shown: int) -> None:
    stream = io.StringIO()
    emit = make_log(level, "json", stream)
    for event in (attempt("done"), SYNCED, away(denied=False), away(denied=True)):
        emit(event)
    assert len(stream.getvalue().splitlines()) == shown


def test_a_denial_is_told_with_what_to_do() -> None:
    event = msgspec.structs.replace(away(denied=True), remedy="deploy the indexes")
    assert written(event, format="human").rstrip().endswith("next attempt in 45 s; deploy the indexes")
    assert json.loads(written(event))["remedy"] == "deploy the indexes"
    assert not written(away(denied=True), format="human").rstrip().endswith(";")


def test_numbers_that_json_lacks_become_text() -> None:
    event = events.UpstreamOnline(loop="sync", offline_seconds=float("inf"))
    assert json.loads(written(event), parse_constant=pytest.fail)["offline_seconds"] == "inf"


def test_letters_that_the_stream_lacks_are_escaped() -> None:
    event = events.TaskSkipped(task_id="t1", problem="Müller")
    for form, expected in (("human", b"M\\xfcller"), ("json", b"M\\u00fcller")):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="ascii")
        make_log("info", form, stream)(event)
        assert expected in raw.getvalue()


def test_a_closed_stream_hurts_nobody() -> None:
    stream = io.StringIO()
    emit = make_log("info", "auto", stream)
    stream.close()
    emit(SYNCED)
    make_log("info", "auto", stream)(SYNCED)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_loses_lines_and_nothing_else(tmp_path: Path) -> None:
    room = tmp_path / "log"
    with Path("/dev/full").open("w") as full, room.open("w") as other:
        emit = make_log("info", "json", full)
        emit(SYNCED)
        os.dup2(other.fileno(), full.fileno())  # there is room again
        emit(SYNCED)
    assert json.loads(room.read_text().splitlines()[-1])["results"] == 3


BROKEN_PIPE = """
import sys
from parcelpost.events import PagesServed
from parcelpost.log_lines import make_log
emit = make_log("info", "auto", sys.stderr)
sys.stdin.readline()
for number in range(10_000):
    emit(PagesServed(address=str(number)))
print("went on")
"""


def test_a_reader_that_left_hurts_nobody() -> None:
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", BROKEN_PIPE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=writer
    ) as process:
        os.close(writer)
        os.close(reader)
        out, _ = process.communicate(b"\n", timeout=60)
    assert out == b"went on\n"
    assert process.returncode in {0, 120}, "120: Python itself could not flush its standard error at the end"
