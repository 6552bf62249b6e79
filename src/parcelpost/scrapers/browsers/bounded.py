"""Calls of Playwright that end: in time, or when what they need is gone. Of themselves they may never."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")

_LONGEST_REASON = 300


class NotDone(Exception):
    """A call of Playwright failed, took too long, or lost what it was made to."""

    def __init__(self, reason: str, hint: str = "", *, is_late: bool = False) -> None:
        super().__init__(reason)
        self.hint = hint
        """What a person can do, where it is known."""
        self.is_late = is_late


async def bounded(work: Awaitable[T], seconds: float, what: str, over: asyncio.Future[str]) -> T:
    """What it brings. Raises NotDone when it fails in any way, after `seconds`, or as soon as `over` says why."""
    task = asyncio.ensure_future(work)
    either: set[asyncio.Future[Any]] = {task, over}
    try:
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not task.done():
            let_go(task)
    if not task.done():
        if over.done():
            raise NotDone(over.result())
        raise NotDone(f"{what} took longer than {seconds:g} s", is_late=True)
    if task.cancelled():
        raise NotDone(f"{what} was broken off")
    if error := task.exception():
        raise NotDone(f"{what} failed: {first_line(error)}") from error
    return task.result()


def let_go(task: asyncio.Future[Any]) -> None:
    """Nobody waits for it any more, and nobody wants its error."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    task.cancel()


def first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:_LONGEST_REASON]
