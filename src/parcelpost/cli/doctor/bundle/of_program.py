"""The program and what it runs on; its settings, masked."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from ipaddress import ip_address
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import psutil

from parcelpost import __version__
from parcelpost.cli.config import judge
from parcelpost.cli.doctor.bundle.scrubbing import Scrubber
from parcelpost.cli.doctor.report import Case, Report
from parcelpost.settings.schema import KEYS, Key, form
from parcelpost.settings.validation import url_problem
from parcelpost.storage import queries

_MOST_PACKAGES = 1_000
_PLAIN = re.compile(r"[A-Za-z0-9._+!-]{1,60}", re.ASCII)
_LINE = re.compile(r":(\d+)$")
_OTHER_VARIABLES = ("TZ", "LANG", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def findings(report: Report, scrub: Scrubber) -> dict[str, Any]:
    return {
        "at": report.at,
        "version": report.version,
        "wrong": report.wrong,
        "warnings": report.warnings,
        "checks": [
            {
                "about": one.about,
                "state": one.state,
                "said": scrub.words(one.said),
                "problems": [
                    {
                        "what": scrub.words(problem.what),
                        "remedy": scrub.words(problem.remedy),
                        "command": scrub.words(problem.command),
                        "warning": problem.warning,
                    }
                    for problem in one.problems
                ],
            }
            for one in report.checks
        ],
    }


def versions() -> dict[str, Any]:
    packages = {str(one.metadata["Name"]).lower(): one.version for one in islice(distributions(), _MOST_PACKAGES)}
    memory = psutil.virtual_memory()
    return {
        "parcelpost": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        **queries.versions(),
        "system": platform.system(),
        "release": _plain(platform.release()),
        "machine": _plain(platform.machine()),
        "distribution": _distribution(),
        "processors": os.cpu_count(),
        "memory_bytes": memory.total,
        "memory_percent": memory.percent,
        "encoding": sys.getfilesystemencoding(),
        "packages": {name: _plain(version) for name, version in sorted(packages.items()) if _PLAIN.fullmatch(name)},
    }


def _plain(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else ""


def _distribution() -> str:
    try:
        about = platform.freedesktop_os_release()
    except OSError:
        return ""
    return f"{_plain(about.get('ID', ''))} {_plain(about.get('VERSION_ID', ''))}".strip()


def settings(case: Case, environment: Mapping[str, str], scrub: Scrubber) -> dict[str, Any]:
    """Every key; of free text only that it is set, for it may hold anything."""
    problems, warnings = judge(case.found)
    origins = case.found.loaded.origins if case.found.loaded else {}
    values = {
        name: {"value": _masked(key, _value(case, key), scrub), "from": _origin(origins.get(name, ""))}
        for name, key in KEYS.items()
    }
    return {
        "settings": values,
        "platforms": len(case.settings.platforms),
        "field_maps": len(case.settings.field_maps),
        "problems": [scrub.words(one.what) for one in problems],
        "warnings": [scrub.words(text) for text in warnings],
        "environment": sorted(_variables(environment)),
    }


def _value(case: Case, key: Key) -> Any:
    return getattr(getattr(case.settings, key.section), key.field)


def _masked(key: Key, value: Any, scrub: Scrubber) -> Any:
    if key.name == "worker.platforms":
        return [scrub.platform(name) for name in value]
    if value == key.default:
        return value
    if key.name == "gateway.url":
        return _address(value)
    if form(key).startswith(("text", "a list of names")):
        return f"set, {len(value)} {'characters' if isinstance(value, str) else 'names'}"
    return value


def _address(url: str) -> str:
    """What matters of it: how, and whereabouts."""
    if url_problem(url):
        return "set, and cannot be used"
    parts = urlsplit(url)
    try:
        where = "this machine" if ip_address(parts.hostname or "").is_loopback else "an address"
    except ValueError:
        where = "this machine" if parts.hostname == "localhost" else "a name"
    return f"set: {parts.scheme}, {where}, {'a port' if parts.port else 'the usual port'}"


def _origin(origin: str) -> str:
    if origin.startswith(("default", "environment", "flag")):
        return origin.split(maxsplit=1)[0].rstrip(",")
    line = _LINE.search(origin)
    return f"file, line {line[1]}" if line else "file" if origin else "unknown"


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Names only, of those that are known."""
    ours = {key.variable for key in KEYS.values()} | {"PARCELPOST_STORE", "PARCELPOST_CONFIG"}
    tokens = {"PARCELPOST_GATEWAY_TOKEN", "PARCELPOST_FETCH_PROXY_LOGIN"}
    for name in environment:
        if name in ours | tokens or name.upper() in _OTHER_VARIABLES:
            yield name
