"""What learning costs: the same pages of a known site, read with it and without it in turns, and its signals stored."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from parcelpost.model import Done, Outcome, Page, Signal, Target, Task
from parcelpost.scrapers import county_scraper
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platform import CountyPlatform
from parcelpost.storage.lpm import LocalPersistenceManager

KNOWN_AFTER = 100
"""Pages: of a site's first ones every try is told, later of some."""
_ALONE = -1
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure_learning(platform: CountyPlatform, pages: Sequence[bytes], rounds: int) -> tuple[float, float]:
    """Of the processor time of parsing alone, what ordering, noting and telling add, and what storing adds.

    A read counts as the least time that one of the same page took which told as many signals: other programs on the
    machine disturb single reads by more than learning costs.
    """
    target = Target(parcel_id="", state="FL", county="invented")
    task = Task(task_id="bench", platform=platform.name, target=target)
    ranking = Ranking()
    shown = [Page(body=body) for body in pages]
    for number in range(KNOWN_AFTER):
        county_scraper.parse_ranked(platform, shown[number % len(shown)], task, ranking, _NOW)
    signals: list[Signal] = []
    reads: list[tuple[int, int]] = []
    best: dict[tuple[int, int], float] = {}
    for _ in range(rounds):
        for at, page in enumerate(shown):
            _, alone = _timed(lambda page=page: platform.parse(page, target).outcome)  # type: ignore[misc]
            outcome, taken = _timed(lambda page=page: county_scraper.parse_ranked(platform, page, task, ranking, _NOW))  # type: ignore[misc]
            assert isinstance(outcome, Done)
            signals += outcome.signals
            reads.append((at, len(outcome.signals)))
            best[reads[-1]] = min(best.get(reads[-1], taken), taken)
            best[at, _ALONE] = min(best.get((at, _ALONE), alone), alone)
    without = sum(best[at, _ALONE] for at, _ in reads)
    return sum(best[read] for read in reads) / without - 1, asyncio.run(_storing(signals)) / without


def _timed(read: Callable[[], Outcome]) -> tuple[Outcome, float]:
    start = time.process_time()
    outcome = read()
    return outcome, time.process_time() - start


async def _storing(signals: Sequence[Signal]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with LocalPersistenceManager.open(Path(folder, "bench.db")) as lpm:
            start = time.process_time()
            await lpm.signals.append(signals)
            return time.process_time() - start
