"""Writes the support bundle: bounded, scrubbed, and never over an existing file."""

from __future__ import annotations

import io
import os
import re
import shlex
import tarfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.cli.components import known_sites
from parcelpost.cli.context import CLOCK
from parcelpost.cli.doctor import bundle_contents
from parcelpost.cli.doctor.report import CheckContext, Report
from parcelpost.cli.doctor.scrubber import Scrubber
from parcelpost.cli.output import size, table
from parcelpost.cli.platform_names import platform_names
from parcelpost.cli.progress import Meter
from parcelpost.errors import InvalidInput, InvalidSettings, ParcelpostError
from parcelpost.settings.secrets import read_token

_MOST_MEMBER_BYTES = 2 * 1024**2
_SECRET_NAME = re.compile(r"token|password|passwd|secret|api_?key|credential|login|cookie", re.IGNORECASE)
_SHORTEST_SECRET = 6
_STORE_MEMBERS: tuple[tuple[str, str, Callable[[CheckContext, Scrubber], Awaitable[Any]]], ...] = (
    ("schema.json", "migrations, and tables that are missing", bundle_contents.store_schema),
    ("counts.json", "rows of each table; tasks and results by state", bundle_contents.store_counts),
    ("state.json", "queue, room, backups' ages, backing off, pauses", bundle_contents.store_state),
    ("sync_log.json", "the last 500 rounds of sync", bundle_contents.sync_rounds),
    ("platforms.json", "how each county's site does", bundle_contents.site_rows),
    ("errors.json", "the newest errors, particulars left out", bundle_contents.recent_error_rows),
    ("metrics.json", "the worker's figures of a day", bundle_contents.metric_samples),
)


class Member(Struct, frozen=True):
    name: str
    holds: str
    bytes: int


class Bundle(Struct, frozen=True):
    path: str
    bytes: int
    members: list[Member]


async def write_bundle(case: CheckContext, report: Report, file: Path | None, log: Path | None) -> Bundle:
    """Raises InvalidInput where the file is there already, or cannot be written."""
    now = CLOCK.now()
    path = file or Path(f"parcelpost-support-{now:%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise _is_there(path)
    scrub = _scrubber(case)
    async with Meter("putting the bundle together"):
        members = [
            ("findings.json", "what doctor found", bundle_contents.findings(report, scrub)),
            ("versions.json", "Python, SQLite, system, packages", bundle_contents.versions()),
            ("settings.json", "every setting, texts masked", bundle_contents.masked_settings(case, os.environ, scrub)),
            *[(name, holds, await _store_member(make, case, scrub)) for name, holds, make in _STORE_MEMBERS],
        ]
    encoded = [(name, holds, msgspec.json.format(msgspec.json.encode(made))) for name, holds, made in members]
    if log is not None:
        encoded.append(
            ("log.txt", "the end of the log, particulars left out", bundle_contents.log_tail(log, scrub).encode())
        )
    hidden = _secrets(case, os.environ)
    ready = [(name, holds, _without(hidden, content)[:_MOST_MEMBER_BYTES]) for name, holds, content in encoded]
    content = _archive(path.name.removesuffix(".tar.gz"), ready, now.timestamp())
    _write(path, content)
    listed = [Member(name, holds, len(made)) for name, holds, made in ready]
    return Bundle(str(path), len(content), listed)


def bundle_lines(packed: Bundle) -> Iterator[str]:
    yield f"Written: {packed.path} ({size(packed.bytes)}). It holds:"
    yield ""
    rows = [(one.name, size(one.bytes), one.holds) for one in packed.members]
    yield from table(("file", "size", "what"), rows)
    yield ""
    yield "No tokens, owners, addresses, records or pages; parcels have made-up names."
    yield f"Look into it before you send it: tar -xzOf {shlex.quote(packed.path)} | less"


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
    """What must not be there even if all else fails."""
    found = {text for name, text in environment.items() if _SECRET_NAME.search(name)}
    try:
        token = read_token(case.settings.gateway, environment).secret
        found |= {token.reveal()} if token else set()
    except InvalidSettings:
        pass
    return [text.encode() for text in found if len(text) >= _SHORTEST_SECRET]


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
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", hint="name another file") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise InvalidInput(f"{path} cannot be written: {error.strerror}", hint="name a file on another disk") from None


def _is_there(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} is there already, and is left as it is", hint="name another file, or none")
