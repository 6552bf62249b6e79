"""Runs all checks in turn, each with its own timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from parcelpost import __version__
from parcelpost.cli.context import CLOCK
from parcelpost.cli.doctor import environment_checks, store_checks
from parcelpost.cli.doctor.report import CheckContext, CheckResult, CheckState, Report, report_line
from parcelpost.cli.health.store_status import Problem
from parcelpost.cli.options import StoreContext
from parcelpost.cli.progress import Meter
from parcelpost.errors import ParcelpostError, StoreCorrupt
from parcelpost.settings.sources import Diagnosis
from parcelpost.storage.errors import os_error

_SECONDS = 60.0
_DEEP_SECONDS = 3_600.0
_GRACE_SECONDS = 5.0
"""For a check that ends by itself when its time is over, and says more than that."""

CheckFunction = Callable[[CheckContext], Awaitable[list[CheckResult]]]


class _Check(NamedTuple):
    about: str
    doing: str
    look: CheckFunction
    needs_store: bool = True
    tells_progress: bool = False
    """By itself."""


_CHECKS = (
    _Check("store", "opening the store", store_checks.check_opening, needs_store=False),
    _Check("store", "checking the database file", store_checks.check_integrity),
    _Check("store", "checking files and folders", store_checks.check_permissions, needs_store=False),
    _Check("store", "checking pages", store_checks.check_pages, tells_progress=True),
    _Check("space", "looking at the write-ahead log", store_checks.check_wal, needs_store=False),
    _Check("backups", "checking the newest backup", store_checks.check_newest_backup, needs_store=False),
    _Check("settings", "checking the settings", environment_checks.check_settings, needs_store=False),
    _Check("clock", "checking the clock", environment_checks.check_clock, needs_store=False),
    _Check("clock", "comparing the clock with the store", environment_checks.check_clock_against_store),
    _Check("gateway", "asking the upstream", environment_checks.check_upstream, needs_store=False),
    _Check(
        "space", "looking at the worker", environment_checks.check_worker
    ),  # after the upstream, whose word is newer than the store's
    _Check(
        "browser", "looking for a browser", environment_checks.check_browser, needs_store=False, tells_progress=True
    ),
)


def make_context(path: Path, found: Diagnosis, *, config: Path | None = None, deep: bool) -> CheckContext:
    wal = path.with_name(path.name + "-wal")
    try:
        wal_bytes = wal.stat().st_size
    except OSError:
        wal_bytes = 0
    seconds = _DEEP_SECONDS if deep else _SECONDS
    return CheckContext(
        store=StoreContext(path, found.partly, config),
        found=found,
        deep=deep,
        wal_bytes=wal_bytes,
        limit_seconds=seconds,
    )


async def run_checks(case: CheckContext) -> Report:
    answers: list[CheckResult] = []
    for check in _CHECKS:
        if check.needs_store and not _store_opened(answers):
            continue
        found_now = await _run_with_timeout(check, replace(case, upstream=_upstream(answers)))
        answers += found_now if not _is_known_damage(found_now, answers) else [_skipped(check)]
    found = [report_line(one) for one in answers]
    problems = [problem for one in found for problem in one.problems]
    wrong = sum(not one.warning for one in problems)
    return Report(
        well=not wrong,
        wrong=wrong,
        warnings=len(problems) - wrong,
        at=CLOCK.now(),
        version=__version__,
        store=str(case.store.path),
        checks=found,
    )


def _is_known_damage(found: list[CheckResult], answers: list[CheckResult]) -> bool:
    """Whether a check stopped at the damage that the check of the whole file has told already."""
    return any(one.damaged for one in found) and any(one.damaged for one in answers)


def _skipped(check: _Check) -> CheckResult:
    return CheckResult(check.about, f"{check.doing}: not done, since the database file is damaged", skipped=True)


def _store_opened(answers: list[CheckResult]) -> bool:
    """What the first check says: the others that need the store have nothing to say without it."""
    return report_line(answers[0]).state is CheckState.WELL


def _upstream(answers: list[CheckResult]) -> CheckState:
    return next(
        (report_line(one).state for one in answers if one.about in ("gateway", "firestore")), CheckState.SKIPPED
    )


async def _run_with_timeout(check: _Check, case: CheckContext) -> list[CheckResult]:
    try:
        progress = nullcontext() if check.tells_progress else Meter(check.doing)
        async with progress, asyncio.timeout(case.limit_seconds + _GRACE_SECONDS):
            return await check.look(case)
    except TimeoutError:
        return [
            _unfinished_check(
                check, f"not done within {case.limit_seconds:g} s", "try again when the machine is less busy"
            )
        ]
    except StoreCorrupt as error:
        return [replace(_unfinished_check(check, str(error), error.hint), damaged=True)]
    except ParcelpostError as error:
        return [_unfinished_check(check, str(error), error.hint)]
    except OSError as error:
        meant = os_error(error, Path(error.filename or case.store.path))
        return [_unfinished_check(check, str(meant), meant.hint)]
    except Exception as error:  # noqa: BLE001 - a bug of ours in one check hides what the others find
        text = f"{type(error).__name__} {error!s:.200}"
        return [
            _unfinished_check(
                check, text, "this is a mistake of the program: 'parcelpost doctor --bundle' for its makers"
            )
        ]


def _unfinished_check(check: _Check, why: str, remedy: str) -> CheckResult:
    return CheckResult(check.about, "", [Problem(f"{check.doing}: {why}", remedy, check.about)])
