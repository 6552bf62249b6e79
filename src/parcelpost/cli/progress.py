"""Progress display for long operations."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType

from parcelpost.clock import Clock, SystemClock

_FRAME_SECONDS = 0.1


class Meter:
    """Shows progress on stderr during its `async with` block, once that has taken `after` seconds.

    On a terminal it is a bar that disappears at the end; otherwise a line every `line_every` seconds. Call it with the
    number done and the total, from any thread; without calls it only shows that work is in progress.
    """

    def __init__(
        self, label: str, *, after: float = 2.0, line_every: float = 10.0, clock: Clock = SystemClock()
    ) -> None:
        self._what = label
        self._after = after
        self._line_every = line_every
        self._clock = clock
        self._done = 0
        self._total: int | None = None
        self._task: asyncio.Task[None]

    def __call__(self, done: int, total: int | None) -> None:
        self._done, self._total = done, total

    async def __aenter__(self) -> Meter:
        self._task = asyncio.create_task(self._show())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _show(self) -> None:
        await self._clock.sleep(self._after)
        if sys.stderr.isatty():
            await self._bar()
        else:
            await self._lines()

    async def _bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
            shown = bar.add_task(self._what, total=None)
            while True:
                bar.update(shown, completed=self._done, total=self._total, refresh=True)
                await self._clock.sleep(_FRAME_SECONDS)

    async def _lines(self) -> None:
        while True:
            known = f": {self._done:,}" + (f" of {self._total:,}" if self._total else "") if self._done else " ..."
            print(f"{self._what}{known}", file=sys.stderr, flush=True)
            await self._clock.sleep(self._line_every)
