"""Every check in turn, each within its time, and none in the way of another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from parcelpost import __version__
from parcelpost.cli.doctor import (
    of_backups,
    of_browser,
    of_clock,
    of_files,
    of_settings,
    of_store,
    of_upstream,
    of_work,
)
from parcelpost.cli.doctor.report import Answer, Case, Report, State, checked
from parcelpost.cli.progress import Meter
from parcelpost.cli.running import CLOCK
from parcelpost.cli.status_report import Problem
from parcelpost.errors import ParcelpostError, StoreCorrupt
from parcelpost.settings.sources import Diagnosis
from parcelpost.storage.errors import os_error

_SECONDS = 60.0
_DEEP_SECONDS = 3_600.0
_GRACE_SECONDS = 5.0
"""For a check that ends by itself when its time is over, and says more than that."""

Look = Callable[[Case], Awaitable[list[Answer]]]


class _Check(NamedTuple):
    about: str
    doing: str
    look: Look
    needs_store: bool = True
    tells_progress: bool = False
    """By itself."""


_CHECKS = (
    _Check("store", "opening the store", of_store.opening, needs_store=False),
    _Check("store", "checking the database file", of_store.wholeness),
    _Check("store", "checking files and folders", of_files.permissions, needs_store=False),
    _Check("store", "checking pages", of_store.pages, tells_progress=True),
    _Check("space", "looking at the write-ahead log", of_store.wal, needs_store=False),
    _Check("backups", "checking the newest backup", of_backups.newest, needs_store=False),
    _Check("settings", "checking the settings", of_settings.look, needs_store=False),
    _Check("clock", "checking the clock", of_clock.look, needs_store=False),
    _Check("clock", "comparing the clock with the store", of_clock.against_store),
    _Check("gateway", "asking the upstream", of_upstream.look, needs_store=False),
    _Check("space", "looking at the worker", of_work.look),  # after the upstream, whose word is newer than the store's
    _Check("browser", "looking for a browser", of_browser.look, needs_store=False, tells_progress=True),
)


def case_of(store: Path, found: Diagnosis, *, deep: bool) -> Case:
    wal = store.with_name(store.name + "-wal")
    try:
        wal_bytes = wal.stat().st_size
    except OSError:
        wal_bytes = 0
    seconds = _DEEP_SECONDS if deep else _SECONDS
    return Case(store=store, found=found, deep=deep, wal_bytes=wal_bytes, limit_seconds=seconds)


async def examine(case: Case) -> Report:
    answers: list[Answer] = []
    for check in _CHECKS:
        if check.needs_store and not _opened(answers):
            continue
        found_now = await _within_its_time(check, replace(case, upstream=_upstream(answers)))
        answers += found_now if not _is_known_damage(found_now, answers) else [_skipped(check)]
    found = [checked(one) for one in answers]
    problems = [problem for one in found for problem in one.problems]
    wrong = sum(not one.warning for one in problems)
    return Report(
        well=not wrong,
        wrong=wrong,
        warnings=len(problems) - wrong,
        at=CLOCK.now(),
        version=__version__,
        store=str(case.store),
        checks=found,
    )


def _is_known_damage(found: list[Answer], answers: list[Answer]) -> bool:
    """Whether a check stopped at the damage that the check of the whole file has told already."""
    return any(one.damaged for one in found) and any(one.damaged for one in answers)


def _skipped(check: _Check) -> Answer:
    return Answer(check.about, f"{check.doing}: not done, since the database file is damaged", skipped=True)


def _opened(answers: list[Answer]) -> bool:
    """What the first check says: the others that need the store have nothing to say without it."""
    return checked(answers[0]).state is State.WELL


def _upstream(answers: list[Answer]) -> State:
    return next((checked(one).state for one in answers if one.about in ("gateway", "firestore")), State.SKIPPED)


async def _within_its_time(check: _Check, case: Case) -> list[Answer]:
    try:
        progress = nullcontext() if check.tells_progress else Meter(check.doing)
        async with progress, asyncio.timeout(case.limit_seconds + _GRACE_SECONDS):
            return await check.look(case)
    except TimeoutError:
        return [_undone(check, f"not done within {case.limit_seconds:g} s", "try again when the machine is less busy")]
    except StoreCorrupt as error:
        return [replace(_undone(check, str(error), error.hint), damaged=True)]
    except ParcelpostError as error:
        return [_undone(check, str(error), error.hint)]
    except OSError as error:
        meant = os_error(error, Path(error.filename or case.store))
        return [_undone(check, str(meant), meant.hint)]
    except Exception as error:  # noqa: BLE001 - a bug of ours in one check hides what the others find
        text = f"{type(error).__name__} {error!s:.200}"
        return [_undone(check, text, "this is a mistake of the program: 'parcelpost doctor --bundle' for its makers")]


def _undone(check: _Check, why: str, remedy: str) -> Answer:
    return Answer(check.about, "", [Problem(f"{check.doing}: {why}", remedy, check.about)])
