"""The support bundle: program, settings, store and log, bounded and without secrets or names.

Never written over an existing file.
"""

from __future__ import annotations

import io
import os
import platform
import re
import shlex
import sys
import tarfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from importlib.metadata import distributions
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil
from msgspec import Struct
from msgspec.structs import asdict

from parcelpost import __version__, events
from parcelpost.cli.components import known_sites
from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.check_result import CheckContext
from parcelpost.cli.health.doctor import Report
from parcelpost.cli.health.overview import gather_store_overview
from parcelpost.cli.health.platforms import platforms_of_store
from parcelpost.cli.health.scrubber import LEFT_OUT, Scrubber
from parcelpost.cli.health.settings import settings_findings
from parcelpost.cli.output import size, table
from parcelpost.cli.platform_names import platform_names
from parcelpost.cli.progress import Meter
from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, InvalidSettings, ParcelpostError
from parcelpost.health_checks import Finding
from parcelpost.settings.schema import KEYS, Key, form
from parcelpost.settings.secrets import read_token
from parcelpost.settings.validation import url_problem
from parcelpost.storage import backup, queries
from parcelpost.storage.history import Metrics, SyncLog, SyncRound
from parcelpost.storage.queries import RecentError

_MOST_MEMBER_BYTES = 2 * 1024**2
_SECRET_NAME = re.compile(r"token|password|passwd|secret|api_?key|credential|login|cookie", re.IGNORECASE)
_SHORTEST_SECRET = 6


class Member(Struct, frozen=True):
    name: str
    holds: str
    bytes: int


class Bundle(Struct, frozen=True):
    path: str
    bytes: int
    members: list[Member]


async def write_bundle(case: CheckContext, report: Report, file: Path | None, log: Path | None) -> Bundle:
    """Raises InvalidInput if the file exists or cannot be written."""
    now = CLOCK.now()
    path = file or Path(f"parcelpost-support-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise _is_there(path)
    scrub = _scrubber(case)
    async with Meter("creating the bundle"):
        members = [
            ("findings.json", "the findings of 'parcelpost doctor'", _findings(report, scrub)),
            ("versions.json", "Python, SQLite, system, packages", _versions()),
            ("settings.json", "all settings, with text values masked", _masked_settings(case, os.environ, scrub)),
            *[(name, holds, await _store_member(make, case, scrub)) for name, holds, make in _STORE_MEMBERS],
        ]
    encoded = [(name, holds, msgspec.json.format(msgspec.json.encode(made))) for name, holds, made in members]
    if log is not None:
        encoded.append(("log.txt", "the end of the log, with details removed", _log_tail(log, scrub).encode()))
    hidden = _secrets(case, os.environ)
    ready = [(name, holds, _without(hidden, content)[:_MOST_MEMBER_BYTES]) for name, holds, content in encoded]
    content = _archive(path.name.removesuffix(".tar.gz"), ready, now.timestamp())
    _write(path, content)
    listed = [Member(name, holds, len(made)) for name, holds, made in ready]
    return Bundle(str(path), len(content), listed)


def bundle_lines(packed: Bundle) -> Iterator[str]:
    yield f"Wrote {packed.path} ({size(packed.bytes)}), which contains:"
    yield ""
    rows = [(member.name, size(member.bytes), member.holds) for member in packed.members]
    yield from table(("file", "size", "contents"), rows)
    yield ""
    yield "It contains no tokens, owners, addresses, records or pages; pseudonyms replace task and parcel IDs."
    yield f"Review it before you send it: tar -xzOf {shlex.quote(packed.path)} | less"


async def _store_member(
    make: Callable[[CheckContext, Scrubber], Awaitable[Any]], case: CheckContext, scrub: Scrubber
) -> Any:
    try:
        return await make(case, scrub)
    except (ParcelpostError, OSError, ValueError) as error:  # the last: a moment in the store that is none
        return {"error": f"{type(error).__name__}: {scrub.words(str(error))}"}


def _scrubber(case: CheckContext) -> Scrubber:
    try:
        counties = {county.county for county in known_sites(case.settings).counties}
    except InvalidSettings:
        counties = set()
    return Scrubber(platform_names(case.settings) - set(case.settings.platforms), counties)


def _secrets(case: CheckContext, environment: Mapping[str, str]) -> list[bytes]:
    """Values that are removed even where the scrubber would keep them."""
    secrets = {text for name, text in environment.items() if _SECRET_NAME.search(name)}
    try:
        token = read_token(case.settings.gateway, environment).secret
        secrets |= {token.reveal()} if token else set()
    except InvalidSettings:
        pass
    return [text.encode() for text in secrets if len(text) >= _SHORTEST_SECRET]


def _without(hidden: list[bytes], content: bytes) -> bytes:
    for secret in hidden:
        content = content.replace(secret, b"***")
    return content


def _archive(folder: str, members: list[tuple[str, str, bytes]], at: float) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, _, content in members:
            about = tarfile.TarInfo(f"{folder}/{name}")
            about.size, about.mode, about.mtime = len(content), 0o600, int(at)
            archive.addfile(about, io.BytesIO(content))
    return packed.getvalue()


def _write(path: Path, content: bytes) -> None:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise _is_there(path) from None
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", hint="choose another file") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidInput(
            f"{path} cannot be written: {error.strerror}", hint="choose a file on another disk"
        ) from None


def _is_there(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} already exists", hint="choose another file name, or omit it")


# The members

_MOST_PACKAGES = 1_000
_PLAIN = re.compile(r"[A-Za-z0-9._+!-]{1,60}", re.ASCII)
_LINE_NUMBER = re.compile(r":(\d+)$")
_OTHER_VARIABLES = ("TZ", "LANG", "SSL_CERT_FILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def _findings(report: Report, scrub: Scrubber) -> dict[str, Any]:
    return {
        "at": report.at,
        "version": report.version,
        "ok": report.ok,
        "findings": [_scrubbed_finding(finding, scrub) for finding in report.findings],
        "checks": [asdict(line) | {"summary": scrub.words(line.summary)} for line in report.checks],
    }


def _scrubbed_finding(finding: Finding, scrub: Scrubber) -> dict[str, Any]:
    texts = {name: scrub.words(getattr(finding, name)) for name in ("message", "fix", "command")}
    return {"id": finding.id, "severity": finding.severity, **texts}


def _versions() -> dict[str, Any]:
    packages = {
        str(package.metadata["Name"]).lower(): package.version for package in islice(distributions(), _MOST_PACKAGES)
    }
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


def _masked_settings(case: CheckContext, environment: Mapping[str, str], scrub: Scrubber) -> dict[str, Any]:
    """All settings; for free text only whether it is set."""
    loaded = case.diagnosis.loaded
    origins = loaded.origins if loaded else {}
    values = {
        name: {"value": _masked(key, _setting_value(case, key), scrub), "from": _origin(origins.get(name, ""))}
        for name, key in KEYS.items()
    }
    return {
        "settings": values,
        "platforms": len(case.settings.platforms),
        "field_maps": len(case.settings.field_maps),
        "findings": [_scrubbed_finding(finding, scrub) for finding in settings_findings(case.diagnosis)],
        "environment": sorted(_variables(environment)),
    }


def _setting_value(case: CheckContext, key: Key) -> Any:
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
    """Describes an address by its scheme and kind of host."""
    if url_problem(url):
        return "set, but invalid"
    parts = urlsplit(url)
    try:
        where = "this machine" if ip_address(parts.hostname or "").is_loopback else "an address"
    except ValueError:
        where = "this machine" if parts.hostname == "localhost" else "a name"
    return f"set: {parts.scheme}, {where}, {'a port' if parts.port else 'the usual port'}"


def _origin(origin: str) -> str:
    if origin.startswith(("default", "environment", "flag")):
        return origin.split(maxsplit=1)[0].rstrip(",")
    line = _LINE_NUMBER.search(origin)
    return f"file, line {line[1]}" if line else "file" if origin else "unknown"


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Names of the known environment variables that are set."""
    ours = {key.variable for key in KEYS.values()} | {"PARCELPOST_STORE", "PARCELPOST_CONFIG"}
    tokens = {"PARCELPOST_GATEWAY_TOKEN", "PARCELPOST_FETCH_PROXY_LOGIN"}
    for name in environment:
        if name in ours | tokens or name.upper() in _OTHER_VARIABLES:
            yield name


_MOST_ROUNDS = 500
_MOST_SITES = 1_000
_MOST_ERRORS = 200
_MOST_SAMPLES = 2_000
_SAMPLES_OF = timedelta(days=1)
_KINDS = frozenset({"tasks", "results", "raw_files", "learning_signals", "agent_metrics", "reports", "selectors"})


async def _store_schema(case: CheckContext, scrub: Scrubber) -> Any:
    async with open_for_reading(case.store) as database:
        schema = await database.read(queries.schema)
    applied = [asdict(migration) | {"applied_at": scrub.moment(migration.applied_at)} for migration in schema.applied]
    return asdict(schema) | {"applied": applied}


async def _store_counts(case: CheckContext, scrub: Scrubber) -> Any:
    async with open_for_reading(case.store) as database:
        rows = await database.read(queries.table_counts)
        tasks = await database.read(queries.counts, iso(CLOCK.now()))
        results = await database.read(queries.result_counts)
    return {
        "rows": rows,
        "tasks": [{"platform": scrub.platform(name), **tasks[name]} for name in list(tasks)[:_MOST_SITES]],
        "results": [asdict(row) | {"platform": scrub.platform(row.platform)} for row in results[:_MOST_SITES]],
    }


async def _store_state(case: CheckContext, scrub: Scrubber) -> Any:
    overview = await gather_store_overview(case.store)
    outage = overview.sync.outage
    return {
        "queue": overview.queue,
        "storage": overview.storage,
        "write_ahead_log_bytes": case.wal_bytes,
        "backups": [
            {"bytes": about.st_size, "age_seconds": round(CLOCK.now().timestamp() - about.st_mtime)}
            for about in (path.stat() for path in backup.list_backups(case.store.path))
        ],
        "open_in": len(overview.workers) + len(overview.commands),
        "crashed": len(overview.crashed),
        "outage": outage
        and {
            "since": outage.since,
            "until": outage.until,
            "failures": outage.failures,
            "denied": outage.denied,
            "reason": scrub.words(outage.reason),
        },
        "paused_platforms": [
            {"platform": scrub.platform(name), "until": scrub.moment(pause.until), "reason": scrub.words(pause.reason)}
            for name, pause in overview.paused.items()
        ],
        "paused_by_gateway": sum(status.paused_since is not None for status in overview.statuses),
        "short_of_memory": sum(status.memory is not None for status in overview.statuses),
        "fields_lost": len([lost for lost in overview.broken if not lost.field.found_otherwise]),
        "platforms_that_wait_for_a_browser": [scrub.platform(wait.platform) for wait in overview.browser_waits],
    }


async def _sync_rounds(case: CheckContext, scrub: Scrubber) -> Any:
    async with open_for_reading(case.store) as database:
        rounds = await SyncLog(database, CLOCK).recent(_MOST_ROUNDS)
    return [
        {
            "at": entry.created_at,
            **{name: getattr(entry, name) for name in SyncRound.__struct_fields__},
            "record_type": entry.record_type if entry.record_type in _KINDS else "other",
            "error": scrub.words(entry.error),
        }
        for entry in rounds
    ]


async def _site_rows(case: CheckContext, scrub: Scrubber) -> Any:
    known = await platforms_of_store(case.store)
    return [
        {
            "platform": scrub.platform(site.platform),
            "state": scrub.state(site.state),
            "county": scrub.county(site.county),
            "completed": site.completed,
            "failed": site.failed,
            "trying_again": site.trying_again,
            "last_success": site.last_success,
            "last_error": scrub.words(site.last_error),
            "last_error_at": site.last_error_at,
        }
        for site in known.sites[:_MOST_SITES]
    ]


async def _recent_error_rows(case: CheckContext, scrub: Scrubber) -> Any:
    async with open_for_reading(case.store) as database:
        errors = await database.read(queries.recent_errors, _MOST_ERRORS)
    newest = [_error_row(error, scrub) for error in errors if error.task_id]
    commonest = Counter(row["error"] for row in newest).most_common()
    return {"commonest": [{"error": text, "count": number} for text, number in commonest], "newest": newest}


def _error_row(error: RecentError, scrub: Scrubber) -> dict[str, Any]:
    return {
        "task": scrub.pseudonym("task", error.task_id),
        "parcel": scrub.pseudonym("parcel", error.parcel_id),
        "platform": scrub.platform(error.platform),
        "state": scrub.state(error.state),
        "county": scrub.county(error.county),
        "kind": error.kind,
        "at": error.at,
        "error": scrub.words(error.error),
    }


async def _metric_samples(case: CheckContext, _: Scrubber) -> Any:
    async with open_for_reading(case.store) as database:
        samples = await Metrics(database, CLOCK).since(CLOCK.now() - _SAMPLES_OF, _MOST_SAMPLES)
    return [{"at": sample.timestamp, **asdict(sample.sample)} for sample in samples]


_TAIL_BYTES = 512 * 1024
_MOST_LINES = 2_000
_LEVELS = ("debug", "info", "warning", "error")
_HUMAN_LINE = re.compile(rf"(\d\d:\d\d:\d\d) ({'|'.join(_LEVELS)})\s+(.*)")


def _log_tail(path: Path, scrub: Scrubber) -> str:
    """Raises InvalidInput for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            length = file.seek(0, 2)
            file.seek(max(0, length - _TAIL_BYTES))
            content = file.read(_TAIL_BYTES)
    except OSError as error:
        raise InvalidInput(f"the log {path} cannot be read: {error.strerror}", hint="omit --log") from None
    lines = content.decode("utf-8", "replace").splitlines()
    whole = lines[1:] if length > _TAIL_BYTES else lines  # the first is cut
    return "\n".join(_log_line(line, scrub) for line in whole[-_MOST_LINES:]) + "\n"


def _log_line(line: str, scrub: Scrubber) -> str:
    if (spoken := _HUMAN_LINE.match(line)) is not None:
        return f"{spoken[1]} {spoken[2]} {scrub.words(spoken[3])}"
    try:
        event = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return scrub.words(line)
    kind = getattr(events, str(event.get("event")), None)
    if not isinstance(kind, type) or not issubclass(kind, events.Event):
        return LEFT_OUT
    scrubbed = {
        "time": scrub.moment(str(event.get("time"))),
        "level": event["level"] if event.get("level") in _LEVELS else "",
        "event": kind.__name__,
        **{name: _log_value(event[name], scrub) for name in kind.__struct_fields__ if name in event},
    }
    return msgspec.json.encode(scrubbed).decode()


def _log_value(given: Any, scrub: Scrubber) -> Any:
    if isinstance(given, bool | int | float) or given is None:
        return given
    if isinstance(given, str):
        return scrub.moment(given) or scrub.words(given)
    return f"{len(given)} entries" if isinstance(given, list | dict) else LEFT_OUT


_STORE_MEMBERS: tuple[tuple[str, str, Callable[[CheckContext, Scrubber], Awaitable[Any]]], ...] = (
    ("schema.json", "migrations and missing tables", _store_schema),
    ("counts.json", "rows of each table; tasks and results by state", _store_counts),
    ("state.json", "queue, storage, age of backups, outages, pauses", _store_state),
    ("sync_log.json", "the last 500 sync rounds", _sync_rounds),
    ("platforms.json", "success rate of each county's site", _site_rows),
    ("errors.json", "the newest errors, with details removed", _recent_error_rows),
    ("metrics.json", "the worker's metrics of the last 24 hours", _metric_samples),
)
