"""`parcelpost doctor`: runs all checks, each with its own time limit, and prints what they found."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from parcelpost import __version__
from parcelpost.cli.context import CLOCK, connect_ledger, has_ledger
from parcelpost.cli.health import browsers, clock, settings, store_files, upstream
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.health.overview import StoreOverview, gather_store_overview
from parcelpost.cli.output import (
    age,
    count,
    opener_text,
    outbox_text,
    print_lines,
    printable,
    terminal_width,
    used_text,
    wrapped,
)
from parcelpost.cli.progress import Meter
from parcelpost.cli.settings_options import StoreContext
from parcelpost.errors import LedgerError, ParcelpostError, StoreCorrupt
from parcelpost.health_checks import Finding, Severity, is_ok, sort_findings
from parcelpost.settings.sources import Diagnosis
from parcelpost.storage.errors import os_error

_SECONDS = 60.0
_DEEP_SECONDS = 3_600.0
_GRACE_SECONDS = 5.0
"""Extra time for checks that enforce the limit themselves, with a better message."""


class _Check(NamedTuple):
    area: str
    doing: str
    run: Callable[[CheckContext], Awaitable[list[CheckResult]]]
    needs_store: bool = True
    shows_progress: bool = False
    """Whether the check shows its own progress."""


class CheckLine(Struct, frozen=True):
    area: str
    state: str
    """ok, skipped, or the worst severity of its findings."""
    summary: str


class Report(Struct, frozen=True, kw_only=True):
    ok: bool
    """No finding is an error."""
    findings: list[Finding]
    at: datetime
    version: str
    store: str
    checks: list[CheckLine]

    def number(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)


def make_context(path: Path, diagnosis: Diagnosis, *, config: Path | None = None, deep: bool) -> CheckContext:
    store = StoreContext(path, diagnosis.partly, config)
    try:
        wal_bytes = path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        wal_bytes = 0
    seconds = _DEEP_SECONDS if deep else _SECONDS
    return CheckContext(store=store, diagnosis=diagnosis, deep=deep, wal_bytes=wal_bytes, limit_seconds=seconds)


async def run_checks(case: CheckContext) -> Report:
    results: list[CheckResult] = []
    for check in _CHECKS:
        if not check.needs_store or results[0].state == "ok":
            response = next((result for result in results if result.area == "upstream"), None)
            results += await _run_with_timeout(check, replace(case, upstream=response), results)
    findings = sort_findings(finding for result in results for finding in result.findings)
    return Report(
        ok=is_ok(findings),
        findings=findings,
        at=CLOCK.now(),
        version=__version__,
        store=str(case.store.path),
        checks=[CheckLine(result.area, result.state, result.summary) for result in results],
    )


async def _run_with_timeout(check: _Check, case: CheckContext, before: list[CheckResult]) -> list[CheckResult]:
    try:
        progress = nullcontext() if check.shows_progress else Meter(check.doing)
        async with progress, asyncio.timeout(case.limit_seconds + _GRACE_SECONDS):
            return await check.run(case)
    except TimeoutError:
        message = f"{check.doing} took more than {case.limit_seconds:g} s"
        finding = Finding.of("check.timeout", message, "try again when the machine is less busy")
    except ParcelpostError as error:
        if isinstance(error, StoreCorrupt) and any(
            finding.id == "store.damaged" for r in before for finding in r.findings
        ):
            return [CheckResult(check.area, f"{check.doing}: skipped, the database file is damaged", skipped=True)]
        finding = Finding.of("check.failed", f"{check.doing} failed: {error}", error.hint)
    except OSError as error:
        meant = os_error(error, Path(error.filename or case.store.path))
        finding = Finding.of("check.failed", f"{check.doing} failed: {meant}", meant.hint)
    except Exception as error:  # noqa: BLE001 - a bug in one check must not hide the findings of others
        message = f"{check.doing} failed: {type(error).__name__} {error!s:.200}"
        fix = "this is a bug in parcelpost: report it and attach the file that 'parcelpost doctor --bundle' creates"
        finding = Finding.of("check.failed", message, fix)
    return [CheckResult(check.area, "", [finding])]


async def _check_overview(case: CheckContext) -> list[CheckResult]:
    """Everything that `parcelpost status` checks."""
    overview = await gather_store_overview(case.store)
    summaries = {
        "store": f"{used_text(overview.storage, overview.used_percent)}",
        "backup": f"the newest backup is {age(overview.backup.age_seconds)} old" if overview.backup else "none yet",
        "outbox": _outbox_summary(overview),
        "worker": _worker_summary(overview),
    }
    findings = _current_findings(overview, case.upstream)
    areas = dict.fromkeys([*summaries, *(_area(finding) for finding in findings)])
    return [
        CheckResult(area, summaries.get(area, ""), [finding for finding in findings if _area(finding) == area])
        for area in areas
    ]


def _current_findings(overview: StoreOverview, upstream: CheckResult | None) -> list[Finding]:
    """A rejection in the store is older than what the upstream said just now, and is not reported twice.

    If our credentials are accepted now it is over, unless a worker goes on with others.
    """
    rejections = [finding for finding in overview.findings if finding.id == "upstream.unauthorized"]
    if upstream is None or upstream.skipped or not rejections:
        return overview.findings
    current = [finding for finding in overview.findings if finding not in rejections]
    if upstream.findings or not overview.workers:
        return current
    message = "the worker's last request was rejected, but the credentials set here are accepted"
    fix = "restart the worker if it uses other credentials; otherwise it retries on its own"
    return [*current, Finding.of("upstream.reauthorized", message, fix)]


async def _check_gateway(case: CheckContext) -> list[CheckResult]:
    """What `parcelpost gateway status` checks, if the settings name a ledger that exists."""
    server = case.settings.server
    if not has_ledger(server):
        return []
    from parcelpost.gateway.counties import last_day_outcomes
    from parcelpost.gateway.overview import gather_overview

    now = CLOCK.now()
    try:
        async with connect_ledger(server, migrate=False) as ledger:
            ended = await last_day_outcomes(ledger, now)
            overview = await gather_overview(ledger, now, 1, ended, __version__)
    except LedgerError as error:
        message = f"the gateway's ledger cannot be used: {error}"
        return [CheckResult("gateway", "", [Finding.of("ledger.unavailable", message, error.hint)])]
    workers, queued = count(overview.fleet.alive, "worker"), count(overview.totals["queued"], "task")
    return [CheckResult("gateway", f"{workers} online, {queued} queued", overview.findings)]


def _outbox_summary(overview: StoreOverview) -> str:
    last = overview.sync.last_upload
    when = f"the last delivery was {age((CLOCK.now() - last.at).total_seconds())} ago" if last else "no delivery yet"
    failed = f"; the last attempt failed: {overview.sync.outage.reason}" if overview.sync.outage else ""
    return f"{outbox_text(overview.queue)}; {when}{failed}"


def _worker_summary(overview: StoreOverview) -> str:
    workers = ", ".join(map(opener_text, overview.workers)) or "no worker is running"
    return f"{workers}; {count(overview.queue.pending + overview.queue.processing, 'task')} to do"


def _area(finding: Finding) -> str:
    return finding.id.partition(".")[0]


_CHECKS = (
    _Check("store", "opening the store", store_files.check_opening, needs_store=False),
    _Check("store", "checking the database file", store_files.check_integrity),
    _Check("store", "checking files and folders", store_files.check_permissions, needs_store=False),
    _Check("store", "checking pages", store_files.check_pages, shows_progress=True),
    _Check("store", "checking the write-ahead log", store_files.check_wal, needs_store=False),
    _Check("backup", "checking the newest backup", store_files.check_newest_backup, needs_store=False),
    _Check("settings", "checking the settings", settings.check_settings, needs_store=False),
    _Check("clock", "checking the clock", clock.check_clock, needs_store=False),
    _Check("clock", "comparing the clock with the store", clock.check_clock_against_store),
    _Check("upstream", "connecting to the upstream", upstream.check_upstream, needs_store=False),
    _Check("worker", "checking the workers", _check_overview),  # after the upstream, whose response is newer
    _Check("gateway", "checking the gateway's ledger", _check_gateway, needs_store=False),
    _Check("browser", "checking the browser", browsers.check_browser, needs_store=False, shows_progress=True),
)

# Printing

_ORDER = (
    "store",
    "backup",
    "outbox",
    "upstream",
    "worker",
    "tasks",
    "platform",
    "site",
    "settings",
    "clock",
    "browser",
    "gateway",
    "ledger",
    "fleet",
    "queue",
    "schedule",
    "webhook",
)
_AREA_WIDTH = max(map(len, _ORDER)) + 2
_STATE_WIDTH = len(Severity.WARNING) + 2
_INDENT = " " * (_AREA_WIDTH + _STATE_WIDTH)
_COLOURS = {"ok": "green", "skipped": "dim", "note": "cyan", "warning": "yellow", "error": "bold red"}


def report_lines(report: Report) -> Iterator[str]:
    """One line for each check that found nothing, and the findings with their fixes, by area."""
    width = terminal_width()
    yield verdict(report)
    yield ""
    blocks = [(line.area, line.state, [line.summary]) for line in report.checks if line.state in ("ok", "skipped")]
    blocks += [(_area(finding), str(finding.severity), list(_advice(finding))) for finding in report.findings]
    before = ""
    for area, state, (first, *rest) in sorted(blocks, key=_block_order):
        begin = f"{area if area != before else '':<{_AREA_WIDTH}}{state:<{_STATE_WIDTH}}"
        before = area
        for line in map(printable, (first, *rest)):
            is_whole = width is None or line.startswith("$ ")
            yield from [f"{begin}{line}"] if is_whole else wrapped(begin, line, _INDENT, width or 0)
            begin = _INDENT


def _block_order(block: tuple[str, str, list[str]]) -> int:
    return _ORDER.index(block[0]) if block[0] in _ORDER else len(_ORDER)


def _advice(finding: Finding) -> Iterator[str]:
    """The message, the fix, and the command on a line of its own that is never broken, to be pasted."""
    yield finding.message
    if finding.fix != f"run '{finding.command}'":
        yield f"Fix: {finding.fix}"
    if finding.command:
        yield f"$ {finding.command}"


def verdict(report: Report) -> str:
    errors, warnings = report.number(Severity.ERROR), report.number(Severity.WARNING)
    parts = [count(number, name) for number, name in ((errors, "error"), (warnings, "warning")) if number]
    return f"Found {' and '.join(parts)}." if parts else "No problems found."


def print_report(report: Report) -> None:
    """Uses colours on a terminal that has them."""
    if not sys.stdout.isatty():
        print_lines(report_lines(report))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in report_lines(report):
        text = Text(line)
        state = line[_AREA_WIDTH : _AREA_WIDTH + _STATE_WIDTH].strip()
        if state in _COLOURS:
            text.stylize(_COLOURS[state], _AREA_WIDTH, _AREA_WIDTH + len(state))
        console.print(text, soft_wrap=True)
