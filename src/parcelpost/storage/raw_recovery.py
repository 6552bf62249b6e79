"""After a death: the raw files that a dead owner's journal still vouches for are made whole and durable (I6)."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import zlib
from itertools import islice
from pathlib import Path
from typing import IO

from parcelpost.model import OutboxEntry
from parcelpost.storage import durable_files, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_journal import FAILED, PageRecord, read_segment, segment_paths
from parcelpost.storage.raw_names import inside

_CHUNK = 200
_BLOCK_BYTES = 1024 * 1024


async def mend(database: LocalDatabase, live: Path, owner_id: str, root: Path) -> tuple[int, int]:
    """Answers how many files were restored, and how many journalled pages no result names."""
    segments = segment_paths(live, owner_id)
    records = ((record, FAILED in path.name) for path in segments for record in read_segment(path))
    restored, without_result = 0, 0
    files: list[str] = []
    while chunk := list(islice(records, _CHUNK)):
        named = await database.read(outbox.named_by_a_result, [record.name for record, _ in chunk])
        for record, must_write in chunk:
            if record.name not in named:
                without_result += 1
                continue
            sha256, data = named[record.name]
            restored += _mend_file(root, record, sha256, data, must_write=must_write)
            files += [record.name, record.name.removesuffix(".html.gz") + ".json"]
    if files:
        durable_files.sync_many(root, files)
    for path in segments:
        path.unlink()
    return restored, without_result


def _mend_file(root: Path, record: PageRecord, sha256: str, data: str | None, *, must_write: bool) -> bool:
    path = inside(root, record.name)
    json_path = path.with_name(path.name.removesuffix(".html.gz") + ".json")
    if data is not None and _content(json_path) != data.encode():
        durable_files.replace(json_path, data.encode())
    if not _matches(record.body, sha256) or (_content(path) == record.body and not must_write):
        return False
    durable_files.replace(path, record.body)
    return True


def page_problem(path: Path, entry: OutboxEntry) -> str:
    """Why a page's file is not what its result says; '' if it is."""
    try:
        with path.open("rb") as file:
            is_whole = _digest(file) == entry.raw_sha256
    except (FileNotFoundError, NotADirectoryError):
        return f"its page {entry.html_path} is gone from the disk"
    except (PermissionError, IsADirectoryError) as error:
        return f"its page {entry.html_path} cannot be read: {error.strerror}"
    return "" if is_whole else f"its page {entry.html_path} is damaged: it is not what was fetched"


def restore_page(live: Path, path: Path, entry: OutboxEntry) -> bool:
    """From the journal of any process that has the store open: a page is in one for a while after it was stored."""
    for segment in live.glob("*.raw"):
        with contextlib.suppress(FileNotFoundError):  # its process has just let it go
            for record in read_segment(segment):
                if record.name == entry.html_path and _matches(record.body, entry.raw_sha256 or ""):
                    durable_files.replace(path, record.body)
                    return True
    return False


def _digest(packed: IO[bytes]) -> str:
    """Of the page in a file; '' where it cannot be unpacked."""
    if not packed.read(1):
        return ""
    packed.seek(0)
    digest = hashlib.sha256()
    try:
        with gzip.open(packed) as page:
            while block := page.read(_BLOCK_BYTES):
                digest.update(block)
    except (zlib.error, EOFError, gzip.BadGzipFile):
        return ""
    return digest.hexdigest()


def _matches(body: bytes, sha256: str) -> bool:
    try:
        return hashlib.sha256(gzip.decompress(body)).hexdigest() == sha256
    except (OSError, EOFError, zlib.error):
        return False


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
