"""Pages that were kept, read by whatever code knows how: it may be somebody's, and do anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from parcelpost.model import GiveUp, NotFound, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.platform import NotReadable, Parse
from parcelpost.worker.stage import Stage

Parsers = Callable[[str], Parse | NotReadable]
"""By platform. May import somebody's module, and raise whatever that raises."""


class PageReader:
    """Whatever a parser does - raise, exit, hang - happens to its own page."""

    def __init__(self, parsers: Parsers, seconds: float) -> None:
        self._parsers = parsers
        self._seconds = seconds
        self._known: dict[str, Parse | NotReadable] = {}
        self._stage = Stage("reading pages")

    @classmethod
    @asynccontextmanager
    async def open(cls, parsers: Parsers, *, seconds: float = 300.0) -> AsyncIterator[PageReader]:
        """`seconds`: how long a page may take."""
        reader = cls(parsers, seconds)
        try:
            yield reader
        finally:
            await reader._stage.close()

    async def unreadable(self, platform: str) -> NotReadable | None:
        """Why pages of that platform cannot be read; None: they can."""
        if platform not in self._known:
            self._known[platform] = await self._find(platform)
        found = self._known[platform]
        return found if isinstance(found, NotReadable) else None

    async def read(self, platform: str, page: Page, target: Target) -> Outcome:
        if (unreadable := await self.unreadable(platform)) is not None:
            return GiveUp(unreadable.reason)
        parse = self._known[platform]

        def read(task: Task) -> Outcome | Awaitable[Outcome]:
            return GiveUp(parse.reason) if isinstance(parse, NotReadable) else parse(page, task.target)

        return await self._on_stage(read, Task(task_id="", platform=platform, target=target))

    async def _find(self, platform: str) -> Parse | NotReadable:
        found: list[Parse | NotReadable] = []

        def find(task: Task) -> Outcome:
            found.append(self._parsers(task.platform))
            return NotFound("it was only looked for")

        nowhere = Target(parcel_id="", state="", county="")
        outcome = await self._on_stage(find, Task(task_id="", platform=platform, target=nowhere))
        return found[0] if found else NotReadable(f"it cannot be imported: {getattr(outcome, 'reason', '')}")

    async def _on_stage(self, call: Callable[[Task], Outcome | Awaitable[Outcome]], task: Task) -> Outcome:
        outcome = await self._stage.run(call, task, self._seconds)
        if not self._stage.is_free:  # a thread that does not come back holds up nobody
            self._stage = Stage("reading pages")
        return outcome or Retry("it was interrupted")
