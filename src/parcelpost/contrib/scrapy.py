"""A Scrapy pipeline that saves items into the store, and so into the outbox. See docs/new-platform.md."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from itemadapter import ItemAdapter
from msgspec import Struct
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from parcelpost.clock import SystemClock
from parcelpost.errors import InvalidInput, InvalidSettings, ParcelpostError, StoreError, StoreFull
from parcelpost.model import Json, Page, Result, Source, Target, Task
from parcelpost.places import normalized
from parcelpost.scrapers.plugin_adapter import to_json
from parcelpost.settings.schema import StoreLimits
from parcelpost.settings.sources import load
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.health import Level

T = TypeVar("T")

_WATCH_SECONDS = 0.5
_CLOCK = SystemClock()


class StoreThread:
    """Every method may be called from any thread.

    The thread ends when `close` is called, or by itself when the program's main thread has ended: an open store would
    keep the program alive.
    """

    def __init__(self, path: Path, options: StoreOptions, owner: str) -> None:
        self._path = path
        self._options = options
        self._owner = owner
        self._thread = threading.Thread(target=self._main, name="store")
        self._opened: Future[None] = Future()
        self._closed: Future[None] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._lpm: LocalPersistenceManager

    def open(self) -> Future[None]:
        """Done when the store is open; holds the error if it cannot be opened."""
        self._thread.start()
        return self._opened

    def submit(self, work: Callable[[LocalPersistenceManager], Coroutine[Any, Any, T]]) -> Future[T]:
        """Runs it on the store's loop. To be called only while the store is open."""
        return asyncio.run_coroutine_threadsafe(work(self._lpm), self._loop)

    def close(self) -> Future[None]:
        """Done when everything is closed; at once if it was never opened."""
        if self._thread.ident is not None:
            self._opened.add_done_callback(self._ask_to_stop)
        elif not self._closed.done():
            self._closed.set_result(None)
        return self._closed

    def _ask_to_stop(self, opened: Future[None]) -> None:
        if opened.exception() is None:
            with contextlib.suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._stop.set)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except ParcelpostError as error:
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise
        else:
            self._closed.set_result(None)

    async def _serve(self) -> None:
        async with LocalPersistenceManager.open(self._path, options=self._options, worker=self._owner) as lpm:
            self._lpm, self._loop = lpm, asyncio.get_running_loop()
            self._opened.set_result(None)
            while threading.main_thread().is_alive():
                if await _CLOCK.wait(self._stop, _WATCH_SECONDS):
                    return

    def _fail(self, error: BaseException) -> None:
        self._closed.set_exception(error)
        if not self._opened.done():
            self._opened.set_exception(error)


OWN_FIELDS = ("parcel_id", "state", "county", "url", "html")


class ItemReader(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    fields: Mapping[str, str]
    """Our field (`parcel_id`, `state`, `county`, `url`, `html`) -> the item's field, if it has another name."""

    def read(self, item: Any, response: Response | None, now: datetime) -> tuple[Task, Result]:
        """Raises InvalidInput. The same content of the same parcel is the same task."""
        adapter = ItemAdapter(item)
        page = _raw_page(adapter.get(self._name("html")), response)
        target = Target(
            parcel_id=self._text(adapter, "parcel_id"),
            state=self._text(adapter, "state") or self.state,
            county=self._text(adapter, "county") or self.county,
            url=self._text(adapter, "url") or (page.url if page else ""),
        )
        if not target.parcel_id:
            name = self._name("parcel_id")
            raise InvalidInput(f"the item has no {name}", hint="set the name of its field in PARCELPOST_FIELDS")
        target = normalized(target)
        data = self._record(adapter, target)
        return self._task(target, data), Result(data=data, scraped_at=now, page=page)

    def _record(self, adapter: ItemAdapter, target: Target) -> dict[str, Json]:
        own = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county}
        try:
            said = {name: to_json(value) for name, value in adapter.asdict().items() if name != self._name("html")}
        except (TypeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidInput(f"the item cannot be stored as JSON: {error}") from None
        return {**own, "platform": self.platform, **said}

    def _task(self, target: Target, data: Mapping[str, Json]) -> Task:
        place = [self.platform, target.state, target.county, target.parcel_id]
        content = msgspec.json.encode([place, data], order="sorted")
        task_id = f"scrapy-{sha256(content).hexdigest()[:40]}"
        return Task(task_id=task_id, platform=self.platform, target=target, source=Source.CLI, type="scrapy")

    def _name(self, own: str) -> str:
        return self.fields.get(own, own)

    def _text(self, adapter: ItemAdapter, own: str) -> str:
        value = adapter.get(self._name(own))
        return "" if value is None else str(value).strip()


def _raw_page(carried: object, response: Response | None) -> Page | None:
    """What the item carries goes before the response it was read from."""
    if isinstance(carried, str) and carried:
        return Page(body=carried.encode(errors="replace"), content_type="text/html; charset=utf-8")
    if isinstance(carried, bytes) and carried:
        return Page(body=carried)
    source = carried if isinstance(carried, Response) else response
    if source is None:
        return None
    kind = source.headers.get("Content-Type") or b"text/html"
    return Page(body=source.body, content_type=kind.decode("latin-1"), url=source.url)


_RETRY_SECONDS = 1.0
_CHECK_SECONDS = 0.5
_log = logging.getLogger(__name__)
_DRIVER_LOG = logging.getLogger("aiosqlite")
"""At DEBUG, Scrapy's default level, it logs two lines per statement."""


class ParcelpostPipeline:
    """Answers an item once the store has it: from there on it survives kill -9 and power loss (I2).

    So Scrapy's own limits on what is under way hold the crawl back when the disk is slower than the site. While the
    store cannot be written, items wait; when that takes too long, the crawl is closed with the reason
    `parcelpost_store_failed`, and each item that was not stored is an error in the log and in the stats.
    """

    def __init__(self, crawler: Crawler) -> None:
        """Raises InvalidSettings."""
        settings = crawler.settings
        storage = load(config=None, environment=os.environ, flags={}).settings.storage
        limits = {name: getattr(storage, name) for name in StoreLimits.__struct_fields__}
        self._path = Path(settings.get("PARCELPOST_STORE") or storage.path)
        self._store = StoreThread(self._path, StoreOptions(**limits), "scrapy")
        self._patience = settings.getfloat("PARCELPOST_PATIENCE_SECONDS", 60.0)
        self._crawler = crawler
        self._items = _item_reader(settings, getattr(crawler.spider, "name", ""))
        self._level = Level.FINE
        self._looked_at = 0.0
        self._is_failing = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ParcelpostPipeline:
        return cls(crawler)

    async def open_spider(self, spider: object = None) -> None:
        """Raises a StoreError: then the crawl does not begin."""
        if _DRIVER_LOG.level == logging.NOTSET:  # otherwise somebody wants to see them
            _DRIVER_LOG.setLevel(logging.INFO)
        await _wait(self._store.open())
        await _wait(self._store.submit(self._look))
        _log.info("Storing items in %s as platform %s", self._path, self._items.platform)

    async def close_spider(self, spider: object = None) -> None:
        await _wait(self._store.close())

    async def process_item(self, item: Any, spider: object = None) -> Any:
        """Raises InvalidInput for an item that cannot be stored, and StoreError when the store cannot take it."""
        try:
            task, result = self._items.read(item, self._response(item), _CLOCK.now())
            is_new = await _wait(self._store.submit(lambda lpm: self._keep(lpm, task, result)))
        except InvalidInput:
            self._count("items_refused")
            raise
        except StoreError:
            self._count("items_not_stored")
            self._give_up()
            raise
        self._count("items_stored" if is_new else "items_known")
        return item

    async def _keep(self, lpm: LocalPersistenceManager, task: Task, result: Result) -> bool:
        """Whether it is new. On the store's thread."""
        give_up_at = _CLOCK.monotonic() + self._patience
        while True:
            try:
                await self._look_for_room(lpm)
                return await lpm.add_result(task, result) is not None
            except StoreError as error:
                if not error.retry_helps or self._is_failing or _CLOCK.monotonic() >= give_up_at:
                    raise
                _log.warning("The store cannot accept items at the moment: %s (%s)", error, error.hint)
            await _CLOCK.sleep(_RETRY_SECONDS)

    async def _look_for_room(self, lpm: LocalPersistenceManager) -> None:
        """Raises StoreFull where a worker would stop scraping, too (I8)."""
        if _CLOCK.monotonic() >= self._looked_at + _CHECK_SECONDS:
            await self._look(lpm)
        if self._level is Level.EXECUTOR_STOPS:
            raise StoreFull(f"{self._path} has reached its size limit, or the disk is nearly full")

    async def _look(self, lpm: LocalPersistenceManager) -> None:
        self._looked_at = _CLOCK.monotonic()
        self._level = (await lpm.maintenance.usage()).level

    def _response(self, item: Any) -> Response | None:
        keeper = self._crawler.get_spider_middleware(KeepPages)
        return None if keeper is None else keeper.response_of(item)

    def _give_up(self) -> None:
        if self._is_failing or self._crawler.engine is None:
            return
        self._is_failing = True
        _log.error("The store %s has failed: stopping the crawl", self._path)
        # Not awaited: closing waits for this very item.
        deferred_from_coro(self._crawler.engine.close_spider_async(reason="parcelpost_store_failed"))

    def _count(self, counter: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(f"parcelpost/{counter}")


class KeepPages(BaseSpiderMiddleware):
    """Lets the pipeline keep the response that each item was read from, as its raw page."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._responses: dict[int, tuple[object, weakref.ref[Response]]] = {}
        """Item identity -> item and response; Scrapy holds the response until the item is processed."""
        for signal in (signals.item_dropped, signals.item_error):
            crawler.signals.connect(self._forget, signal)

    def get_processed_item(self, item: Any, response: Response | None) -> Any:
        if response is not None:
            self._responses[id(item)] = (item, weakref.ref(response))
        return item

    def response_of(self, item: object) -> Response | None:
        """None: it was read from none, or another pipeline has put this item in the place of the spider's."""
        _, response = self._responses.pop(id(item), (None, None))
        return None if response is None else response()

    def _forget(self, item: object) -> None:
        self._responses.pop(id(item), None)


def _item_reader(settings: BaseSettings, spider_name: str) -> ItemReader:
    fields = settings.getdict("PARCELPOST_FIELDS")
    if unknown := sorted(set(fields) - set(OWN_FIELDS)):
        raise InvalidSettings(
            f"PARCELPOST_FIELDS has unknown keys: {', '.join(map(str, unknown))}",
            hint=f"the known keys are {', '.join(OWN_FIELDS)}",
        )
    return ItemReader(
        platform=settings.get("PARCELPOST_PLATFORM") or spider_name,
        state=settings.get("PARCELPOST_STATE") or "",
        county=settings.get("PARCELPOST_COUNTY") or "",
        fields=fields,
    )


async def _wait(future: Future[T]) -> T:
    """Waits in the way of the loop that Scrapy runs on: asyncio's, or Twisted's own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return await _deferred(future)
    return await asyncio.wrap_future(future)


def _deferred(future: Future[T]) -> Deferred[T]:
    from twisted.internet import reactor  # noqa: PLC0415 - importing it installs one

    deferred: Deferred[T] = Deferred()

    def fire() -> None:
        error = future.exception()
        if error is None:
            deferred.callback(future.result())
        else:
            deferred.errback(error)

    future.add_done_callback(lambda _: reactor.callFromThread(fire))
    return deferred
