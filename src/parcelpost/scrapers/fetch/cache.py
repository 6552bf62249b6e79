"""The page cache as fetching uses it. It is optional: a store that cannot serve it costs a request, not a task."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

import httpx2
from msgspec import Struct

from parcelpost.errors import InvalidInput, StoreError
from parcelpost.model import Page

_MAX_KEY_CHARS = 2_000


class CacheEntry(Protocol):
    @property
    def data(self) -> bytes: ...
    @property
    def data_type(self) -> str: ...
    @property
    def etag(self) -> str | None: ...
    @property
    def last_modified(self) -> str | None: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def is_fresh(self) -> bool: ...


class CacheStore(Protocol):
    """The store's `cache`."""

    async def get(self, key: str, data_type: str | None = None, *, stale: bool = False) -> CacheEntry | None: ...

    async def put(
        self,
        key: str,
        data: bytes,
        *,
        data_type: str = "html",
        ttl: timedelta | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
    ) -> bool: ...

    async def delete(self, key: str) -> int: ...


class CachedPage(Struct, frozen=True, kw_only=True):
    """A page with its metadata in the cache."""

    key: str
    page: Page
    etag: str | None
    last_modified: str | None
    created_at: datetime
    is_fresh: bool
    ttl: timedelta | None = None
    """None: the default of the settings."""

    @classmethod
    def new(
        cls, key: str, page: Page, headers: httpx2.Headers, now: datetime, seconds: float | None = None
    ) -> CachedPage:
        return cls(
            key=key,
            page=page,
            etag=headers.get("etag"),
            last_modified=headers.get("last-modified"),
            created_at=now,
            is_fresh=True,
            ttl=timedelta(seconds=seconds) if seconds is not None else None,
        )

    @property
    def conditions(self) -> Mapping[str, str]:
        """Headers of a conditional request."""
        headers = {"If-None-Match": self.etag, "If-Modified-Since": self.last_modified}
        return {name: value for name, value in headers.items() if value}


class PageCache:
    def __init__(self, cache: CacheStore | None) -> None:
        self._cache = cache

    async def find(self, key: str) -> CachedPage | None:
        """Returns the page even if it is stale."""
        if self._cache is None:
            return None
        with suppress(StoreError):
            entry = await self._cache.get(_cache_key(key), stale=True)
            if entry is not None:
                return CachedPage(
                    key=key,
                    page=Page(body=entry.data, content_type=entry.data_type, url=key),
                    etag=entry.etag,
                    last_modified=entry.last_modified,
                    created_at=entry.created_at,
                    is_fresh=entry.is_fresh,
                )
        return None

    async def put(self, pages: Iterable[CachedPage]) -> None:
        if self._cache is None:
            return
        for page in pages:
            with suppress(StoreError, InvalidInput):
                await self._cache.put(
                    _cache_key(page.key),
                    page.page.body,
                    data_type=page.page.content_type,
                    ttl=page.ttl,
                    etag=page.etag,
                    last_modified=page.last_modified,
                )

    async def delete(self, keys: Iterable[str]) -> None:
        if self._cache is None:
            return
        for key in keys:
            with suppress(StoreError):
                await self._cache.delete(_cache_key(key))


def _cache_key(key: str) -> str:
    return key if len(key) <= _MAX_KEY_CHARS else hashlib.sha256(key.encode()).hexdigest()
