"""After a death: the raw files that a dead owner's journal still vouches for are made whole and durable (I6)."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from itertools import islice
from pathlib import Path

from parcelpost.storage import durable_files, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_journal import FAILED, PageRecord, read_segment, segment_paths
from parcelpost.storage.raw_names import inside

_CHUNK = 200


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
