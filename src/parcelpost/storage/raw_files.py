"""Raw files: the page and the record of a result on disk, verified by hash (I6), and the folder they are in."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import gzip
import hashlib
import os
import re
import secrets
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from io import BytesIO
from itertools import accumulate, takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote

import msgspec
from isal import igzip

from parcelpost.clock import Clock, iso
from parcelpost.errors import StoreError, StoreGone
from parcelpost.model import OutboxEntry
from parcelpost.storage import durable_files, outbox, worker_state
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.errors import os_error
from parcelpost.storage.raw_journal import JournalRecord, RawJournal, read_segment
from parcelpost.storage.snapshot import open_read_only
from parcelpost.storage.writer import Batcher

_MAX_BYTES = 120
_RESERVED = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE
)  # device names on Windows, where the data may be read


def safe_name(value: str) -> str:
    """Returns one safe path component: readable if possible, percent-encoded if not, cut with a hash if too long."""
    name = quote(value, safe=" ,+=()").replace("~", "%7E").strip(" ")
    if name.startswith(".") or _RESERVED.fullmatch(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    if len(name) > _MAX_BYTES:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        name = f"{name[: _MAX_BYTES - 17]}~{digest}"
    return name or "%"


@lru_cache(1_024)  # a county has thousands of pages
def folder_of(platform: str, state: str, county: str) -> str:
    return f"{safe_name(platform)}/{safe_name(state)}/{safe_name(county)}"


def inside(root: Path, relative: str) -> Path:
    """Returns the path below root. Raises ValueError for a path that leads out of it."""
    path = Path(relative)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{relative!r} is outside the raw folder")
    return root / path


_MAX_GROUP = 64
_MAX_PART_BYTES = 8 * 1024 * 1024
_BLOCK_BYTES = 4096
_GIVE_BACK = None

HOLDER_FILE = ".store"
"""The file in each raw folder with the name and the id of its store."""
GONE_HINT = "put the folder back or mount it, and a running worker continues; backups contain only the database"


class NewPage(NamedTuple):
    platform: str
    state: str
    county: str
    parcel_id: str
    result_id: str
    body: bytes
    record_json: bytes
    own_name: bool = False
    """Whether to use a file name that is unique to this result."""


class StoredPageFile(NamedTuple):
    html_path: str
    json_path: str
    sha256: str
    """The hash of the page as fetched."""
    disk_bytes: int


class RawFiles:
    """Stores pages. Once `keep` has returned, the page survives kill -9 and power loss (I2, I6)."""

    def __init__(self, root: Path, live: Path, owner_id: str, store_missing: Callable[[], str] = str) -> None:
        """`store_missing` returns what is wrong if the store was moved: the folder may be another store's then."""
        self.root = root
        self._store_missing = store_missing
        self._journal = RawJournal(live, owner_id, root)
        self._folders: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="raw-files")
        self._removals = ThreadPoolExecutor(1, thread_name_prefix="raw-removals")
        self._batcher = Batcher(self._on_thread, self._serve_group, max_group=_MAX_GROUP, dropped=self._discard_dropped)

    async def keep(self, page: NewPage) -> StoredPageFile:
        return cast(StoredPageFile, await self._batcher.submit(page))

    async def discard(self, names: Iterable[str]) -> None:
        """Deletes files that no result names any more."""
        await asyncio.get_running_loop().run_in_executor(self._removals, self._unlink, list(names))

    async def give_back(self) -> None:
        """Makes all files durable and deletes the journal, which frees its disk space."""
        await self._batcher.submit(_GIVE_BACK)

    def path(self, name: str) -> Path:
        return inside(self.root, name)

    @property
    def missing(self) -> str:
        return missing(self.root)

    async def close(self) -> None:
        try:
            await self._batcher.close()
            await asyncio.get_running_loop().run_in_executor(self._pool, self._journal.close)
        except OSError as error:
            raise os_error(error, self.root) from error
        finally:
            self._batcher.halt()
            self._journal.stop()
            self._pool.shutdown(wait=False)
            self._removals.shutdown(wait=False)

    async def _on_thread(self, serve: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, serve)

    def _serve_group(self, items: list[NewPage | None]) -> list[Any]:
        answers = iter(self._keep_group([page for page in items if page is not _GIVE_BACK]))
        return [self._give_back() if page is _GIVE_BACK else next(answers) for page in items]

    def _give_back(self) -> StoreError | None:
        try:
            self._journal.give_back()
        except OSError as error:
            return os_error(error, self.root)
        return None

    def _keep_group(self, pages: list[NewPage]) -> list[Any]:
        answers: list[Any] = []
        while pages:  # in parts, because a journal segment is bounded
            size = takewhile(lambda total: total < _MAX_PART_BYTES, accumulate(len(page.body) for page in pages))
            end = min(len(pages), sum(1 for _ in size) + 1)
            answers += self._keep_part(pages[:end])
            pages = pages[end:]
        return answers

    def _keep_part(self, pages: list[NewPage]) -> list[Any]:
        if problem := self._store_missing():
            return [StoreGone(problem) for _ in pages]
        if problem := missing(self.root):
            return [StoreGone(problem, hint=GONE_HINT) for _ in pages]
        answers: list[Any] = []
        records: list[JournalRecord] = []
        for page in pages:
            try:
                page_file, record = self._write_or_make_folder(page)
            except OSError as error:
                answers.append(os_error(error, self.root))
            else:
                answers.append(page_file)
                records.append(record)
        try:
            if records:
                self._journal.append(records)
        except OSError as error:
            for answer in answers:
                if isinstance(answer, StoredPageFile):
                    self._unlink([answer.json_path, answer.html_path])
            return [os_error(error, self.root) for _ in pages]
        if problem := missing(self.root):  # the folder may be gone by now: do not confirm the pages
            return [StoreGone(problem, hint=GONE_HINT) for _ in pages]
        return answers

    def _write_or_make_folder(self, page: NewPage) -> tuple[StoredPageFile, JournalRecord]:
        try:
            return self._write_files(page)
        except FileNotFoundError:  # the folder was deleted
            self._folders.clear()
            return self._write_files(page)

    def _write_files(self, page: NewPage) -> tuple[StoredPageFile, JournalRecord]:
        folder = folder_of(page.platform, page.state, page.county)
        if folder not in self._folders:
            durable_files.make_folder(self.root / folder)
            self._folders.add(folder)
        digest = hashlib.sha256(page.body).hexdigest()
        compressed = igzip.compress(page.body, 1, mtime=0)
        stem = self._create(f"{folder}/{safe_name(page.parcel_id)}", digest, page, compressed)
        try:
            self._write_new(f"{stem}.json", page.record_json, os.O_TRUNC)
        except OSError:
            self._unlink([f"{stem}.html.gz"])
            raise
        disk_bytes = on_disk(compressed) + on_disk(page.record_json)
        page_file = StoredPageFile(f"{stem}.html.gz", f"{stem}.json", digest, disk_bytes)
        return page_file, JournalRecord(page_file.html_path, compressed)

    def _create(self, plain: str, digest: str, page: NewPage, compressed: bytes) -> str:
        for stem in () if page.own_name else (plain, f"{plain}~{digest[:12]}"):
            with contextlib.suppress(FileExistsError):
                self._write_new(f"{stem}.html.gz", compressed, os.O_EXCL)
                return stem
        stem = f"{plain}~{page.result_id}"
        self._write_new(f"{stem}.html.gz", compressed, os.O_EXCL)
        return stem

    def _write_new(self, name: str, content: bytes, flags: int) -> None:
        path = f"{self.root}/{name}"  # a Path takes longer than the file itself
        handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | flags, 0o600)
        try:
            try:
                view = memoryview(content)
                while view:
                    view = view[os.write(handle, view) :]
            finally:
                os.close(handle)
        except OSError:
            Path(path).unlink(missing_ok=True)
            raise

    def _discard_dropped(self, _page: NewPage, answer: Any) -> None:
        if isinstance(answer, StoredPageFile):
            self._removals.submit(self._unlink, [answer.json_path, answer.html_path])

    def _unlink(self, names: list[str]) -> None:
        # The record goes first: as soon as the page is gone, another result may take the name.
        for name in sorted(names, key=lambda name: name.endswith(".html.gz")):
            with contextlib.suppress(OSError):
                self.path(name).unlink(missing_ok=True)


def missing(root: Path) -> str:
    """Returns what is wrong if the raw folder is missing, else ''."""
    with contextlib.suppress(OSError):  # an unreadable folder says nothing about the file
        if durable_files.identity(f"{root}/{HOLDER_FILE}") is None:
            return f"the raw folder {root} was deleted or moved, or its volume is not mounted"
    return ""


def on_disk(content: bytes) -> int:
    return -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES


_READ_BYTES = 1024 * 1024


def page_problem(path: Path, entry: OutboxEntry) -> str:
    """Returns why the file of an entry's page cannot be sent, '' if it matches the hash."""
    try:
        with path.open("rb") as file:
            matches = _digest(file) == entry.raw_sha256
    except (FileNotFoundError, NotADirectoryError):
        return f"its page {entry.html_path} is missing on disk"
    except (PermissionError, IsADirectoryError) as error:
        return f"its page {entry.html_path} cannot be read: {error.strerror}"
    return "" if matches else f"its page {entry.html_path} is damaged: its content is not what was fetched"


def restore_page(live: Path, path: Path, entry: OutboxEntry) -> bool:
    """Restores a page from the journals of all processes, which have it for a while. Returns whether one did."""
    for segment in live.glob("*.raw"):
        with contextlib.suppress(FileNotFoundError):  # its process has just deleted it
            for record in read_segment(segment):
                if record.name == entry.html_path and file_matches(record.body, entry.raw_sha256 or ""):
                    durable_files.replace(path, record.body)
                    return True
    return False


def _digest(compressed: IO[bytes]) -> str:
    """Returns the hash of the decompressed page, '' if it cannot be decompressed."""
    if not compressed.read(1):
        return ""
    compressed.seek(0)
    digest = hashlib.sha256()
    try:
        with gzip.open(compressed) as page:
            while block := page.read(_READ_BYTES):
                digest.update(block)
    except (zlib.error, EOFError, gzip.BadGzipFile):
        return ""
    return digest.hexdigest()


def file_matches(body: bytes, sha256: str) -> bool:
    return _digest(BytesIO(body)) == sha256


def page_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


_STORE_ID_STATE = "store_id"


class _Holder(msgspec.Struct, frozen=True):
    """The store that a raw folder belongs to. Name and id, because stores are renamed, and copied with their id."""

    name: str
    id: str


class _StoreId(msgspec.Struct, frozen=True):
    id: str


def raw_folder(store: Path) -> Path:
    """Returns the store's raw folder: `data/` beside it, or `{name}-data/` if `data/` belongs to another store."""
    store = store.resolve()
    holders = {folder: holder for folder in _candidate_folders(store) if (holder := _holder(folder)) is not None}
    named = [folder for folder, holder in holders.items() if holder.name == store.name]
    if len(named) == 1:
        return named[0]
    # Without holders the database is not opened, because reading it would leave SQLite's files next to it.
    return _find_raw_folder(store, _read_store_id(store) if holders else None)


def _candidate_folders(store: Path) -> list[Path]:
    """Returns the folders that may contain its pages, the likeliest first."""
    return [store.with_name(f"{store.name}-data"), store.parent / "data", *sorted(store.parent.glob("*-data"))]


def _find_raw_folder(store: Path, store_id: str | None) -> Path:
    shared, own = store.parent / "data", store.with_name(f"{store.name}-data")
    for folder in _candidate_folders(store):
        holder = _holder(folder)
        if holder is None or (store_id is not None and holder.id != store_id):
            continue
        if holder.name == store.name or (store_id and (folder == own or not _may_exist(folder, holder))):
            return folder
    if _holder(shared) is None and not own.exists():
        return shared
    return own if _holder(own) is None or store_id is None else store.with_name(f"{store.name}-{store_id[:8]}-data")


def _may_exist(folder: Path, holder: _Holder) -> bool:
    """Whether the store that a folder belongs to may still exist. An unreadable file may be that store."""
    named = folder.with_name(holder.name)
    return named.exists() and _read_store_id(named) in (None, holder.id)


def _holder(folder: Path) -> _Holder | None:
    """Returns None if the folder belongs to no store, or nobody can tell: its label may be empty after a power cut."""
    try:
        return msgspec.json.decode((folder / HOLDER_FILE).read_bytes(), type=_Holder)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None


def _read_store_id(store: Path) -> str | None:
    """Returns None if the file is missing, cannot be read, or was never opened for writing."""
    try:
        with contextlib.closing(open_read_only(store)) as db:
            stored = worker_state.get(db, _STORE_ID_STATE, _StoreId)
    except sqlite3.Error:
        return None
    return None if stored is None else stored.id


async def store_id(database: LocalDatabase, clock: Clock) -> str:
    """Returns the id in the store, which its copies and backups share."""
    if stored := await database.read(worker_state.get, _STORE_ID_STATE, _StoreId):
        return stored.id
    known = None
    if await database.read(outbox.has_raw_files):  # not a new store: its id was lost to damage
        known = _holder(_find_raw_folder(database.path, None))
    new = _StoreId(known.id if known and known.name == database.path.name else secrets.token_hex(16))
    return (await database.write(worker_state.put_if_absent, _STORE_ID_STATE, new, iso(clock.now()))).id


async def take_raw_folder(database: LocalDatabase, store_id: str) -> Path:
    """Creates the store's raw folder and labels it with the store's name and id, so that no other store uses it.

    A folder that should contain pages but is missing or empty is left alone: its volume may not be mounted yet.
    """
    store = database.path
    folder, me = _find_raw_folder(store, store_id), _Holder(store.name, store_id)
    holder = _holder(folder)
    if holder is not None and holder != me:  # the store was renamed or copied
        durable_files.replace(folder / HOLDER_FILE, msgspec.json.encode(me))
    elif holder is None and not (is_empty_folder(folder) and await database.read(outbox.has_unsynced_raw_files)):
        durable_files.make_folder(folder)
        _write_holder(folder, me)
    if _find_raw_folder(store, store_id) == folder:
        return folder
    return await take_raw_folder(database, store_id)  # another store took it first


def is_empty_folder(folder: Path) -> bool:
    """Whether the folder is empty or missing."""
    return not folder.is_dir() or next(folder.iterdir(), None) is None


def _write_holder(folder: Path, holder: _Holder) -> None:
    """If two stores compete, the first one wins. After a power cut the file is complete or missing."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        if _holder(folder) is None:
            durable_files.replace(folder / HOLDER_FILE, msgspec.json.encode(holder))
    finally:
        os.close(handle)
    durable_files.sync_path(folder)
    durable_files.sync_path(folder.parent)
