"""What `parcelpost doctor` found, and how it is printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from parcelpost.cli.health.store_status import Problem
from parcelpost.cli.options import StoreContext
from parcelpost.cli.output import count, print_lines, printable, terminal_width, wrapped
from parcelpost.settings import Settings
from parcelpost.settings.sources import Diagnosis


class CheckState(StrEnum):
    WELL = "well"
    SKIPPED = "skipped"
    WARNING = "warning"
    WRONG = "wrong"


class CheckContext(Struct, frozen=True, kw_only=True):
    """What is to be examined."""

    store: StoreContext
    found: Diagnosis
    deep: bool
    wal_bytes: int
    """Before anybody looked: to open a store may shorten it."""
    limit_seconds: float
    """No check takes longer."""
    upstream: CheckState = CheckState.SKIPPED
    """What the upstream said when it was asked just now."""

    @property
    def settings(self) -> Settings:
        return self.found.partly


class CheckResult(Struct, frozen=True):
    """Of one check."""

    about: str
    said: str
    """What is so, in a few words; '' where the problems say it all."""
    problems: Sequence[Problem] = ()
    skipped: bool = False
    """It could not be looked at, or there is nothing to look at."""
    damaged: bool = False
    """The database file is."""


class ReportLine(Struct, frozen=True, kw_only=True):
    about: str
    state: CheckState
    said: str
    problems: list[Problem]


class Report(Struct, frozen=True, kw_only=True):
    well: bool
    """Nothing must be mended; there may be warnings."""
    wrong: int
    warnings: int
    at: datetime
    version: str
    store: str
    checks: list[ReportLine]


def report_line(answer: CheckResult) -> ReportLine:
    if any(not one.warning for one in answer.problems):
        state = CheckState.WRONG
    elif answer.problems:
        state = CheckState.WARNING
    else:
        state = CheckState.SKIPPED if answer.skipped else CheckState.WELL
    return ReportLine(about=answer.about, state=state, said=answer.said, problems=list(answer.problems))


_ORDER = ("store", "space", "backups", "delivery", "work", "settings", "clock", "gateway", "firestore", "browser")
_ABOUT_WIDTH = max(map(len, _ORDER)) + 2
_STATE_WIDTH = max(map(len, CheckState)) + 2
_INDENT = " " * (_ABOUT_WIDTH + _STATE_WIDTH)
_COLOURS = {
    CheckState.WELL: "green",
    CheckState.SKIPPED: "dim",
    CheckState.WARNING: "yellow",
    CheckState.WRONG: "bold red",
}


def report_lines(report: Report) -> Iterator[str]:
    width = terminal_width()
    yield verdict(report)
    yield ""
    before = ""
    for one in sorted(report.checks, key=_line_order):
        for state, text in _line_text(one):
            about = one.about if one.about != before else ""
            before = one.about
            first, *rest = text
            begin = f"{about:<{_ABOUT_WIDTH}}{state:<{_STATE_WIDTH}}"
            for line in (first, *rest):
                is_whole = width is None or line.startswith("$ ")
                yield from [f"{begin}{line}"] if is_whole else wrapped(begin, line, _INDENT, width or 0)
                begin = _INDENT


def verdict(report: Report) -> str:
    warnings = count(report.warnings, "warning")
    if report.wrong:
        also = f", and there {'is' if report.warnings == 1 else 'are'} {warnings}" if report.warnings else ""
        return f"Attention: {count(report.wrong, 'thing')} must be mended{also}."
    return f"All is well, but for {warnings}." if report.warnings else "All is well."


def _line_order(one: ReportLine) -> int:
    return _ORDER.index(one.about) if one.about in _ORDER else len(_ORDER)


def _line_text(one: ReportLine) -> Iterator[tuple[CheckState, list[str]]]:
    if not one.problems:
        yield one.state, [printable(one.said)]
    for problem in one.problems:
        state = CheckState.WARNING if problem.warning else CheckState.WRONG
        yield state, list(_advice(problem))


def _advice(problem: Problem) -> Iterator[str]:
    """What is wrong, what to do, and the command by itself: to be pasted, so it is never broken."""
    yield printable(f"{problem.what}")
    if problem.remedy and problem.remedy != f"run '{problem.command}'":
        yield printable(f"What to do: {problem.remedy}")
    if problem.command:
        yield printable(f"$ {problem.command}")


def print_report(report: Report) -> None:
    """In colours on a terminal that has them."""
    if not sys.stdout.isatty():
        print_lines(report_lines(report))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in report_lines(report):
        text = Text(line)
        state = line[_ABOUT_WIDTH : _ABOUT_WIDTH + _STATE_WIDTH].strip()
        if state in _COLOURS:
            text.stylize(_COLOURS[CheckState(state)], _ABOUT_WIDTH, _ABOUT_WIDTH + len(state))
        console.print(text, soft_wrap=True)
