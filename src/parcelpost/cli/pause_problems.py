"""Pauses that keep a worker from all it has to do, or that only a person can end."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost.cli.output import count
from parcelpost.cli.status_report import Pause, Problem, Status
from parcelpost.scrapers.for_a_person import needs_a_person

_TO_DO = frozenset({"pending", "delayed", "processing"})
_OPEN = (
    "a person does it once, with 'parcelpost browser open --profile NAME URL'; name the profile in the county's entry, "
    "start the worker anew, and 'parcelpost platforms resume {}'"
)
_WAIT = "they go on by themselves; 'parcelpost platforms' says how each of them does"


def pause_problems(status: Status) -> list[Problem]:
    """Of platforms that have tasks. What somebody has paused until they resume it is as they want it."""
    busy = {name for name, counts in status.platforms.items() if any(counts.get(state) for state in _TO_DO)}
    paused = {name: pause for name, pause in status.paused.items() if name in busy and pause.until}
    of_persons = {name: pause for name, pause in paused.items() if needs_a_person(pause.reason)}
    if of_persons:
        return [Problem(_text(of_persons), _OPEN.format(next(iter(of_persons))))]
    if paused and len(paused) == len(busy):
        return [Problem(f"nothing can be done now: {_text(paused)}", _WAIT, warning=True)]
    return []


def _text(paused: Mapping[str, Pause]) -> str:
    name, pause = next(iter(paused.items()))
    others = f" (and {count(len(paused) - 1, 'other platform')})" if len(paused) > 1 else ""
    return f"{name}{others} is paused until {pause.until}: {pause.reason}"
