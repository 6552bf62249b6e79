"""Checks of the settings, the clock and the upstream."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec.structs import replace

from parcelpost.cli.components import check_firestore, known_sites, open_upstream, secret_warnings
from parcelpost.cli.context import CLOCK, open_for_reading, openers
from parcelpost.cli.health.checks import CheckContext, CheckResult
from parcelpost.cli.output import moment, printable
from parcelpost.cli.platform_names import platform_names
from parcelpost.clock import from_iso
from parcelpost.errors import AnotherGateway, InvalidSettings, StoreError, TooFewFiles, Unavailable, UpstreamError
from parcelpost.health import Finding
from parcelpost.scrapers.fetch.guard import Guard, proxy_url
from parcelpost.settings import Settings
from parcelpost.settings.schema import GatewaySettings
from parcelpost.settings.secrets import TOKEN_VARIABLE, read_token
from parcelpost.settings.sources import Diagnosis
from parcelpost.settings.validation import check_runnable, url_problem
from parcelpost.storage import health
from parcelpost.storage.state import WorkerState
from parcelpost.system import raise_file_limit
from parcelpost.units import age, count
from parcelpost.upstream.gateway import ProbeResult, probe
from parcelpost.upstream.http import another_gateway, base_url
from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId
from parcelpost.worker.status import WorkerStatus, read_statuses

_FILES, _FILES_A_SLOT, _FILES_A_BROWSER = 128, 8, 16
"""The store, the gateway and the health pages; a slot's thread, its page and its connections; a browser's pipes."""
_LACKS_URL = "needs gateway.url"
_NO_TOKEN_WARNING = f"no token is set for the gateway: set {TOKEN_VARIABLE} or gateway.token_file if it requires one"
_KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


# Settings


def check_ready(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raises the first reason why `parcelpost run` would end at once."""
    for problem in _not_ready(settings, environment):
        raise problem


def _not_ready(settings: Settings, environment: Mapping[str, str]) -> Iterator[InvalidSettings]:
    checks: tuple[Callable[[], object], ...] = (
        lambda: check_runnable(settings),
        lambda: _check_files(settings),
        lambda: _check_token(settings, environment),
        lambda: check_firestore(settings, environment),
        lambda: known_sites(settings),
        lambda: _check_platforms(settings),
        lambda: Guard(settings.fetch.allow_private),
        lambda: settings.fetch.proxy and proxy_url(settings.fetch.proxy),
    )
    for check in checks:
        try:
            check()
        except InvalidSettings as error:
            yield error


def _check_token(settings: Settings, environment: Mapping[str, str]) -> None:
    if settings.worker.upstream != "gateway":
        return
    token = read_token(settings.gateway, environment)
    if settings.gateway.url and token.secret is None and not is_own_machine(settings.gateway.url):
        raise InvalidSettings("gateway.url is set, but no token is", hint=f"set {TOKEN_VARIABLE} or gateway.token_file")


def is_own_machine(url: str) -> bool:
    """A gateway on this machine may work without tokens."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_files(settings: Settings) -> None:
    """Raises the limit of open files as far as possible."""
    needed = _FILES + settings.executor.slots * _FILES_A_SLOT + settings.browser.most * _FILES_A_BROWSER
    if (allowed := raise_file_limit()) < needed:
        raise TooFewFiles.of(f"a worker with {count(settings.executor.slots, 'slot')}", needed, allowed)


def _check_platforms(settings: Settings) -> None:
    installed = platform_names(settings)
    if unknown := sorted(set(settings.worker.platforms) - installed):
        raise InvalidSettings(
            f"worker.platforms names {', '.join(unknown)}, which is not installed",
            hint=f"installed: {', '.join(sorted(installed))}",
        )


def settings_findings(diagnosis: Diagnosis) -> list[Finding]:
    """Errors for what would end a worker at once, warnings for what is probably a mistake."""
    findings = list(diagnosis.problems)
    warnings = list(diagnosis.warnings)
    if diagnosis.loaded is not None:
        settings = diagnosis.loaded.settings
        findings += [
            Finding.of("settings.invalid", str(error), error.hint) for error in _not_ready(settings, os.environ)
        ]
        if not findings:
            warnings += secret_warnings(settings, os.environ)
            needs_token = settings.worker.upstream == "gateway" and settings.gateway.url
            if needs_token and read_token(settings.gateway, os.environ).secret is None:
                warnings.append(_NO_TOKEN_WARNING)
    return [*findings, *(_warning(text, diagnosis.partly) for text in warnings)]


def _warning(text: str, settings: Settings) -> Finding:
    secrets = (settings.gateway.token_file, settings.firestore.credentials_file, os.environ.get(_KEY_VARIABLE, ""))
    exposed = next((file for file in secrets if file and "chmod 600" in text and file in text), "")
    command = f"chmod 600 {shlex.quote(exposed)}" if exposed else ""
    fix = f"run '{command}'" if command else "see 'parcelpost config show' for where each value comes from"
    return Finding.of("settings.questionable", text, fix, command)


async def check_settings(case: CheckContext) -> list[CheckResult]:
    """Less strict than `config check` about the gateway: workers may have got it on their command line."""
    loaded = case.diagnosis.loaded
    findings = [one for one in settings_findings(case.diagnosis) if one.message != _NO_TOKEN_WARNING]
    running, ended = await _workers(case)
    is_mode_set = loaded is not None and loaded.origins["worker.mode"] != "default"
    needs_none = not any(one.upstream for one in running + ended) and bool(running or ended or not is_mode_set)
    results = []
    for finding in findings:
        if _LACKS_URL not in finding.message:
            results.append(finding)
        elif not needs_none:
            init = "parcelpost init" if loaded is not None and loaded.file is None else ""
            fix = f"'{init}' asks for what is needed and writes the file; or {finding.fix}" if init else finding.fix
            # A running worker has its gateway; where none ever ran, none may be wanted.
            check = "settings.incomplete" if running or not ended else "settings.invalid"
            results.append(Finding.of(check, finding.message, fix, init))
    file = loaded.file if loaded else None
    text = f"from {file}" if file else "no settings file: defaults and environment variables"
    return [CheckResult("settings", text, results)]


async def _workers(case: CheckContext) -> tuple[list[WorkerStatus], list[WorkerStatus]]:
    """Running and ended ones; none if the store cannot be read, which another check reports."""
    try:
        async with open_for_reading(case.store) as database:
            statuses = await read_statuses(WorkerState(database, CLOCK))
        alive = {opener.id for opener in (await openers(case.store))[0]}
    except (StoreError, OSError):
        return [], []
    return [one for one in statuses if one.owner in alive], [one for one in statuses if one.owner not in alive]


# Clock

_NOT_BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
"""This program did not exist before."""
_NOT_AFTER = datetime(2100, 1, 1, tzinfo=UTC)
_MAY_DIFFER = timedelta(minutes=1)
_FAR_OFF = timedelta(minutes=5)
_SET_CLOCK = "set the clock, for example with 'sudo timedatectl set-ntp true'"


async def check_clock(_: CheckContext) -> list[CheckResult]:
    now = CLOCK.now()
    local = now.astimezone()
    text = f"{moment(now)}; local time {local:%H:%M}, {local.tzname() or 'no zone'} ({local:%z})"
    findings = _zone_findings(os.environ.get("TZ", ""))
    if not _NOT_BEFORE <= now < _NOT_AFTER:
        findings.append(Finding.of("clock.wrong", f"the clock shows {now:%Y-%m-%d}, which is impossible", _SET_CLOCK))
    return [CheckResult("clock", text, findings)]


def _zone_findings(name: str) -> list[Finding]:
    """The system silently takes an unknown zone as UTC."""
    if "/" not in name:
        return []
    try:
        ZoneInfo(name.removeprefix(":"))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = "the environment variable TZ names an unknown time zone: local times are UTC"
        fix = "correct or unset TZ; backups and clean-up run at local times"
        return [Finding.of("clock.unknown_zone", message, fix)]
    return []


async def check_clock_against_store(case: CheckContext) -> list[CheckResult]:
    """Rows from the future: the clock was ahead then, or is behind now."""
    async with open_for_reading(case.store) as database:
        newest = await database.read(health.newest_moment)
    ahead = from_iso(newest) - CLOCK.now() if newest else timedelta(0)
    if ahead < _MAY_DIFFER:
        return [CheckResult("clock", "not behind the newest rows of the store")]
    message = f"the clock is {age(ahead.total_seconds())} behind the newest rows of the store: it was set back"
    fix = f"{_SET_CLOCK}; if it is right now, nothing is lost, and a running worker corrects what waits"
    return [CheckResult("clock", "", [Finding.of("clock.behind_store", message, fix)])]


def compare_clocks(date: datetime, now: datetime) -> CheckResult:
    """With the date of the gateway's response, which has no fractions of a second."""
    apart = abs(date - now)
    if apart <= _MAY_DIFFER:
        return CheckResult("clock", f"{apart.total_seconds():.0f} s from the gateway's")
    side = "behind" if date > now else "ahead of"
    message = f"the clock is {age(apart.total_seconds())} {side} the gateway's"
    check = "clock.differs" if apart <= _FAR_OFF else "clock.far_off"
    return CheckResult("clock", "", [Finding.of(check, message, f"{_SET_CLOCK}, here or on the gateway's machine")])


# Upstream

_PATIENCE_SECONDS = 10.0
_FIRESTORE_ID = "doctor"
_NO_TOKEN = "none"  # noqa: S105 - sent to a gateway on this machine that requires none


async def check_upstream(case: CheckContext) -> list[CheckResult]:
    if case.settings.worker.upstream == "firestore":
        return [await _check_firestore(case)]
    if case.settings.gateway.url:
        return await _probe_gateway(case, case.settings.gateway)
    running, _ = await _workers(case)
    worker = next((one for one in running if one.upstream), None)
    if worker is None:
        return [_skipped("no gateway is set: results stay here")]
    if not worker.gateway_url:
        return [_skipped(f"no gateway is set; a worker delivers to {worker.upstream}")]
    if read_token(case.settings.gateway, os.environ).secret is None and not is_own_machine(worker.gateway_url):
        return [_skipped(f"the worker's gateway {worker.gateway_url} was not checked: no token is set here")]
    return await _probe_gateway(case, replace(case.settings.gateway, url=worker.gateway_url))


def _skipped(text: str) -> CheckResult:
    return CheckResult("upstream", printable(text), skipped=True)


async def _probe_gateway(case: CheckContext, settings: GatewaySettings) -> list[CheckResult]:
    try:
        secret = read_token(settings, os.environ).secret
    except InvalidSettings:
        return [_skipped("not checked: the token cannot be used")]
    if url_problem(settings.url):  # it may hold a password
        return [_skipped("not checked: gateway.url cannot be used")]
    gateway = replace(settings, timeout_seconds=min(settings.timeout_seconds, _PATIENCE_SECONDS))
    address = base_url(settings)
    worker_id, met = await _known_identity(case, address)
    began = CLOCK.monotonic()
    found = await probe(gateway, secret.reveal() if secret else _NO_TOKEN, worker_id, CLOCK.now)
    seconds = CLOCK.monotonic() - began
    result = _gateway_result(settings.url, found, seconds, has_token=secret is not None)
    if found.ledger_id is not None and met is not None and met.ledger_id != found.ledger_id:
        message = another_gateway(address, found.ledger_id, met.ledger_id)
        result = CheckResult("upstream", "", [Finding.of("upstream.replaced", message, AnotherGateway.hint)])
    return [result, *([compare_clocks(found.date, CLOCK.now())] if found.date else [])]


async def _known_identity(case: CheckContext, address: str) -> tuple[str, MetGateway | None]:
    """The store's worker id, and the gateway it knows at that address. An id of our own would belong to one token."""
    try:
        async with open_for_reading(case.store) as database:
            state = WorkerState(database, CLOCK)
            stored = await state.get(WORKER_ID_STATE, WorkerId)
            met = await state.get(f"{GATEWAY_STATE}{address}", MetGateway)
    except (StoreError, OSError):  # reported by another check
        return case.settings.worker.id, None
    return case.settings.worker.id or (stored.worker_id if stored else ""), met


def _gateway_result(url: str, found: ProbeResult, seconds: float, *, has_token: bool) -> CheckResult:
    if found.error is None:
        protocol = "the protocol with its extensions" if found.extended else "the plain protocol, without extensions"
        version = f", version {found.version}" if found.version else ""
        token = "accepts our token" if has_token else "requires no token"
        text = f"{url} responds ({seconds * 1_000:,.0f} ms), {token}, and supports {protocol}{version}"
        return CheckResult("upstream", printable(text))
    if not isinstance(found.error, Unavailable):
        message = f"the gateway at {url} rejected our credentials: {found.error}"
        return CheckResult("upstream", "", [Finding.of("upstream.unauthorized", message, found.error.hint)])
    # No command that starts one: it would be another gateway in the place of this one, and take its results.
    here = ", with the same database as before" if is_own_machine(url) else ""
    fix = f"start that gateway again{here}, or correct gateway.url; results are kept in the store until it is back"
    message = f"the gateway at {url} cannot be used: {found.error}"
    return CheckResult("upstream", "", [Finding.of("upstream.unreachable", message, fix)])


async def _check_firestore(case: CheckContext) -> CheckResult:
    """One read, of selectors that do not exist."""
    try:
        check_firestore(case.settings, os.environ)
        async with (
            asyncio.timeout(_PATIENCE_SECONDS),
            open_upstream(case.settings, os.environ, _FIRESTORE_ID, CLOCK) as upstream,
        ):
            await upstream.get_selectors("parcelpost-doctor")
    except InvalidSettings:
        return _skipped("Firestore was not checked: its settings cannot be used")
    except TimeoutError:
        message = f"Firestore did not respond within {_PATIENCE_SECONDS:g} s"
        return CheckResult("upstream", "", [Finding.of("upstream.unreachable", message, Unavailable.hint)])
    except UpstreamError as error:
        check = "upstream.unreachable" if isinstance(error, Unavailable) else "upstream.unauthorized"
        return CheckResult("upstream", "", [Finding.of(check, f"Firestore cannot be used: {error}", error.hint)])
    return CheckResult("upstream", "Firestore responds and accepts our credentials")
