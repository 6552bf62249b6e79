"""The page cache: fresh for its time, within its bytes, the least recently used first to go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.storage import LocalPersistenceManager, StoreOptions
from tests.storage.factories import NOW, a_task, look

HOUR = timedelta(hours=1)


@pytest.fixture
async def small(store: Path, clock: ManualClock) -> AsyncIterator[LocalPersistenceManager]:
    """Room for three pages of a thousand bytes that do not compress."""
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(cache_max_bytes=3_500)) as lpm:
        yield lpm


def noise(size: int = 1_000) -> bytes:
    return os.urandom(size)


async def keys(lpm: LocalPersistenceManager, store: Path) -> set[str]:
    """What is cached, without touching it."""
    await settle(lpm)
    return {row[0] for row in look(store, "SELECT cache_key FROM cache")}


async def settle(lpm: LocalPersistenceManager) -> None:
    """A write of our own comes after the touches nobody waits for."""
    assert await lpm.cache.delete("nothing of that name") == 0


async def test_a_page_comes_back_as_it_was(lpm: LocalPersistenceManager) -> None:
    body = b"<html>\x00\xff" * 1_000
    assert await lpm.cache.put("https://x/1", body, etag='"abc"', last_modified="Wed, 21 Oct 2015 07:28:00 GMT") is True
    page = await lpm.cache.get("https://x/1")
    assert page is not None
    assert (page.data, page.data_type, page.is_fresh) == (body, "html", True)
    assert (page.etag, page.last_modified) == ('"abc"', "Wed, 21 Oct 2015 07:28:00 GMT")
    assert (page.created_at, page.expires_at) == (NOW, NOW + timedelta(hours=24))
    assert await lpm.cache.get("https://x/2") is None


async def test_pages_are_kept_compressed(lpm: LocalPersistenceManager) -> None:
    await lpm.cache.put("k", b"the same again " * 10_000)
    await settle(lpm)
    assert 0 < (await lpm.maintenance.health()).cache_bytes < 10_000


class Counting(ThreadPoolExecutor):
    """Threads for what would hold up the event loop, and how often they were used."""

    used = 0

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        self.used += 1
        return super().submit(*args, **kwargs)


@pytest.mark.parametrize(("size", "times"), [(1_000, 0), (1_000_000, 2)])
async def test_large_pages_are_packed_and_unpacked_on_another_thread(
    lpm: LocalPersistenceManager, size: int, times: int
) -> None:
    threads = Counting(1)
    asyncio.get_running_loop().set_default_executor(threads)
    body = noise(size)
    assert await lpm.cache.put("k", body)
    page = await lpm.cache.get("k")
    assert page is not None
    assert page.data == body
    assert threads.used == times


async def test_a_page_is_fresh_for_its_time_and_not_longer(lpm: LocalPersistenceManager, clock: ManualClock) -> None:
    await lpm.cache.put("short", b"1", ttl=HOUR)
    await lpm.cache.put("usual", b"2")
    clock.advance(3_599.999)
    assert await lpm.cache.get("short") is not None
    clock.advance(0.001)
    assert await lpm.cache.get("short") is None
    assert await lpm.cache.get("usual") is not None
    clock.advance(23 * 3600)
    assert await lpm.cache.get("usual") is None


async def test_a_page_past_its_time_is_given_on_demand_with_its_etag(
    lpm: LocalPersistenceManager, clock: ManualClock
) -> None:
    await lpm.cache.put("k", b"1", ttl=HOUR, etag='"v1"')
    clock.advance(7200)
    stale = await lpm.cache.get("k", stale=True)
    assert stale is not None
    assert (stale.data, stale.etag, stale.is_fresh) == (b"1", '"v1"', False)


async def test_a_page_is_asked_for_by_its_type(lpm: LocalPersistenceManager) -> None:
    await lpm.cache.put("k", b"{}", data_type="json")
    assert await lpm.cache.get("k", "html") is None
    page = await lpm.cache.get("k", "json")
    assert page is not None
    assert page.data_type == "json"
    assert await lpm.cache.get("k") is not None


async def test_a_new_page_replaces_the_old_one_with_its_size(lpm: LocalPersistenceManager, store: Path) -> None:
    await lpm.cache.put("k", noise(50_000), etag="old", data_type="json")
    await lpm.cache.put("other", noise(500))
    await lpm.cache.put("k", b"new")
    page = await lpm.cache.get("k")
    assert page is not None
    assert (page.data, page.etag, page.data_type) == (b"new", None, "html")
    await lpm.add_task(a_task())  # pages are stored together with the next write
    size = (await lpm.maintenance.health()).cache_bytes
    assert size < 1_000
    assert look(store, "SELECT count(*), sum(size_bytes) FROM cache") == [(2, size)]


async def test_the_least_recently_used_go_first(
    small: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    for key in "abc":
        await small.cache.put(key, noise())
        clock.advance(1)
    assert await small.cache.get("a") is not None
    clock.advance(1)
    await small.cache.put("d", noise())
    assert await keys(small, store) == {"a", "c", "d"}
    clock.advance(1)
    await small.cache.put("e", noise(2_000))
    assert await keys(small, store) == {"d", "e"}


async def test_the_cache_never_grows_beyond_its_cap(
    small: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    """I8, and the running total is the sum of the sizes after everything that can happen to a page."""
    for n in range(60):
        await small.cache.put(f"k{n % 7}", noise(100 * (n % 11)))
        if n % 5 == 0:
            await small.cache.delete(f"k{(n + 3) % 7}")
        clock.advance(1)
        await settle(small)
        total = (await small.maintenance.health()).cache_bytes
        assert total <= 3_500
        assert look(store, "SELECT sum(size_bytes) FROM cache") == [(total,)]


async def test_a_page_just_put_is_not_the_one_that_goes_when_the_clock_was_set_back(
    small: LocalPersistenceManager, store: Path, clock: ManualClock
) -> None:
    for key in "abc":
        await small.cache.put(key, noise())
    clock.advance(-3600)
    assert await small.cache.put("d", noise()) is True
    assert "d" in await keys(small, store)


async def test_pages_put_within_a_millisecond_go_in_the_order_they_came(
    small: LocalPersistenceManager, store: Path
) -> None:
    for n, key in enumerate("abcd"):
        await small.cache.put(key, noise(1_000 - n))
    assert await keys(small, store) == {"b", "c", "d"}


async def test_a_page_too_large_to_keep_is_not_kept_and_pushes_nothing_out(
    small: LocalPersistenceManager, store: Path
) -> None:
    await small.cache.put("a", noise())
    assert await small.cache.put("b", noise(4_000)) is False
    assert await keys(small, store) == {"a"}


async def test_a_page_larger_than_any_page_may_be_is_not_kept(store: Path, clock: ManualClock) -> None:
    async with LocalPersistenceManager.open(store, clock=clock, options=StoreOptions(max_page_bytes=1_000)) as lpm:
        assert await lpm.cache.put("k", b"x" * 1_001) is False
        assert await lpm.cache.put("k", b"x" * 1_000) is True


async def test_hits_misses_and_accesses_are_counted(
    lpm: LocalPersistenceManager, clock: ManualClock, store: Path
) -> None:
    await lpm.cache.put("k", b"1", ttl=HOUR)
    for _ in range(3):
        await lpm.cache.get("k")
    await lpm.cache.get("unknown")
    clock.advance(3600)
    await lpm.cache.get("k")
    await settle(lpm)
    assert lpm.cache.hit_rate == 0.6
    assert look(store, "SELECT access_count FROM cache") == [(3,)]


async def test_a_hit_is_written_down(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    await lpm.cache.put("k", b"1")
    clock.advance(60)
    await lpm.cache.get("k")
    await settle(lpm)
    assert look(store, "SELECT access_count, last_accessed FROM cache") == [(1, "2026-01-01T00:01:00.000Z")]


async def test_pages_are_forgotten_one_by_one(lpm: LocalPersistenceManager) -> None:
    for key in "abc":
        await lpm.cache.put(key, b"1")
    assert await lpm.cache.delete("a") == 1
    assert await lpm.cache.delete("a") == 0
    assert await lpm.cache.get("a") is None
    assert await lpm.cache.get("b") is not None


@pytest.mark.parametrize("key", ["", "x" * 9_000, "nul \0", "lone \ud800"], ids=["empty", "long", "NUL", "surrogate"])
async def test_a_bad_key_is_refused(lpm: LocalPersistenceManager, key: str) -> None:
    with pytest.raises(InvalidInput, match="cache key"):
        await lpm.cache.put(key, b"1")


@pytest.mark.parametrize("field", ["etag", "last_modified", "data_type"])
async def test_a_header_that_is_not_text_does_not_break_the_store(lpm: LocalPersistenceManager, field: str) -> None:
    """A site sends what it likes: the page is kept, or refused with our own error."""
    try:
        await lpm.cache.put("k", b"1", **{field: "lone \ud800"})  # type: ignore[arg-type] # one of three text fields
    except InvalidInput:
        return
    assert await lpm.cache.get("k") is not None
