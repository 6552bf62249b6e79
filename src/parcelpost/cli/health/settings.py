"""Checks of the settings: can a worker run with them, and is any of them probably a mistake."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from math import ceil
from pathlib import Path

from parcelpost.cli.components import keep_grpc_quiet, known_sites
from parcelpost.cli.context import CLOCK, open_for_reading, openers
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.platform_names import KnownPlatforms, platform_names, require_platform
from parcelpost.errors import InvalidInput, InvalidSettings, StoreError, TooFewFiles, extra_hint
from parcelpost.files_and_sockets import raise_file_limit
from parcelpost.health_checks import Finding
from parcelpost.model import Target, Task
from parcelpost.private_addresses import is_local_url, proxy_url
from parcelpost.scrapers.fetch.exchange import FetchGuard
from parcelpost.settings import Settings
from parcelpost.settings.secrets import TOKEN_VARIABLE, is_open_to_all, read_token
from parcelpost.settings.sources import Diagnosis
from parcelpost.settings.validation import check_runnable
from parcelpost.storage.worker_state import WorkerState
from parcelpost.units import count
from parcelpost.worker.status import WorkerStatus, read_statuses

_FILES, _FILES_A_SLOT, _FILES_A_BROWSER = 128, 8, 16
"""The store, the gateway and the health pages; a slot's thread, its page and its connections; a browser's pipes."""
_LACKS_URL = "needs gateway.url"
_NO_TOKEN_WARNING = f"no token is set for the gateway: set {TOKEN_VARIABLE} or gateway.token_file if it requires one"
_KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_NEEDED = {"google.cloud.firestore_v1": "google-cloud-firestore", "obstore": "obstore"}


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
        lambda: _check_schedules(settings),
        lambda: FetchGuard(settings.fetch.allow_private),
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
    if settings.gateway.url and token.secret is None and not is_local_url(settings.gateway.url):
        raise InvalidSettings(
            "gateway.url is set, but there is no token", hint=f"set {TOKEN_VARIABLE} or gateway.token_file"
        )


def _check_files(settings: Settings) -> None:
    """Raises the limit of open files, which each process has, as far as possible."""
    shared = settings.executor.slots * _FILES_A_SLOT + settings.browser.most * _FILES_A_BROWSER
    needed = _FILES + ceil(shared / settings.worker.processes)
    if (allowed := raise_file_limit()) < needed:
        raise TooFewFiles.of(f"a worker with {count(settings.executor.slots, 'slot')}", needed, allowed)


def _check_platforms(settings: Settings) -> None:
    installed = platform_names(settings)
    if unknown := sorted(set(settings.worker.platforms) - installed):
        raise InvalidSettings(
            f"worker.platforms names {', '.join(unknown)}, which is not installed",
            hint=f"installed: {', '.join(sorted(installed))}",
        )


def _check_schedules(settings: Settings) -> None:
    """Applies the gateway's checks, except that a county may be unknown: tasks may name the URLs of their pages."""
    known = KnownPlatforms(settings)
    for name, schedule in settings.schedules.items():
        target = Target(parcel_id="", state=schedule.state, county=schedule.county, url=schedule.url)
        try:
            require_platform(schedule.platform, known.names)
            if schedule.list:
                known.check_list(schedule.platform, target)
                known.check(Task(task_id=name, platform=schedule.platform, target=target))
            if schedule.url:
                known.check_url(schedule.url)
        except InvalidInput as error:
            raise InvalidSettings(f"schedules.{name}: {error}", hint=error.hint) from None


def secret_warnings(settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about secret files that other users can read or write."""
    if settings.worker.upstream == "gateway":
        return read_token(settings.gateway, environment).warnings
    name, file = "firestore.credentials_file", settings.firestore.credentials_file
    if not file:
        name, file = _KEY_VARIABLE, environment.get(_KEY_VARIABLE, "")
    key = Path(file)
    if not file or not key.is_file() or not is_open_to_all(key.stat().st_mode):
        return ()
    return (f"{name} {key} is readable or writable by every user of this machine: run 'chmod 600' on it",)


def check_firestore(settings: Settings, environment: Mapping[str, str]) -> None:
    """Checks what can be checked without connecting. Raises InvalidSettings."""
    if settings.worker.upstream != "firestore":
        return
    if missing := [package for module, package in _NEEDED.items() if not _is_installed(module)]:
        are = "are" if len(missing) > 1 else "is"
        raise InvalidSettings(
            f"worker.upstream is firestore, but {' and '.join(missing)} {are} not installed",
            hint=extra_hint("firestore"),
        )
    keep_grpc_quiet()
    from parcelpost.upstream.firestore.client import EMULATOR_VARIABLE, read_named

    if settings.firestore.credentials_file or not environment.get(EMULATOR_VARIABLE):
        read_named(settings.firestore.credentials_file, environment)


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


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
    findings = [finding for finding in settings_findings(case.diagnosis) if finding.message != _NO_TOKEN_WARNING]
    running, ended = await running_and_ended(case)
    is_mode_set = loaded is not None and loaded.origins["worker.mode"] != "default"
    needs_none = not is_mode_set and not any(status.upstream for status in running + ended)
    results = []
    for finding in findings:
        if _LACKS_URL not in finding.message:
            results.append(finding)
        elif not needs_none:
            init = "parcelpost init" if loaded is not None and loaded.file is None else ""
            fix = (
                f"'{init}' asks for what is needed and writes the settings file; or {finding.fix}"
                if init
                else finding.fix
            )
            # A running worker has its gateway; where none ever ran, none may be wanted.
            check = "settings.incomplete" if running or not ended else "settings.invalid"
            results.append(Finding.of(check, finding.message, fix, init))
    file = loaded.file if loaded else None
    text = f"from {file}" if file else "no settings file: defaults and environment variables"
    return [CheckResult("settings", text, results)]


async def running_and_ended(case: CheckContext) -> tuple[list[WorkerStatus], list[WorkerStatus]]:
    """Statuses of running and of ended workers; none if the store cannot be read, which another check reports."""
    try:
        async with open_for_reading(case.store) as database:
            statuses = await read_statuses(WorkerState(database, CLOCK))
        alive = {opener.id for opener in (await openers(case.store))[0]}
    except (StoreError, OSError):
        return [], []
    return [status for status in statuses if status.owner in alive], [
        status for status in statuses if status.owner not in alive
    ]
