"""Items of a Scrapy project go into the store, and so into the outbox. docs/new-platform.md shows how."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.settings import BaseSettings
from scrapy.spidermiddlewares.base import BaseSpiderMiddleware
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from parcelpost.clock import SystemClock
from parcelpost.contrib.scrapy_items import OWN_FIELDS, Items
from parcelpost.contrib.store_thread import StoreThread
from parcelpost.errors import InvalidInput, InvalidSettings, StoreError, StoreFull
from parcelpost.model import Result, Task
from parcelpost.settings.sources import load
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from parcelpost.storage.health import Level

T = TypeVar("T")

_CLOCK = SystemClock()
_TRY_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 0.5
_log = logging.getLogger(__name__)
_OF_THE_DRIVER = logging.getLogger("aiosqlite")
"""At DEBUG, Scrapy's own default, it writes two lines for every statement."""


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
        named = {name: getattr(storage, name) for name in StoreOptions.__struct_fields__ if hasattr(storage, name)}
        self._path = Path(settings.get("PARCELPOST_STORE") or storage.path)
        self._store = StoreThread(self._path, StoreOptions(**named), "scrapy")
        self._patience = settings.getfloat("PARCELPOST_PATIENCE_SECONDS", 60.0)
        self._crawler = crawler
        self._items = _items(settings, getattr(crawler.spider, "name", ""))
        self._level = Level.FINE
        self._looked_at = 0.0
        self._is_failing = False

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> ParcelpostPipeline:
        return cls(crawler)

    async def open_spider(self, spider: object = None) -> None:
        """Raises a StoreError: then the crawl does not begin."""
        if _OF_THE_DRIVER.level == logging.NOTSET:  # otherwise somebody wants to see them
            _OF_THE_DRIVER.setLevel(logging.INFO)
        await _answer(self._store.open())
        await _answer(self._store.submit(self._look))
        _log.info("Items go into the store %s as platform %s", self._path, self._items.platform)

    async def close_spider(self, spider: object = None) -> None:
        await _answer(self._store.close())

    async def process_item(self, item: Any, spider: object = None) -> Any:
        """Raises InvalidInput for an item that cannot be stored, and StoreError when the store cannot take it."""
        try:
            task, result = self._items.read(item, self._response(item), _CLOCK.now())
            is_new = await _answer(self._store.submit(lambda lpm: self._keep(lpm, task, result)))
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
                _log.warning("The store does not take items for now: %s (%s)", error, error.hint)
            await _CLOCK.sleep(_TRY_AGAIN_SECONDS)

    async def _look_for_room(self, lpm: LocalPersistenceManager) -> None:
        """Raises StoreFull where a worker would stop scraping, too (I8)."""
        if _CLOCK.monotonic() >= self._looked_at + _LOOK_SECONDS:
            await self._look(lpm)
        if self._level is Level.EXECUTOR_STOPS:
            raise StoreFull(f"{self._path} has reached its cap, or the disk is nearly full")

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
        _log.error("The store %s has failed: the crawl ends here", self._path)
        # Not awaited: closing waits for this very item.
        deferred_from_coro(self._crawler.engine.close_spider_async(reason="parcelpost_store_failed"))

    def _count(self, what: str) -> None:
        if self._crawler.stats is not None:
            self._crawler.stats.inc_value(f"parcelpost/{what}")


class KeepPages(BaseSpiderMiddleware):
    """Lets the pipeline keep the response that each item was read from, as its raw page."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._responses: dict[int, tuple[object, weakref.ref[Response]]] = {}
        """By the item's identity; Scrapy holds the response until the item is through."""
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


def _items(settings: BaseSettings, spider_name: str) -> Items:
    fields = settings.getdict("PARCELPOST_FIELDS")
    if unknown := sorted(set(fields) - set(OWN_FIELDS)):
        raise InvalidSettings(
            f"PARCELPOST_FIELDS names {', '.join(map(str, unknown))}", hint=f"its keys are {', '.join(OWN_FIELDS)}"
        )
    return Items(
        platform=settings.get("PARCELPOST_PLATFORM") or spider_name,
        state=settings.get("PARCELPOST_STATE") or "",
        county=settings.get("PARCELPOST_COUNTY") or "",
        fields=fields,
    )


async def _answer(future: Future[T]) -> T:
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
