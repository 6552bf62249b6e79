"""Pages, and records that fit into no document: in Cloud Storage, or wherever `firestore.raw` says."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parcelpost import wire
from parcelpost.client.firestore.values import Plain
from parcelpost.errors import NotAllowed, NotNow, RawStoreAway, RawStoreDenied, Refused
from parcelpost.model import OutboxEntry
from parcelpost.raw_store import RawStore, page_path

_LOOK = "check firestore.raw and who may write there; everything is kept here meanwhile"
_REST = "check firestore.raw and the room there; everything is kept here, and tried again"


class RawFiles:
    def __init__(self, store: RawStore) -> None:
        self._store = store

    async def upload(self, entry: OutboxEntry, path: Path) -> None:
        """The file's own bytes, once they are what the entry says. Raises Refused for one that is not, or is gone."""
        try:
            await asyncio.to_thread(_check, path, entry.raw_sha256 or "")
            with path.open("rb") as file, _in_our_words():
                name, metadata = wire.raw_file_name(entry), wire.raw_file_metadata(entry)
                await self._store.put(entry.raw_sha256 or "", file, name, metadata)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
            raise Refused(f"the raw file {path} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise NotNow(f"the raw file {path} cannot be read: {error.strerror}") from error

    async def keep_record(self, data: bytes, why: str) -> Plain:
        """How a result names it. `why` it stands in no document."""
        sha256 = hashlib.sha256(data).hexdigest()
        packed = await asyncio.to_thread(gzip.compress, data, 6, mtime=0)
        with _in_our_words():
            key = await self._store.put_record(sha256, packed)
        return {"store": self._store.address, "key": key, "sha256": sha256, "bytes": len(data), "why": why}

    def page_reference(self, entry: OutboxEntry) -> Plain:
        """How a result names its page; None if it has none."""
        if not entry.html_path or not entry.raw_sha256:
            return None
        key, name = page_path(entry.raw_sha256), wire.raw_file_name(entry)
        return {"store": self._store.address, "key": key, "sha256": entry.raw_sha256, "name": name}


def _check(path: Path, sha256: str) -> None:
    """The gateway would look, too: a page that is damaged here must not be taken for the real one there."""
    try:
        with gzip.open(path) as page:
            found = hashlib.file_digest(page, "sha256").hexdigest()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Refused(f"the raw file {path} is damaged: {error}") from None
    if found != sha256:
        raise Refused(f"the raw file {path} is not the page that the result names: its SHA-256 differs")


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        yield
    except RawStoreDenied as error:
        raise NotAllowed(str(error), hint=_LOOK) from None
    except RawStoreAway as error:
        raise NotNow(str(error), hint=_REST) from None
