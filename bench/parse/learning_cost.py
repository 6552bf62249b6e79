"""What learning costs: the same pages of a known site, read with it and without it in turns, and its signals stored."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from parcelpost.model import Done, Page, Signal, Target, Task
from parcelpost.scrapers import learned
from parcelpost.scrapers.county_platform import CountyPlatform
from parcelpost.scrapers.learning import Ranking
from parcelpost.storage.lpm import LocalPersistenceManager

KNOWN_AFTER = 100
"""Pages: of a site's first ones every try is told, later of some."""
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure(platform: CountyPlatform, pages: Sequence[bytes], rounds: int) -> tuple[float, float]:
    """Of the processor time of parsing alone, what ordering, noting and telling add, and what storing adds."""
    target = Target(parcel_id="1", state="FL", county="invented")
    task = Task(task_id="bench", platform=platform.name, target=target)
    ranking = Ranking()
    signals: list[Signal] = []

    def with_it(page: Page) -> None:
        outcome = learned.parse(platform, page, task, ranking, _NOW)
        assert isinstance(outcome, Done)
        signals.extend(outcome.signals)

    def without(page: Page) -> None:
        platform.parse(page, target)

    shown = [Page(body=body) for body in pages]
    for number in range(KNOWN_AFTER):
        with_it(shown[number % len(shown)])
    signals.clear()
    spent = {with_it: 0.0, without: 0.0}
    for number in range(rounds):
        for at, page in enumerate(shown):
            for read in (with_it, without) if (number + at) % 2 else (without, with_it):
                spent[read] += _timed(read, page)
    alone = spent[without]
    return spent[with_it] / alone - 1, asyncio.run(_storing(signals)) / alone


def _timed(read: Callable[[Page], None], page: Page) -> float:
    start = time.process_time()
    read(page)
    return time.process_time() - start


async def _storing(signals: Sequence[Signal]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with LocalPersistenceManager.open(Path(folder, "bench.db")) as lpm:
            start = time.process_time()
            await lpm.signals.append(signals)
            return time.process_time() - start
