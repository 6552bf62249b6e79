"""Checks that a worker could start with the given settings, before anything is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from parcelpost.cli.components import check_firestore, known_sites, secret_warnings
from parcelpost.cli.output import count
from parcelpost.cli.platform_names import platform_names
from parcelpost.errors import InvalidSettings, TooFewFiles
from parcelpost.scrapers.fetch.guard import Guard, proxy_url
from parcelpost.settings import Settings
from parcelpost.settings.secrets import TOKEN_VARIABLE, read_token
from parcelpost.settings.validation import Problem, check_runnable
from parcelpost.system import raise_file_limit

if TYPE_CHECKING:
    from parcelpost.settings.sources import Diagnosis


_FILES, _FILES_A_SLOT, _FILES_A_BROWSER = 128, 8, 16
"""The store, the gateway and the health pages; a slot's thread, its page and its connections; a browser's pipes."""


def check_ready(settings: Settings, environment: Mapping[str, str]) -> None:
    """Raises the first of what is wrong."""
    for problem in readiness_problems(settings, environment):
        raise problem


def readiness_problems(settings: Settings, environment: Mapping[str, str]) -> Iterator[InvalidSettings]:
    """All that would end `parcelpost run` at once."""
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
        raise InvalidSettings("gateway.url is set, and no token is", hint=f"set {TOKEN_VARIABLE} or gateway.token_file")


def is_own_machine(url: str) -> bool:
    """A gateway on this machine may serve it without tokens."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _check_files(settings: Settings) -> None:
    """Raises the limit as far as it goes."""
    needed = _FILES + settings.executor.slots * _FILES_A_SLOT + settings.browser.most * _FILES_A_BROWSER
    if (allowed := raise_file_limit()) < needed:
        raise TooFewFiles.of(f"a worker with {count(settings.executor.slots, 'slot')}", needed, allowed)


def _check_platforms(settings: Settings) -> None:
    there_are = platform_names(settings)
    if unknown := sorted(set(settings.worker.platforms) - there_are):
        raise InvalidSettings(
            f"worker.platforms names {', '.join(unknown)}, which is not installed",
            hint=f"known are {', '.join(sorted(there_are))}",
        )


def assess_settings(found: Diagnosis) -> tuple[list[Problem], list[str]]:
    """Everything that is wrong, and everything that may be: also what would end a worker at once."""
    problems, warnings = list(found.problems), list(found.warnings)
    if found.loaded is None:
        return problems, warnings
    settings = found.loaded.settings
    problems += [Problem(what=str(one), remedy=one.hint) for one in readiness_problems(settings, os.environ)]
    if problems:
        return problems, warnings
    warnings += secret_warnings(settings, os.environ)
    if settings.worker.upstream == "firestore":
        return problems, warnings
    if settings.gateway.url and read_token(settings.gateway, os.environ).secret is None:
        warnings.append(
            f"there is no token for the gateway: set {TOKEN_VARIABLE} or gateway.token_file if it asks for one"
        )
    return problems, warnings
