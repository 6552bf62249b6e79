"""The doctor's findings for people: what is well in a line each, what is not with what to do about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from parcelpost.cli.doctor.report import Checked, Report, State
from parcelpost.cli.output import count, print_lines, printable, terminal_width, wrapped
from parcelpost.cli.status_report import Problem

_ORDER = ("store", "space", "backups", "delivery", "work", "settings", "clock", "gateway", "firestore", "browser")
_ABOUT_WIDTH = max(map(len, _ORDER)) + 2
_STATE_WIDTH = max(map(len, State)) + 2
_INDENT = " " * (_ABOUT_WIDTH + _STATE_WIDTH)
_COLOURS = {State.WELL: "green", State.SKIPPED: "dim", State.WARNING: "yellow", State.WRONG: "bold red"}


def lines(report: Report) -> Iterator[str]:
    width = terminal_width()
    yield verdict(report)
    yield ""
    before = ""
    for one in sorted(report.checks, key=_place):
        for state, text in _told(one):
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


def show(report: Report) -> None:
    """In colours on a terminal that has them."""
    if not sys.stdout.isatty():
        print_lines(lines(report))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines(report):
        text = Text(line)
        state = line[_ABOUT_WIDTH : _ABOUT_WIDTH + _STATE_WIDTH].strip()
        if state in _COLOURS:
            text.stylize(_COLOURS[State(state)], _ABOUT_WIDTH, _ABOUT_WIDTH + len(state))
        console.print(text, soft_wrap=True)
