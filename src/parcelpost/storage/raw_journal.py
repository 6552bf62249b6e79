"""The raw journal: makes many pages durable with one fsync.

A page is written to its own file without an fsync and appended to the journal; one fsync of the journal makes a whole
group of pages durable. When a segment is full, its pages' files are synced together in the background, and the segment
is reused. After a power cut, the files that did not reach the disk are restored from the journal.
"""

from __future__ import annotations

import glob
import os
import secrets
import struct
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import NamedTuple

from parcelpost.storage import durable_files

SEGMENT_BYTES = 16 * 1024 * 1024

FAILED = "failed-"
"""Marks a segment that could not be synced, or whose files could not."""

_MAX_SETTLING = 2

_HEADER = struct.Struct("<4sQIHI")  # magic, generation of the segment, crc32, lengths of name and body
_MAGIC = b"PPRJ"


class JournalRecord(NamedTuple):
    name: str
    """The file's path below the raw folder."""
    body: bytes
    """The content of the file, compressed."""


class RawJournal:
    """Used only by the thread of RawFiles."""

    def __init__(self, folder: Path, owner_id: str, root: Path, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._owner_id = owner_id
        self._root = root
        self._segment_bytes = segment_bytes
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="raw-settle")
        self._settling: deque[Future[None]] = deque()
        self._numbers = count()
        self._free: deque[Path] = deque()
        """Segments whose files are durable. A segment whose files could not be synced is kept for the next start."""
        self._path: Path | None = None
        self._handle = -1
        self._offset = 0
        self._has_failed = False
        self._generation = 0
        self._names: list[str] = []
        self._files = durable_files.WrittenFiles(root)
        """Those of the current segment, the first of which are written before it is started."""

    def append(self, records: Sequence[JournalRecord]) -> None:
        """Returns when the records are durable. An error does not affect earlier records."""
        if self._path is None or self._offset >= self._segment_bytes:
            self._start_segment()
        data = b"".join(_encode(record, self._generation) for record in records)
        try:
            _write_all(self._handle, data, self._offset)
            self._sync()
        except OSError:
            self._offset = self._segment_bytes
            raise
        self._offset += len(data)
        self._names += [record.name for record in records]

    def _sync(self) -> None:
        """After a failed fsync, ext4 may keep new data of the file in memory only: it is never used again."""
        try:
            durable_files.sync_handle(self._handle)
        except OSError:
            self._has_failed = True
            raise

    def close(self) -> None:
        """Like `give_back`; also stops the thread."""
        try:
            self.give_back()
        finally:
            self._pool.shutdown()
            self._files.close()

    def give_back(self) -> None:
        """Makes every file durable, then deletes the journal. After an error the journal is kept for the next start."""
        self._end_segment()
        self._wait_for_settling(0)
        while self._free:
            self._free.popleft().unlink(missing_ok=True)

    def stop(self) -> None:
        self._pool.shutdown(wait=False)
        self._files.close()

    def _start_segment(self) -> None:
        self._end_segment()
        self._wait_for_settling(_MAX_SETTLING)
        path = self._free.popleft() if self._free else self._folder / f"{self._owner_id}.{next(self._numbers)}.raw"
        is_new = not path.exists()
        if not is_new and path.stat().st_size > self._segment_bytes:
            os.truncate(path, self._segment_bytes)
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
        self._path, self._offset, self._has_failed = path, self._segment_bytes, True
        if is_new:
            durable_files.sync_path(path.parent)
        self._offset, self._has_failed = 0, False
        self._generation = secrets.randbits(64)

    def _end_segment(self) -> None:
        if self._path is None:
            return
        files, self._files = self._files, durable_files.WrittenFiles(self._root)
        self._settling.append(self._pool.submit(self._settle, files, self._path, self._names, self._has_failed))
        os.close(self._handle)
        self._path = None
        self._names = []

    def _settle(self, files: durable_files.WrittenFiles, path: Path, names: list[str], has_failed: bool) -> None:
        try:
            if names:
                records = [name.removesuffix(".html.gz") + ".json" for name in names]
                files.sync([*names, *records])
        except OSError:
            # The kernel may consider the data clean although it is not on disk: the files must be written again.
            self._keep_for_next_start(path)
            raise
        finally:
            files.close()
        if not has_failed:
            self._free.append(path)
        elif names:  # a peer process may have been told of the errors of our files
            self._keep_for_next_start(path)
        else:
            path.unlink(missing_ok=True)

    def _keep_for_next_start(self, path: Path) -> None:
        path.rename(path.with_name(f"{self._owner_id}.{FAILED}{path.name.split('.')[-2]}.raw"))

    def _wait_for_settling(self, limit: int) -> None:
        """Raises the OSError of a segment whose files could not be synced, once."""
        while self._settling and (len(self._settling) > limit or self._settling[0].done()):
            self._settling.popleft().result()


def segment_paths(folder: Path, owner_id: str) -> list[Path]:
    return sorted(folder.glob(f"{glob.escape(owner_id)}.*.raw"))


def read_segment(path: Path) -> Iterator[JournalRecord]:
    """Yields the records of the newest generation, up to the first incomplete one."""
    with path.open("rb") as file:
        generation: int | None = None
        while len(header := file.read(_HEADER.size)) == _HEADER.size:
            magic, record_generation, crc, name_length, body_length = _HEADER.unpack(header)
            generation = record_generation if generation is None else generation
            if magic != _MAGIC or record_generation != generation:
                return
            content = file.read(name_length + body_length)
            if _checksum(generation, name_length, content) != crc:
                return
            yield JournalRecord(content[:name_length].decode(), content[name_length:])


def _encode(record: JournalRecord, generation: int) -> bytes:
    name = record.name.encode()
    content = name + record.body
    checksum = _checksum(generation, len(name), content)
    return _HEADER.pack(_MAGIC, generation, checksum, len(name), len(record.body)) + content


def _checksum(generation: int, name_length: int, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(struct.pack("<QH", generation, name_length)))


def _write_all(handle: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(handle, view, offset)
        view, offset = view[written:], offset + written
