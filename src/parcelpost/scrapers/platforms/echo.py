"""`echo`: returns the target itself as a record, slow, failing or large on demand. For tests and first steps."""

from __future__ import annotations

import asyncio
import sys
import threading
from html import escape

import msgspec

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Blocked, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Target, Task

MAX_SIZE_BYTES = 512 * 1024**2
MAX_DELAY_MS = 24 * 3_600_000

_ASKED = "requested by the task"
_ENDS: dict[str, Outcome] = {
    "retry": Retry(_ASKED),
    "give_up": GiveUp(_ASKED),
    "blocked": Blocked(_ASKED),
    "not_found": NotFound(_ASKED),
}
_WAYS = (*_ENDS, "raise", "exit", "hang", "block")
_PIECE = b" " * 1024**2


class Echo:
    """Options in `target.extra`: `delay_ms` makes it slow, `size_bytes` pads its page, `page` false omits the page, and
    `fail` makes it fail.

    `fail` is true or "retry", "give_up", "blocked", "not_found", "raise" (an exception), "exit" (sys.exit), "hang"
    (never ends) or "block" (blocks its thread for `delay_ms`, then continues).
    """

    name = "echo"

    def __init__(self, clock: Clock = SystemClock()) -> None:
        self._clock = clock

    async def scrape(self, task: Task) -> Outcome:
        extra = task.target.extra
        delay_ms, size_bytes, fail = (_wish(extra.get(name)) for name in ("delay_ms", "size_bytes", "fail"))
        problem = _problem(delay_ms, size_bytes, fail)
        if problem:
            return GiveUp(problem)
        if fail == "block":
            threading.Event().wait(delay_ms / 1_000)
        elif delay_ms:
            await self._clock.sleep(delay_ms / 1_000)
        if fail and fail != "block":
            return await _fail("retry" if fail is True else str(fail))
        record = _record(task.target)
        if extra.get("page") in (False, "false"):
            return Done(data=record)
        return Done(data=record, page=Page(body=_page(record, size_bytes), url=task.target.url))


async def _fail(fail: str) -> Outcome:
    if fail == "raise":
        raise ValueError(_ASKED)
    if fail == "exit":
        sys.exit(3)
    if fail == "hang":
        await asyncio.Event().wait()
    return _ENDS[fail]


def _wish(value: Json) -> Json:
    """Converts text, as CSV files have it."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 12:
        return int(value)
    return {"true": True, "false": 0, "": 0}.get(value.lower(), value) if isinstance(value, str) else value or 0


def _problem(delay_ms: Json, size_bytes: Json, fail: Json) -> str:
    """Describes an invalid option; '' if all are valid."""
    if type(delay_ms) not in (int, float) or not 0 <= delay_ms <= MAX_DELAY_MS:
        return f"delay_ms must be a number from 0 to {MAX_DELAY_MS:,}, not {delay_ms!r:.60}"
    if type(size_bytes) is not int or not 0 <= size_bytes <= MAX_SIZE_BYTES:
        return f"size_bytes must be a whole number from 0 to {MAX_SIZE_BYTES:,}, not {size_bytes!r:.60}"
    if fail and fail is not True and not (isinstance(fail, str) and fail in _WAYS):
        return f"fail must be true, false or one of {', '.join(_WAYS)}, not {fail!r:.60}"
    return ""


def _record(target: Target) -> dict[str, Json]:
    record = {**target.extra, "parcel_id": target.parcel_id, "state": target.state, "county": target.county}
    return {**record, "url": target.url} if target.url else record


def _page(record: dict[str, Json], size_bytes: int) -> bytes:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(_text(value))}</dd>" for name, value in record.items())
    html = f"<!DOCTYPE html><html><body><dl>{rows}</dl></body></html>".encode(errors="replace")
    pieces, rest = divmod(max(0, size_bytes - len(html)), len(_PIECE))
    if not pieces and not rest:
        return html
    return b"".join([html, *[_PIECE] * pieces, _PIECE[:rest]])  # joining large pieces does not hold up other threads


def _text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
