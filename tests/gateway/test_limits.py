"""How often, how large, how slow: what a request may be."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zstandard

from parcelpost.clock import ManualClock
from parcelpost.gateway.api.worker import RateLimiter
from parcelpost.gateway.errors import ApiError
from tests.gateway.stage import PAGE, a_client, a_form, some_context

WORK = "/internal/work?platforms=echo"


async def test_a_worker_that_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with some_context(tmp_path, clock=clock, requests_per_second=0.5) as context, a_client(context) as client:
        assert [(await client.get(WORK)).status_code for _ in range(2)] == [200, 429]
        refused = await client.get(WORK)
        assert refused.headers["retry-after"] == "2"
        assert (refused.headers["x-ratelimit-limit"], refused.headers["x-ratelimit-remaining"]) == ("0.5", "0")
        assert (await client.get(WORK, headers={"X-Worker-ID": "w-2"})).status_code == 429, (
            "another id is no way around"
        )
        clock.advance(2)
        assert [(await client.get(WORK)).status_code for _ in range(2)] == [200, 429]


def test_a_worker_that_is_a_little_too_fast_is_slowed_down() -> None:
    clock = ManualClock()
    limits = RateLimiter(2.0, clock)
    assert [limits.take("w-1") for _ in range(6)] == [0.0] * 4 + [0.5, 1.0]
    with pytest.raises(ApiError):
        limits.take("w-1")
    clock.advance(0.5)
    assert limits.take("w-1") == 1.0


def test_many_workers_are_asked_to_rest_longer() -> None:
    clock = ManualClock()
    limits = RateLimiter(1.0, clock)
    for number in range(2_000):
        limits.is_new(f"w-{number}")
    assert (limits.retry_after(1), limits.retry_after(0)) == (5, 100)
    clock.advance(301)
    assert limits.retry_after(0) == 30


def test_the_table_of_workers_is_bounded() -> None:
    limits = RateLimiter(0.5, ManualClock())
    assert [limits.is_new("first") for _ in range(2)] == [True, False]
    for number in range(20_000):
        limits.is_new(f"w-{number}")
    assert limits.is_new("first")


async def test_a_body_that_says_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield b"["
        raise AssertionError("nobody should ask for more")

    async with some_context(tmp_path) as context, a_client(context) as client:
        headers = {"Content-Length": "1000000000"}
        answer = await client.post("/internal/results", content=body(), headers=headers)
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")


async def test_a_body_that_becomes_too_large_is_refused(tmp_path: Path) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b" " * 1024

    async with some_context(tmp_path, max_body_bytes=10_240) as context, a_client(context) as client:
        assert (await client.post("/internal/results", content=body())).status_code == 413


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_bomb_is_refused(tmp_path: Path, encoding: str) -> None:
    zeros = b"0" * 50_000_000
    bomb = gzip.compress(zeros) if encoding == "gzip" else zstandard.ZstdCompressor().compress(zeros)
    async with some_context(tmp_path, max_body_bytes=1_000_000) as context, a_client(context) as client:
        answer = await client.post("/internal/results", content=bomb, headers={"Content-Encoding": encoding})
        assert answer.status_code == 413


async def test_a_form_whose_headers_do_not_end_is_refused(tmp_path: Path) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    async with some_context(tmp_path) as context, a_client(context) as client:
        for endless in (b"a: " + b"y" * 1_000_000, b"a: b\r\n" * 100_000):
            answer = await client.post("/internal/raw-files", content=b"--x\r\n" + endless, headers=headers)
            assert answer.status_code == 400


async def test_gzip_of_a_hundred_thousand_members_is_refused(tmp_path: Path) -> None:
    """Each copies what follows it: a few megabytes of them took fifteen seconds."""
    members = gzip.compress(b"") * 100_000
    async with some_context(tmp_path) as context, a_client(context) as client:
        body = await client.post("/internal/results", content=members, headers={"Content-Encoding": "gzip"})
        form = a_form()
        form["files"] = {"file": ("p", members, "application/gzip")}
        file = await client.post("/internal/raw-files", **form)
        few = gzip.compress(b"[") + gzip.compress(b"]")
        fine = await client.post("/internal/results", content=few, headers={"Content-Encoding": "gzip"})
    assert (body.status_code, file.status_code, fine.status_code) == (400, 422, 200)
    assert "100 members" in body.text
    assert "100 members" in file.text


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
async def test_a_body_that_does_not_unpack_is_refused(tmp_path: Path, encoding: str) -> None:
    packed = gzip.compress(b"[]" * 500) if encoding == "gzip" else zstandard.ZstdCompressor().compress(b"[]" * 500)
    async with some_context(tmp_path) as context, a_client(context) as client:
        for body in (b"nonsense", packed[:-3], b"\0" + packed):
            answer = await client.post("/internal/results", content=body, headers={"Content-Encoding": encoding})
            assert answer.status_code == 400


async def test_a_page_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    async with some_context(tmp_path, max_raw_bytes=100_000) as context, a_client(context) as client:
        assert (await client.post("/internal/raw-files", **a_form(b"0" * 100_001))).status_code == 413
        assert (await client.post("/internal/raw-files", **a_form(b"0" * 300_000, packed=False))).status_code == 413
        assert (await client.post("/internal/raw-files", **a_form(b"0" * 100_000))).status_code == 200


async def test_pages_of_several_members_are_one_page(tmp_path: Path) -> None:
    form = a_form()
    halves = [zlib.compress(half, wbits=31) for half in (PAGE[:100], PAGE[100:])]
    form["files"] = {"file": ("p", b"".join(halves), "application/gzip")}
    async with some_context(tmp_path) as context, a_client(context) as client:
        assert (await client.post("/internal/raw-files", **form)).status_code == 200
