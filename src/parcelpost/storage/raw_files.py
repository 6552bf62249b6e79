"""Raw files: a page and its record on disk, with safe names, found and checked again by their hash (I6)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote

from isal import igzip

from parcelpost.errors import StoreError, StoreGone
from parcelpost.model import OutboxEntry
from parcelpost.storage import durable_files
from parcelpost.storage.errors import os_error
from parcelpost.storage.raw_journal import PageRecord, RawJournal, read_segment
from parcelpost.storage.writer import Batcher

_MAX_BYTES = 120
_RESERVED = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE
)  # devices on Windows, where data may be read


def safe_name(value: str) -> str:
    """One path component: readable where it can be, percent-encoded where not, cut with a hash where too long."""
    name = quote(value, safe=" ,+=()").replace("~", "%7E").strip(" ")
    if name.startswith(".") or _RESERVED.fullmatch(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    if len(name) > _MAX_BYTES:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        name = f"{name[: _MAX_BYTES - 17]}~{digest}"
    return name or "%"


@lru_cache(1_024)  # thousands of pages come from the same county
def folder_of(platform: str, state: str, county: str) -> str:
    return f"{safe_name(platform)}/{safe_name(state)}/{safe_name(county)}"


def inside(root: Path, relative: str) -> Path:
    """The file of that name under root. Raises ValueError for a name that leads elsewhere."""
    path = Path(relative)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{relative!r} leads out of the data folder")
    return root / path


_MAX_GROUP = 64
_MAX_PART_BYTES = 8 * 1024 * 1024
_BLOCK_BYTES = 4096
_GIVE_BACK = None

HOLDER_FILE = ".store"
"""In a raw folder: the name and the id of the store that it belongs to."""
GONE_HINT = "put the folder back or mount it, and a worker that runs goes on; backups hold the database only"


class PageToKeep(NamedTuple):
    platform: str
    state: str
    county: str
    parcel_id: str
    result_id: str
    body: bytes
    record_json: bytes
    own_name: bool = False
    """Under a name that no other result can have."""


class KeptPage(NamedTuple):
    html_path: str
    json_path: str
    sha256: str
    """Of the page's bytes as fetched."""
    disk_bytes: int


class RawFiles:
    """Keeps pages. When `keep` has returned, the page survives kill -9 and power loss (I2, I6)."""

    def __init__(self, root: Path, live: Path, owner_id: str, store_missing: Callable[[], str] = str) -> None:
        """`store_missing` says what is wrong when the store was moved away: the folder here may be another's then."""
        self.root = root
        self._store_missing = store_missing
        self._journal = RawJournal(live, owner_id, root)
        self._folders: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="raw-files")
        self._removals = ThreadPoolExecutor(1, thread_name_prefix="raw-removals")
        self._batcher = Batcher(self._hop, self._serve_group, max_group=_MAX_GROUP, dropped=self._discard_dropped)

    async def keep(self, page: PageToKeep) -> KeptPage:
        return cast(KeptPage, await self._batcher.submit(page))

    async def discard(self, names: Iterable[str]) -> None:
        """Removes files that no result names (any more)."""
        await asyncio.get_running_loop().run_in_executor(self._removals, self._unlink, list(names))

    async def give_back(self) -> None:
        """The journal's room goes back to the disk, once all that it holds is durable without it."""
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

    async def _hop(self, serve: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pool, serve)

    def _serve_group(self, items: list[PageToKeep | None]) -> list[Any]:
        kept = iter(self._keep_group([page for page in items if page is not _GIVE_BACK]))
        return [self._give_back() if page is _GIVE_BACK else next(kept) for page in items]

    def _give_back(self) -> StoreError | None:
        try:
            self._journal.give_back()
        except OSError as error:
            return os_error(error, self.root)
        return None

    def _keep_group(self, pages: list[PageToKeep]) -> list[Any]:
        answers: list[Any] = []
        while pages:  # a part at a time: a journal segment is bounded
            size = takewhile(lambda total: total < _MAX_PART_BYTES, accumulate(len(page.body) for page in pages))
            end = min(len(pages), sum(1 for _ in size) + 1)
            answers += self._keep_part(pages[:end])
            pages = pages[end:]
        return answers

    def _keep_part(self, pages: list[PageToKeep]) -> list[Any]:
        if problem := self._store_missing():
            return [StoreGone(problem) for _ in pages]
        if problem := missing(self.root):
            return [StoreGone(problem, hint=GONE_HINT) for _ in pages]
        answers: list[Any] = []
        records: list[PageRecord] = []
        for page in pages:
            try:
                kept, record = self._write_or_make_folder(page)
            except OSError as error:
                answers.append(os_error(error, self.root))
            else:
                answers.append(kept)
                records.append(record)
        try:
            if records:
                self._journal.append(records)
        except OSError as error:
            for kept in answers:
                if isinstance(kept, KeptPage):
                    self._unlink([kept.json_path, kept.html_path])
            return [os_error(error, self.root) for _ in pages]
        if problem := missing(self.root):  # it may have gone meanwhile: nobody is told that the page is safe
            return [StoreGone(problem, hint=GONE_HINT) for _ in pages]
        return answers

    def _write_or_make_folder(self, page: PageToKeep) -> tuple[KeptPage, PageRecord]:
        try:
            return self._write_files(page)
        except FileNotFoundError:  # somebody removed the folder
            self._folders.clear()
            return self._write_files(page)

    def _write_files(self, page: PageToKeep) -> tuple[KeptPage, PageRecord]:
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
        kept = KeptPage(f"{stem}.html.gz", f"{stem}.json", digest, on_disk(compressed) + on_disk(page.record_json))
        return kept, PageRecord(kept.html_path, compressed)

    def _create(self, plain: str, digest: str, page: PageToKeep, compressed: bytes) -> str:
        for stem in () if page.own_name else (plain, f"{plain}~{digest[:12]}"):
            with contextlib.suppress(FileExistsError):
                self._write_new(f"{stem}.html.gz", compressed, os.O_EXCL)
                return stem
        stem = f"{plain}~{page.result_id}"
        self._write_new(f"{stem}.html.gz", compressed, os.O_EXCL)
        return stem

    def _write_new(self, name: str, content: bytes, flags: int) -> None:
        path = f"{self.root}/{name}"  # a Path takes longer to make than the file
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

    def _discard_dropped(self, _page: PageToKeep, answer: Any) -> None:
        if isinstance(answer, KeptPage):
            self._removals.submit(self._unlink, [answer.json_path, answer.html_path])

    def _unlink(self, names: list[str]) -> None:
        # A name is free for the next result as soon as its page is gone: the record beside it goes before.
        for name in sorted(names, key=lambda name: name.endswith(".html.gz")):
            with contextlib.suppress(OSError):
                self.path(name).unlink(missing_ok=True)


def missing(root: Path) -> str:
    """What is wrong if a store's raw folder is not there (any more), else ''."""
    with contextlib.suppress(OSError):  # a folder that cannot be looked into says nothing about the file
        if durable_files.identity(f"{root}/{HOLDER_FILE}") is None:
            return f"the folder of raw pages {root} was deleted or moved, or its volume is not mounted"
    return ""


def on_disk(content: bytes) -> int:
    return -(-len(content) // _BLOCK_BYTES) * _BLOCK_BYTES


_READ_BYTES = 1024 * 1024


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
                if record.name == entry.html_path and file_matches(record.body, entry.raw_sha256 or ""):
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
            while block := page.read(_READ_BYTES):
                digest.update(block)
    except (zlib.error, EOFError, gzip.BadGzipFile):
        return ""
    return digest.hexdigest()


def file_matches(body: bytes, sha256: str) -> bool:
    try:
        return hashlib.sha256(gzip.decompress(body)).hexdigest() == sha256
    except (OSError, EOFError, zlib.error):
        return False


def page_content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
