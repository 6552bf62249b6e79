"""What the doctor found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from parcelpost.cli.status_report import Problem
from parcelpost.settings import Settings
from parcelpost.settings.sources import Diagnosis


class State(StrEnum):
    WELL = "well"
    SKIPPED = "skipped"
    WARNING = "warning"
    WRONG = "wrong"


class Case(Struct, frozen=True, kw_only=True):
    """What is to be examined."""

    store: Path
    found: Diagnosis
    deep: bool
    wal_bytes: int
    """Before anybody looked: to open a store may shorten it."""
    limit_seconds: float
    """No check takes longer."""
    upstream: State = State.SKIPPED
    """What the upstream said when it was asked just now."""

    @property
    def settings(self) -> Settings:
        return self.found.partly


class Answer(Struct, frozen=True):
    """Of one check."""

    about: str
    said: str
    """What is so, in a few words; '' where the problems say it all."""
    problems: Sequence[Problem] = ()
    skipped: bool = False
    """It could not be looked at, or there is nothing to look at."""
    damaged: bool = False
    """The database file is."""


class Checked(Struct, frozen=True, kw_only=True):
    about: str
    state: State
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
    checks: list[Checked]


def checked(answer: Answer) -> Checked:
    if any(not one.warning for one in answer.problems):
        state = State.WRONG
    elif answer.problems:
        state = State.WARNING
    else:
        state = State.SKIPPED if answer.skipped else State.WELL
    return Checked(about=answer.about, state=state, said=answer.said, problems=list(answer.problems))
