"""What the hostile gateway can be told to play: `gateway.play("results", traps.cut(), times=3)`.

Each function makes a Trap. None of them does the work that was asked for, unless `done_first` says so.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from tests.hostile import Entry, HostileGateway, Json, Play, Trap
from tests.hostile_http import Reply, Request, head

_TARGET = {"parcel_id": "1", "state": "CT", "county": "x"}
ABSURD_TASKS: list[Json] = [
    None,
    7,
    "t-text",
    [],
    {},
    {"task_id": "t-bare"},
    {"task_id": "", "platform": "echo", "target": _TARGET},
    {"task_id": 12, "platform": "echo", "target": _TARGET},
    {"task_id": "..", "platform": "echo", "target": _TARGET},
    {"task_id": "x" * 100_000, "platform": "echo", "target": _TARGET},
    {"task_id": "t-no-platform", "target": _TARGET},
    {"task_id": "t-no-target", "platform": "echo"},
    {"task_id": "t-null-target", "platform": "echo", "target": None},
    {"task_id": "t-list-target", "platform": "echo", "target": []},
    {"task_id": "t-no-parcel", "platform": "echo", "target": {"state": "CT", "county": "x"}},
    {"task_id": "t-nan", "platform": "echo", "target": {**_TARGET, "x": float("nan")}},
]
"""None of these is a task. The last one is not even JSON."""


def status(code: int, message: str = "as the test wants it", headers: Mapping[str, str] | None = None) -> Trap:
    """An answer of that status, with the contract's error body."""
    return answer({"error": {"code": "TRAP", "message": message}, "request_id": "r-1"}, code=code, headers=headers)


def answer(body: Json, *, code: int = 200, headers: Mapping[str, str] | None = None) -> Trap:
    """That body: bytes as they are, anything else as JSON."""
    return lambda _gateway, _request: Reply(code, body, headers or {})


def html(code: int = 200) -> Trap:
    """A page for people, as a proxy or a hotel network sends it."""
    page = b"<!doctype html><html><head><title>Welcome</title></head><body><h1>Please log in</h1></body></html>"
    return answer(page, code=code, headers={"Content-Type": "text/html"})


def redirect(to: str, code: int = 302) -> Trap:
    return answer(b"", code=code, headers={"Location": to})


def slow_down(
    *,
    seconds: int | None = None,
    date_in: timedelta | None = None,
    now: datetime | None = None,
    reset: int | None = None,
    body_seconds: float | None = None,
    code: int = 429,
) -> Trap:
    """429 with any of: Retry-After in seconds or as a date (with a Date of `now`), X-RateLimit-Reset, a body's wish."""
    headers = {}
    if seconds is not None:
        headers["Retry-After"] = str(seconds)
    if date_in is not None:
        now = now or datetime.now(UTC)
        headers["Date"] = format_datetime(now, usegmt=True)
        headers["Retry-After"] = format_datetime(now + date_in, usegmt=True)
    if reset is not None:
        headers |= {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(reset)}
    body: dict[str, Any] = {"error": {"code": "RATE_LIMITED", "message": "too many requests"}}
    return answer(body if body_seconds is None else {**body, "retry_after": body_seconds}, code=code, headers=headers)


def done_first(trap: Trap) -> Trap:
    """The work is done as always, and only its answer is lost."""

    def play(gateway: HostileGateway, request: Request) -> Reply | Play | None:
        gateway.answer(request)
        return trap(gateway, request)

    return play


def cut(code: int = 200) -> Trap:
    """A body shorter than its Content-Length."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(code, {"Content-Length": "1000"}) + b'{"tasks": [{"task_id": "t')
        await writer.drain()
        writer.close()

    return lambda _gateway, _request: play


def reset(code: int = 200) -> Trap:
    """The connection is reset in the middle of the answer."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(code, {"Content-Length": "1000"}) + b'{"inserted": 1')
        await writer.drain()
        at_once = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        writer.transport.abort()

    return lambda _gateway, _request: play


def endless(total_bytes: int = 1 << 30, *, code: int = 200, sent: list[int] | None = None) -> Trap:
    """A body of a gigabyte. `sent` gets one number: how much of it the client let through."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        block, done = b" " * 65_536, 0
        try:
            writer.write(head(code, {"Content-Length": str(total_bytes)}))
            while done < total_bytes:
                writer.write(block)
                await writer.drain()
                done += len(block)
        finally:
            if sent is not None:
                sent.append(done)

    return lambda _gateway, _request: play


def drip(every_seconds: float = 0.01, code: int = 200) -> Trap:
    """One byte at a time, without end."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(code, {"Content-Length": "1000000"}))
        while not writer.transport.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(every_seconds)

    return lambda _gateway, _request: play


def silence() -> Trap:
    """The request is taken and never answered."""

    async def play(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        while await reader.read(1024):
            pass

    return lambda _gateway, _request: play


def slow(seconds_an_entry: float) -> Trap:
    """A batch is stored entry by entry, each takes its time, and its answer comes when it is done."""

    def trap(gateway: HostileGateway, request: Request) -> Play:
        async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(seconds_an_entry * len(request.json()))
            writer.write(gateway.answer(request).encoded())
            await writer.drain()

        return play

    return trap


def too_large(most_bytes: int) -> Trap:
    """413 for every body above that; the others pass."""
    refusal = status(413, "request body too large")
    return lambda gateway, request: refusal(gateway, request) if len(request.body) > most_bytes else None


def no_tasks(retry_after: Json = 30) -> Trap:
    """Nothing to do, whatever is in the queue."""
    return answer({"tasks": None, "retry_after": retry_after})


def doubled_tasks() -> Trap:
    """Every task that is handed out stands in the answer twice."""
    return _tasks(lambda tasks: [*tasks, *tasks])


def absurd_tasks() -> Trap:
    """The tasks that are handed out, with things between them that are no tasks."""
    return _tasks(lambda tasks: [*ABSURD_TASKS[::2], *tasks, *ABSURD_TASKS[1::2]])


def _tasks(change: Callable[[list[Json]], list[Json]]) -> Trap:
    def play(gateway: HostileGateway, request: Request) -> Reply:
        right = gateway.answer(request)
        return right._replace(body={**right.body, "tasks": change(right.body["tasks"] or [])})

    return play


def failing(fails: Callable[[Entry], bool] = lambda _: True) -> Trap:
    """A 200 in which those entries failed and the others were stored, until more than ten have failed.

    With no condition: the database is down, and all fail.
    """
    return lambda gateway, request: gateway.store(request.json(), fails)


def refusing(is_bad: Callable[[Entry], bool], code: int = 400) -> Trap:
    """The whole batch is refused when one such entry is in it; other batches pass."""
    refusal = status(code, "invalid request body")
    return lambda gateway, request: refusal(gateway, request) if any(map(is_bad, request.json())) else None


def raw_error(message: str = "the disk is full") -> Trap:
    """The Python one's way to say that it did not keep a raw file."""
    return answer({"status": "error", "message": message})
