"""Where raw files are kept: by the hash of the page, in a folder or in S3.

`ab/cd/<sha256>.html.gz` is the page, `ab/cd/<sha256>/<name>.json` what was told about it. A page that is there is not
written again. In a folder a page appears under its name only when it is on the disk, synced; what S3 promises, holds.
`health` is written now and then to see whether anything can be.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import obstore
from msgspec import Struct
from obstore.exceptions import BaseError
from obstore.store import LocalStore, ObjectStore, S3Store

from parcelpost.errors import InvalidSettings, RawStoreAway
from parcelpost.gateway.private_folder import make_private

_CHUNK_BYTES = 256 * 1024
_MOST_NAME_CHARS = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]+", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_STAGING = "staging"
_PROBE_NAME = "health"
_PROBE = b"." * 4096  # a block: an empty file finds room on a full disk
_LONGEST_WRITE = timedelta(hours=1)
_RETRIES_END = timedelta(seconds=10)

Write = Callable[[str, IO[bytes] | bytes], Awaitable[None]]
"""Puts content under a path, whole or not at all."""


class RawPage(Struct, frozen=True):
    size: int
    chunks: AsyncIterator[bytes]
    """Compressed with gzip."""


class RawStore:
    """Every call raises RawStoreAway when the store does not answer for now."""

    def __init__(self, store: ObjectStore, write: Write) -> None:
        self._store = store
        self._write = write

    async def put(self, sha256: str, page: IO[bytes], name: str, metadata: bytes) -> str:
        """Keeps a page, which comes compressed with gzip, and what is told about it under that name. Its path."""
        path = _path(sha256)
        try:
            if not await self._holds(path):
                await self._write(path, page)
            await self._write(f"{path.removesuffix('.html.gz')}/{safe_name(name)}.json", metadata)
        except (BaseError, OSError) as error:
            raise RawStoreAway(f"a raw file could not be kept: {type(error).__name__}") from error
        return path

    async def open(self, sha256: str) -> RawPage | None:
        """The page with that hash; None if there is none."""
        if not _SHA256.fullmatch(sha256):
            return None
        try:
            found = await obstore.get_async(self._store, _path(sha256))
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise RawStoreAway(f"a raw file could not be read: {type(error).__name__}") from error
        return RawPage(found.meta["size"], _chunks(found))

    async def check(self) -> None:
        """Returns if something can be written: a full disk is seen before a worker comes with a page."""
        try:
            await self._write(_PROBE_NAME, _PROBE)
        except (BaseError, OSError) as error:
            raise RawStoreAway(f"a raw file could not be kept: {type(error).__name__}") from error

    async def _holds(self, path: str) -> bool:
        try:
            await obstore.head_async(self._store, path)
        except FileNotFoundError:
            return False
        return True


def open_raw_store(place: str, environment: Mapping[str, str]) -> RawStore:
    """A folder, made where there is none, for its owner alone; or s3://bucket/prefix. Raises InvalidSettings."""
    if not place:
        raise InvalidSettings("server.raw is empty", hint="name a folder, or s3://bucket/prefix")
    if place.startswith("s3://"):
        return _in_s3(place, environment)
    if "://" in place:
        raise InvalidSettings("server.raw is neither a folder nor s3://bucket/prefix")
    return _in_folder(Path(place))


def remove_leftovers(place: str, now: datetime) -> None:
    """What crashes left half written in a folder. What is young may be the work of a sister gateway."""
    if "://" in place:
        return
    before = (now - _LONGEST_WRITE).timestamp()
    for file in (Path(place) / _STAGING).glob("*"):
        with suppress(OSError):  # a sister was faster, or it is not ours: it takes room, and nothing else
            if file.stat().st_mtime < before:
                file.unlink()


def safe_name(name: str) -> str:
    """ASCII without separators; where that is not the name as given, a hash keeps it one of its own."""
    base = _UNSAFE.sub("-", name.replace("\\", "/").rsplit("/", 1)[-1]).lstrip(".-")[:_MOST_NAME_CHARS]
    if base == name:
        return base
    return f"{base}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def _path(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}.html.gz"


async def _chunks(found: obstore.GetResult) -> AsyncIterator[bytes]:
    try:
        async for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
            yield bytes(chunk)
    except (BaseError, OSError) as error:
        raise RawStoreAway(f"a raw file could not be read to its end: {type(error).__name__}") from error


def _in_folder(folder: Path) -> RawStore:
    root = folder.absolute()
    try:
        make_private(root / _STAGING)
        root.chmod(0o700)
        store = LocalStore(root, mkdir=True)
    except (BaseError, OSError) as error:
        raise InvalidSettings(f"server.raw {folder} cannot be used: {error}", hint="check who owns it") from None

    async def write(path: str, content: IO[bytes] | bytes) -> None:
        staged = f"{_STAGING}/{secrets.token_hex(16)}"
        try:
            await obstore.put_async(store, staged, content, use_multipart=False)
            await asyncio.to_thread(_settle_file, root / staged, root / path)
            await obstore.rename_async(store, staged, path)
        except BaseException:
            (root / staged).unlink(missing_ok=True)
            raise
        await asyncio.to_thread(_settle_folders, root, (root / path).parent)

    return RawStore(store, write)


def _settle_file(path: Path, target: Path) -> None:
    make_private(target.parent)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle_folders(root: Path, folder: Path) -> None:
    """The new name is on the disk when its folder is, and that one's own name too."""
    for one in (folder, *folder.parents):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if one == root:
            return


def _in_s3(place: str, environment: Mapping[str, str]) -> RawStore:
    parts = urlsplit(place)
    if not parts.netloc:
        raise InvalidSettings("server.raw names no bucket", hint="write it as s3://bucket/prefix")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    given = {
        "access_key_id": environment.get("AWS_ACCESS_KEY_ID"),
        "secret_access_key": environment.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environment.get("AWS_SESSION_TOKEN"),
        "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
        "endpoint": endpoint or None,
    }
    try:
        store = S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            config={name: text for name, text in given.items() if text},  # type: ignore[arg-type]
            client_options={"allow_http": endpoint.startswith("http://")},
            virtual_hosted_style_request=not endpoint,
            retry_config={"max_retries": 2, "retry_timeout": _RETRIES_END},  # the worker comes again by itself
        )
    except BaseError as error:
        raise InvalidSettings(f"server.raw cannot be used: {type(error).__name__}") from None

    async def write(path: str, content: IO[bytes] | bytes) -> None:
        await obstore.put_async(store, path, content)

    return RawStore(store, write)
