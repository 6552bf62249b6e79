"""The doctor's findings for people: what is well in a line each, what is not with what to do about it."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterator

from parcelpost.cli.doctor.report import Checked, Report, State
from parcelpost.cli.output import count, printable
from parcelpost.cli.status_report import Problem

_ORDER = ("store", "space", "backups", "delivery", "work", "settings", "clock", "gateway", "firestore", "browser")
_ABOUT_WIDTH = max(map(len, _ORDER)) + 2
_STATE_WIDTH = max(map(len, State)) + 2
_INDENT = " " * (_ABOUT_WIDTH + _STATE_WIDTH)
_NARROWEST = 60


def lines(report: Report) -> Iterator[str]:
    width = _terminal_width()
    yield verdict(report)
    yield ""
    before = ""
    for one in sorted(report.checks, key=_place):
        for state, text in _told(one):
            about = one.about if one.about != before else ""
            before = one.about
            first, *rest = text
            yield from _wrapped(f"{about:<{_ABOUT_WIDTH}}{state:<{_STATE_WIDTH}}", first, width)
            for line in rest:
                is_command = line.startswith("$ ")
                yield from [f"{_INDENT}{line}"] if is_command else _wrapped(_INDENT, line, width)


def verdict(report: Report) -> str:
    warnings = count(report.warnings, "warning")
    if report.wrong:
        also = f", and there {'is' if report.warnings == 1 else 'are'} {warnings}" if report.warnings else ""
        return f"Attention: {count(report.wrong, 'thing')} must be mended{also}."
    return f"All is well, but for {warnings}." if report.warnings else "All is well."


def _place(one: Checked) -> int:
    return _ORDER.index(one.about) if one.about in _ORDER else len(_ORDER)


def _told(one: Checked) -> Iterator[tuple[State, list[str]]]:
    if not one.problems:
        yield one.state, [printable(one.said)]
    for problem in one.problems:
        state = State.WARNING if problem.warning else State.WRONG
        yield state, list(_advice(problem))


def _advice(problem: Problem) -> Iterator[str]:
    """What is wrong, what to do, and the command by itself: to be pasted, so it is never broken."""
    yield printable(f"{problem.what}")
    if problem.remedy and problem.remedy != f"run '{problem.command}'":
        yield printable(f"What to do: {problem.remedy}")
    if problem.command:
        yield printable(f"$ {problem.command}")


def _wrapped(begin: str, text: str, width: int | None) -> list[str]:
    if width is None:
        return [f"{begin}{text}".rstrip()]
    found = textwrap.wrap(
        text, width, initial_indent=begin, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    )
    return found or [begin.rstrip()]


def _terminal_width() -> int | None:
    """None where nobody looks at columns."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, _NARROWEST)
