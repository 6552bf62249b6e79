"""How far both sides are: two bars on a terminal, a line a second elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from parcelpost.clock import Clock

_LINE_SECONDS = 1.0


class Bars:
    """Shown on stderr while its `with` block lasts. Lines printed meanwhile stand above."""

    def __init__(self, total: int, clock: Clock) -> None:
        self._total = total
        self._clock = clock
        self._next_line = 0.0
        self._progress: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(
                *columns, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty()
            )
            self._scraped = self._progress.add_task("scraped by the worker", total=total)
            self._stored = self._progress.add_task("stored at the gateway", total=total)

    def __enter__(self) -> Bars:
        if self._progress:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()

    def show(self, scraped: int, stored: int) -> None:
        if self._progress:
            self._progress.update(self._scraped, completed=scraped)
            self._progress.update(self._stored, completed=stored)
        elif self._clock.monotonic() >= self._next_line:
            self._next_line = self._clock.monotonic() + _LINE_SECONDS
            text = f"scraped by the worker: {scraped:,} of {self._total:,}; stored at the gateway: {stored:,}"
            print(text, file=sys.stderr, flush=True)
