"""Checks of settings, clock, browser, upstream and worker."""

from __future__ import annotations

import asyncio
import os
import shlex
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec.structs import replace

from parcelpost.cli.components import check_firestore, known_sites, open_upstream
from parcelpost.cli.context import CLOCK, open_for_reading, openers
from parcelpost.cli.doctor.report import CheckContext, CheckResult, CheckState
from parcelpost.cli.fetch_setup import browser_options
from parcelpost.cli.health import overview
from parcelpost.cli.health.overview import Overview
from parcelpost.cli.health.readiness import assess_settings, is_own_machine
from parcelpost.cli.health.store_status import Problem
from parcelpost.cli.health.summary import opener_text, outbox_text, used_text
from parcelpost.cli.output import age, count, moment, printable, size
from parcelpost.clock import from_iso
from parcelpost.errors import AnotherGateway, InvalidSettings, StoreError, Unavailable, UpstreamError
from parcelpost.scrapers.browser import chromium
from parcelpost.scrapers.browser.chromium import ChromiumMissing
from parcelpost.settings import Settings
from parcelpost.settings.schema import GatewaySettings
from parcelpost.settings.secrets import read_token
from parcelpost.settings.validation import url_problem
from parcelpost.storage import health
from parcelpost.storage.state import WorkerState
from parcelpost.upstream.gateway import ProbeResult, probe
from parcelpost.upstream.http import another_gateway, base_url
from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId
from parcelpost.worker.status import WorkerStatus, read_statuses


async def started_workers(case: CheckContext) -> tuple[list[WorkerStatus], list[WorkerStatus]]:
    """Those that live, and those that are gone. None, where the store cannot be read: another check says so."""
    try:
        async with open_for_reading(case.store) as database:
            statuses = await read_statuses(WorkerState(database, CLOCK))
        alive = {one.id for one in (await openers(case.store))[0]}
    except (StoreError, OSError):
        return [], []
    return [one for one in statuses if one.owner in alive], [one for one in statuses if one.owner not in alive]


_UNAUTHENTICATED = "there is no token for the gateway"
"""Whether it wants one is asked of itself."""
_LACKS_URL = "needs gateway.url"
_KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


async def check_settings(case: CheckContext) -> list[CheckResult]:
    problems, warnings = assess_settings(case.found)
    file = case.found.loaded.file if case.found.loaded else None
    is_new = case.found.loaded is not None and file is None
    alive, gone = await started_workers(case)
    is_mode_chosen = case.found.loaded is not None and case.found.loaded.origins["worker.mode"] != "default"
    if not any(one.upstream for one in alive + gone) and (alive or gone or not is_mode_chosen):
        # Its workers are standalone ones, or none ever ran and nobody has chosen what they are to be.
        problems = [one for one in problems if _LACKS_URL not in one.what]
    # A worker that runs was told on its command line; where none ever ran, none may be wanted.
    does_without = bool(alive) or not gone
    found = [
        *(_setting_problem(one.what, one.remedy, is_new=is_new, does_without_url=does_without) for one in problems),
        *(_setting_warning(text, case.settings) for text in warnings if not text.startswith(_UNAUTHENTICATED)),
    ]
    return [CheckResult("settings", f"of {file}" if file else "no settings file: defaults and the environment", found)]


def _setting_problem(what: str, remedy: str, *, is_new: bool, does_without_url: bool) -> Problem:
    is_url = _LACKS_URL in what
    init = "parcelpost init" if is_new and is_url else ""
    asks = f"'{init}' asks what is needed and writes it down; or " if init else ""
    return Problem(what, f"{asks}{remedy}", "settings", init, warning=is_url and does_without_url)


def _setting_warning(text: str, settings: Settings) -> Problem:
    secrets = (settings.gateway.token_file, settings.firestore.credentials_file, os.environ.get(_KEY_VARIABLE, ""))
    open_to_all = next((file for file in secrets if file and "chmod 600" in text and file in text), "")
    command = f"chmod 600 {shlex.quote(open_to_all)}" if open_to_all else ""
    remedy = f"run '{command}'" if command else "see 'parcelpost config show' for where each value comes from"
    return Problem(text, remedy, "settings", command, warning=True)


NOT_BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
"""This program did not exist before."""
_NOT_AFTER = datetime(2100, 1, 1, tzinfo=UTC)
_MAY_DIFFER = timedelta(minutes=1)
_DIFFERS_MUCH = timedelta(minutes=5)
_SET_IT = "set the clock, for instance with 'sudo timedatectl set-ntp true'"


async def check_clock(_: CheckContext) -> list[CheckResult]:
    now = CLOCK.now()
    local = now.astimezone()
    said = f"{moment(now)}; local time {local:%H:%M}, {local.tzname() or 'no zone'} ({local:%z})"
    problems = _zone_problems(os.environ.get("TZ", ""))
    if not NOT_BEFORE <= now < _NOT_AFTER:
        problems.append(Problem(f"the clock says {now:%Y-%m-%d}, which cannot be", _SET_IT, "clock"))
    return [CheckResult("clock", said, problems)]


def _zone_problems(named: str) -> list[Problem]:
    """Of a zone that is not known the system makes UTC, without a word."""
    if "/" not in named:
        return []
    try:
        ZoneInfo(named.removeprefix(":"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        what = "the environment variable TZ names a time zone that is not known here: local times are UTC"
        remedy = "correct TZ, or leave it out; backups and clean-up are made at local times"
        return [Problem(what, remedy, "clock", warning=True)]
    return []


async def check_clock_against_store(case: CheckContext) -> list[CheckResult]:
    """Rows from the future: it was ahead then, or is behind now."""
    async with open_for_reading(case.store) as database:
        newest = await database.read(health.newest_moment)
    ahead = from_iso(newest) - CLOCK.now() if newest else timedelta(0)
    if ahead < _MAY_DIFFER:
        return [CheckResult("clock", "not behind what was written last")]
    what = f"the clock is {age(ahead.total_seconds())} behind what the store's newest rows say: it was set back"
    remedy = f"{_SET_IT}; where it is right now, nothing is lost, and a running worker corrects what waits"
    return [CheckResult("clock", "", [Problem(what, remedy, "clock", warning=True)])]


def gateway_clock_problems(date: datetime, now: datetime) -> CheckResult:
    """The answer came a moment before `now`, and headers know no fractions of a second."""
    apart = abs(date - now)
    if apart <= _MAY_DIFFER:
        return CheckResult("clock", f"{apart.total_seconds():.0f} s from the gateway's")
    side = "behind" if date > now else "ahead of"
    what = f"the clock is {age(apart.total_seconds())} {side} the gateway's"
    remedy = f"{_SET_IT}, here or where the gateway runs"
    return CheckResult("clock", "", [Problem(what, remedy, "clock", warning=apart <= _DIFFERS_MUCH)])


async def check_browser(case: CheckContext) -> list[CheckResult]:
    needed = _needed_by(case)
    if case.deep and needed:
        from parcelpost.cli.health.browsers import diagnose_browser

        tried = await diagnose_browser(case.store)
        return [CheckResult("browser", f"{tried.executable}: a page was loaded", tried.problems)]
    from parcelpost.cli.health.browsers import missing_problems

    found = chromium.find(browser_options(case.settings))
    if not isinstance(found, ChromiumMissing):
        return [CheckResult("browser", f"{found.path}; 'parcelpost browser doctor' starts it")]
    if needed:
        return [CheckResult("browser", "", missing_problems(found))]
    return [CheckResult("browser", f"{found.reason}; nothing here has needed one so far", skipped=True)]


def _needed_by(case: CheckContext) -> bool:
    """What the settings say. Tasks that wait for one are told with the worker's state."""
    if case.settings.browser.executable:
        return True
    try:
        return any(county.profile for county in known_sites(case.settings).counties)
    except InvalidSettings:
        return False


_PATIENCE_SECONDS = 10.0
_FIRESTORE_ID = "doctor"
_NO_TOKEN = "none"  # noqa: S105 - what is sent to a gateway on this machine that asks for none


async def check_upstream(case: CheckContext) -> list[CheckResult]:
    if case.settings.worker.upstream == "firestore":
        return [await _check_firestore(case)]
    url = case.settings.gateway.url
    if not url:
        return await _check_worker_upstream(case)
    return await _probe_gateway(case, case.settings.gateway)


async def _check_worker_upstream(case: CheckContext) -> list[CheckResult]:
    """The settings name none. A worker that runs may have been given one, and its token with it."""
    alive, _ = await started_workers(case)
    given = next((one for one in alive if one.upstream), None)
    if given is None:
        return [CheckResult("gateway", "none is set: results stay here", skipped=True)]
    if not given.gateway_url:
        return [CheckResult("gateway", printable(f"none is set; a worker delivers to {given.upstream}"), skipped=True)]
    if read_token(case.settings.gateway, os.environ).secret is None and not is_own_machine(given.gateway_url):
        said = f"{given.gateway_url} of the worker is not asked: there is no token for it here"
        return [CheckResult("gateway", printable(said), skipped=True)]
    return await _probe_gateway(case, replace(case.settings.gateway, url=given.gateway_url))


async def _probe_gateway(case: CheckContext, settings: GatewaySettings) -> list[CheckResult]:
    url = settings.url
    try:
        secret = read_token(settings, os.environ).secret
    except InvalidSettings:
        return [CheckResult("gateway", "not asked: the token cannot be used", skipped=True)]
    if url_problem(url):  # it may hold a password
        return [CheckResult("gateway", "not asked: gateway.url cannot be used", skipped=True)]
    gateway = replace(settings, timeout_seconds=min(settings.timeout_seconds, _PATIENCE_SECONDS))
    worker_id = case.settings.worker.id or await _worker_id(case)
    began = CLOCK.monotonic()
    found = await probe(gateway, secret.reveal() if secret else _NO_TOKEN, worker_id, CLOCK.now)
    seconds = CLOCK.monotonic() - began
    clock = [gateway_clock_problems(found.date, CLOCK.now())] if found.date else []
    answer = _gateway_text(url, found, seconds, has_token=secret is not None)
    if found.ledger_id is not None and (problem := await _other_gateway(case, base_url(settings), found.ledger_id)):
        answer = CheckResult("gateway", "", [problem])
    return [answer, *clock]


async def _worker_id(case: CheckContext) -> str:
    """The store's worker id; '' while it has none. An id of the doctor's own would belong to one token."""
    try:
        async with open_for_reading(case.store) as database:
            kept = await WorkerState(database, CLOCK).get(WORKER_ID_STATE, WorkerId)
    except (StoreError, OSError):  # another check says so
        return ""
    return kept.worker_id if kept else ""


async def _other_gateway(case: CheckContext, address: str, ledger_id: str) -> Problem | None:
    """If the store works with another gateway than the one that answers there."""
    try:
        async with open_for_reading(case.store) as database:
            met = await WorkerState(database, CLOCK).get(f"{GATEWAY_STATE}{address}", MetGateway)
    except (StoreError, OSError):  # another check says so
        return None
    if met is None or met.ledger_id == ledger_id:
        return None
    return Problem(another_gateway(address, ledger_id, met.ledger_id), AnotherGateway.hint, "gateway")


def _gateway_text(url: str, found: ProbeResult, seconds: float, *, has_token: bool) -> CheckResult:
    if found.error is not None:
        return CheckResult("gateway", "", [_upstream_problem(url, found.error)])
    language = "the contract with its extensions" if found.extended else "the plain contract, without extensions"
    version = f", version {found.version}" if found.version else ""
    token = "takes our token" if has_token else "asks for no token"
    said = f"{url} answers ({seconds * 1_000:,.0f} ms), {token}, and speaks {language}{version}"
    return CheckResult("gateway", printable(said))


def _upstream_problem(url: str, error: UpstreamError) -> Problem:
    if not isinstance(error, Unavailable):
        return Problem(f"the gateway at {url} does not let us in: {error}", error.hint, "gateway")
    # No command that starts one: it would be another gateway in the place of this one, and take its results.
    here = ", with the database that it had before" if is_own_machine(url) else ""
    remedy = f"start that gateway again{here}, or correct gateway.url. Everything is kept here until it is back"
    return Problem(f"the gateway at {url} cannot be used: {error}", remedy, "gateway")


async def _check_firestore(case: CheckContext) -> CheckResult:
    """One read, of selectors that nobody has."""
    try:
        check_firestore(case.settings, os.environ)
        async with (
            asyncio.timeout(_PATIENCE_SECONDS),
            open_upstream(case.settings, os.environ, _FIRESTORE_ID, CLOCK) as upstream,
        ):
            await upstream.get_selectors("parcelpost-doctor")
    except InvalidSettings:
        return CheckResult("firestore", "not asked: its settings cannot be used", skipped=True)
    except TimeoutError:
        what = f"Firestore does not answer within {_PATIENCE_SECONDS:g} s"
        return CheckResult("firestore", "", [Problem(what, Unavailable.hint, "firestore")])
    except UpstreamError as error:
        return CheckResult("firestore", "", [Problem(f"Firestore cannot be used: {error}", error.hint, "firestore")])
    return CheckResult("firestore", "answers, and lets us in")


async def check_worker(case: CheckContext) -> list[CheckResult]:
    found = await overview.gather_overview(case.store)
    said = {
        "space": f"{used_text(found.storage, found.used_percent)}; {size(found.storage.disk_free)} free on the disk",
        "backups": f"the newest is {age(found.backup.age_seconds)} old" if found.backup else "none yet",
        "delivery": _delivery(found),
        "work": _work(found),
        "browser": "",
    }
    problems = _current_problems(found, case.upstream)
    answers = [
        CheckResult(about, text, [one for one in problems if one.about == about]) for about, text in said.items()
    ]
    return [one for one in answers if one.said or one.problems]


def _current_problems(found: Overview, upstream: CheckState) -> list[Problem]:
    """What the store says of a refusal is older than what the upstream has just said itself, and is not told twice.

    If we are let in now, it is over, unless a worker goes on with what was refused.
    """
    if upstream is CheckState.SKIPPED:
        return found.problems
    over = overview.denials(found.sync)
    kept = [one for one in found.problems if one not in over]
    if upstream is CheckState.WRONG or not over or not found.workers:
        return kept
    what = f"the worker was not let in when it tried last: {found.sync.denied}; the token that is set here is taken"
    remedy = "it tries again by itself; one that was started with another token is started anew"
    return [*kept, Problem(what, remedy, "delivery", warning=True)]


def _delivery(found: Overview) -> str:
    last = found.sync.last_upload
    when = f"the last delivery was {age((CLOCK.now() - last.at).total_seconds())} ago" if last else "no delivery yet"
    away = f"; the last try failed: {found.sync.away.reason}" if found.sync.away else ""
    slow = f"; {overview.slow_text(found.sync.upstream, found.sync.slow, CLOCK.now())}" if found.sync.slow else ""
    return printable(f"{outbox_text(found.queue)}; {when}{away}{slow}")


def _work(found: Overview) -> str:
    workers = ", ".join(map(opener_text, found.workers)) or "no worker is running"
    return f"{count(found.queue.pending + found.queue.processing, 'task')} to do; {workers}"
