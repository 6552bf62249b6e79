"""A store of raw files, by the hash of what they hold."""

from __future__ import annotations

import asyncio
import hashlib
import re
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO

import obstore
from msgspec import Struct
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import ObjectStore

from parcelpost.errors import RawFileDamaged, RawStoreAway, RawStoreDenied

STAGING = "staging"
"""Where a folder's files are until they are whole."""

_CHUNK_BYTES = 256 * 1024
_MOST_NAME_CHARS = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]+", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PROBE_NAME = "health"
_PROBE = b"." * 4096  # a block: an empty file finds room on a full disk
_LONGEST_WRITE = timedelta(hours=1)
_MOST_PACKING_ADDS = 64 * 1024  # to what cannot be packed
_GZIP = 16 + zlib.MAX_WBITS

Write = Callable[[str, IO[bytes] | bytes], Awaitable[None]]
"""Puts content under a path, whole or not at all."""


class RawPage(Struct, frozen=True):
    size: int
    chunks: AsyncIterator[bytes]
    """Compressed with gzip."""


class RawStore:
    """Every call raises RawStoreAway when the store does not answer for now. `health` is written by `check`."""

    def __init__(self, address: str, store: ObjectStore, write: Write) -> None:
        self.address = address
        """Where it is, for whoever reads what it holds. It names no key and no password."""
        self._store = store
        self._write = write

    async def put(self, sha256: str, page: IO[bytes], name: str, metadata: bytes) -> str:
        """Keeps a page, which comes compressed with gzip, and what is told about it under that name. Its path."""
        path = page_path(sha256)
        try:
            if not await self._holds(path):
                await self._write(path, page)
            await self._write(f"{path.removesuffix('.html.gz')}/{safe_name(name)}.json", metadata)
        except (BaseError, OSError) as error:
            raise _away("a raw file could not be kept", error) from error
        return path

    async def put_record(self, sha256: str, packed: bytes) -> str:
        """Keeps a record's JSON, compressed with gzip. Its path."""
        path = _record_path(sha256)
        try:
            if not await self._holds(path):
                await self._write(path, packed)
        except (BaseError, OSError) as error:
            raise _away("a record could not be kept", error) from error
        return path

    async def open(self, sha256: str) -> RawPage | None:
        """The page with that hash; None if there is none."""
        if not _SHA256.fullmatch(sha256):
            return None
        try:
            found = await obstore.get_async(self._store, page_path(sha256))
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise _away("a raw file could not be read", error) from error
        return RawPage(found.meta["size"], _chunks(found))

    async def open_record(self, sha256: str, size: int) -> bytes | None:
        """The record's JSON, which is that large and has that hash; None if there is none. Raises RawFileDamaged."""
        if not _SHA256.fullmatch(sha256) or size < 0:
            return None
        try:
            found = await obstore.get_async(self._store, _record_path(sha256))
            if found.meta["size"] > size + _MOST_PACKING_ADDS:
                raise RawFileDamaged(f"{_record_path(sha256)} is larger than the record that it should hold")
            packed = bytes(await found.bytes_async())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise _away("a record could not be read", error) from error
        return await asyncio.to_thread(_unpacked, sha256, packed, size)

    async def check(self) -> None:
        """Returns if something can be written: a full disk is seen before a worker comes with a page."""
        try:
            await self._write(_PROBE_NAME, _PROBE)
        except (BaseError, OSError) as error:
            raise _away("a raw file could not be kept", error) from error

    async def _holds(self, path: str) -> bool:
        try:
            await obstore.head_async(self._store, path)
        except FileNotFoundError:
            return False
        return True


def remove_leftovers(place: str, now: datetime) -> None:
    """What crashes left half written in a folder. What is young may be the work of a sister gateway."""
    if "://" in place:
        return
    before = (now - _LONGEST_WRITE).timestamp()
    for file in (Path(place) / STAGING).glob("*"):
        with suppress(OSError):  # a sister was faster, or it is not ours: it takes room, and nothing else
            if file.stat().st_mtime < before:
                file.unlink()


def safe_name(name: str) -> str:
    """ASCII without separators; where that is not the name as given, a hash keeps it one of its own."""
    base = _UNSAFE.sub("-", name.replace("\\", "/").rsplit("/", 1)[-1]).lstrip(".-")[:_MOST_NAME_CHARS]
    if base == name:
        return base
    return f"{base}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def page_path(sha256: str) -> str:
    return f"{_folder(sha256)}/{sha256}.html.gz"


def _record_path(sha256: str) -> str:
    return f"{_folder(sha256)}/{sha256}.json.gz"


def _folder(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}"


def _unpacked(sha256: str, packed: bytes, size: int) -> bytes:
    """No more than that is unpacked, whatever it claims to hold."""
    try:
        data = zlib.decompressobj(_GZIP).decompress(packed, size + 1)
    except zlib.error:
        data = b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RawFileDamaged(f"{_record_path(sha256)} is not the record that its name says")
    return data


def _away(what: str, error: Exception) -> RawStoreAway:
    is_denied = isinstance(error, PermissionDeniedError | UnauthenticatedError | FileNotFoundError)
    return (RawStoreDenied if is_denied else RawStoreAway)(f"{what}: {type(error).__name__}")


async def _chunks(found: obstore.GetResult) -> AsyncIterator[bytes]:
    try:
        async for chunk in found.stream(min_chunk_size=_CHUNK_BYTES):
            yield bytes(chunk)
    except (BaseError, OSError) as error:
        raise _away("a raw file could not be read to its end", error) from error
