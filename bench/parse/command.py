"""`python -m bench parse`: parsing pages, compared with BeautifulSoup, and the cost of learning."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle, islice
from pathlib import Path
from statistics import geometric_mean, mean, median
from typing import Any
from urllib.parse import quote

from bench.parse import peers
from bench.report import Goal, Report, Table, at_least, at_most, progress
from parcelpost.model import Done, Outcome, Page, Signal, Target, Task
from parcelpost.scrapers import county_scraper
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platform import CountyPlatform
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import World
from parcelpost.simulator.sites import SITES
from parcelpost.simulator.web import Layout, Request
from parcelpost.storage.lpm import LocalPersistenceManager

KNOWN_AFTER = 100
"""Pages. Signals are stored for all of a site's first pages and for some of the later ones."""
_ALONE = -1
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def measure_learning(platform: CountyPlatform, pages: Sequence[bytes], rounds: int) -> tuple[float, float]:
    """Returns what ranking and recording add to the processor time of parsing, and what storing adds, as shares.

    Each parse counts as the minimum for the same page and number of signals, because other programs disturb single
    measurements by more than learning costs.
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


_REAL = {
    "grizzly_gis": "grizzly_gis*/FL_columbia_[0-9]*.html",
    "qpublic": "qpublic/*.html",
    "vgsi": "vgsi/*.html",
    "leepa": "leepa/*.html",
    "collier_pa": "collier_pa/*.html",
}
"""Pages of one county each, since an ordinary scraper is written for one."""
PLATFORMS = tuple(_REAL)
_REAL_PAGES = 8


def simulated_pages(platform: str, count: int) -> list[bytes]:
    world = World(county="invented", size=count)
    return [_page(platform, number, world) for number in range(1, count + 1)]


def real_pages(platform: str) -> list[bytes]:
    """Returns the same number of pages for each platform, repeated if there are fewer, or none."""
    folder = os.environ.get("PARCELPOST_CORPUS", "")
    files = sorted(Path(folder).glob(_REAL[platform])) if folder else []
    return [file.read_bytes() for file in islice(cycle(files), _REAL_PAGES if files else 0)]


def _page(platform: str, number: int, world: World) -> bytes:
    site = SITES[platform]
    assert site.parcel_id is not None
    parcel = quote(site.parcel_id(number))
    if platform == "grizzly_gis":  # its URL returns a frame with a form that leads to the page
        form = f"bHandoff_PIN={parcel}".encode()
        request = Request(method="POST", target="/gis/recordSearch_2_Results/", headers={}, body=form)
    else:
        request = Request(method="GET", target=site.address.replace("{parcel}", parcel), headers={})
    return site.respond(request, world, Layout()).body


NAME = "parse"
HELP = "parsing pages, compared with BeautifulSoup, and the cost of learning"
GOAL, MOST_LEARNING = 10.0, 0.05
REPETITIONS = 5
OURS, PARSERS = "parcelpost", ("html.parser", "lxml")
_TARGET = Target(parcel_id="", state="FL", county="invented")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=0, help="simulated pages per platform (default: 100, quick: 20)")


def run(arguments: argparse.Namespace) -> Report:
    count = arguments.pages or (20 if arguments.quick else 100)
    simulated = {name: simulated_pages(name, count) for name in PLATFORMS}
    real = {name: pages for name in PLATFORMS if (pages := real_pages(name))}
    rows, data, targets = [], [], []
    for kind, sets in (("simulated", simulated), ("real", real)):
        rates = {name: _rates(kind, name, pages) for name, pages in sets.items()}
        rows += [_row(kind, name, sets[name], per_second) for name, per_second in rates.items()]
        data += [{"pages": kind, "platform": name, "per_second": per_second} for name, per_second in rates.items()]
        targets += _targets(kind, rates)
    learning, table = _learning(simulated, 3 if arguments.quick else 10)
    recording = mean(share for share, _ in learning.values())
    storing = mean(share for _, share in learning.values())
    targets.append(at_most("recording / parsing, mean", MOST_LEARNING, recording))
    targets.append(at_most("recording and storing / parsing, mean", MOST_LEARNING, recording + storing))
    header = ["pages", "platform", "KB", OURS, *PARSERS, *(f"/ {name}" for name in PARSERS)]
    reading = Table("Pages per second, one core", header, rows, left=2)
    return Report(NAME, targets, [reading, table], {"figures": data, "learning": learning})


def _targets(kind: str, rates: Mapping[str, Mapping[str, float]]) -> list[Goal]:
    if not rates:
        return []
    ratio = geometric_mean(per_second[OURS] / per_second["html.parser"] for per_second in rates.values())
    return [at_least(f"{kind}: rate / html.parser, geometric mean", GOAL, ratio)]


def _row(kind: str, name: str, pages: Sequence[bytes], rates: Mapping[str, float]) -> list[str]:
    size = sum(map(len, pages)) / len(pages) / 1000
    ratios = [f"{rates[OURS] / rates[parser]:.1f}" for parser in PARSERS]
    return [kind, name, f"{size:.0f}", *(f"{rate:,.0f}" for rate in rates.values()), *ratios]


def _rates(kind: str, name: str, pages: Sequence[bytes]) -> dict[str, float]:
    progress(f"{kind} pages of {name}: {len(pages)}")
    platform = _platform(name)
    readers: dict[str, Callable[[bytes], object]] = {OURS: lambda body: _record(platform, body)}
    for parser in PARSERS:
        readers[parser] = lambda body, parser=parser: peers.read(name, body.decode(), parser)  # type: ignore[misc]
        for body in pages:
            _check(peers.read(name, body.decode(), parser), _record(platform, body))
    seconds: dict[str, list[float]] = {reader: [] for reader in readers}
    for _ in range(REPETITIONS):
        for reader, read in readers.items():
            start = time.process_time()
            for body in pages:
                read(body)
            seconds[reader].append(time.process_time() - start)
    return {reader: len(pages) / median(durations) for reader, durations in seconds.items()}


def _platform(name: str) -> CountyPlatform:
    platform = county_platform(name)
    assert platform is not None
    return platform


def _record(platform: CountyPlatform, body: bytes) -> Mapping[str, Any]:
    outcome = platform.parse(Page(body=body), _TARGET).outcome
    assert isinstance(outcome, Done)
    assert isinstance(outcome.data, Mapping)
    return outcome.data


_NO_BOOK_AND_PAGE = "/0"
"""As vgsi writes it; the peers keep the text."""


def _check(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Checks that both read the same values; otherwise their times could not be compared."""
    for name, value in theirs.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            assert len(value) == len(ours[name]), name
            for their_row, our_row in zip(value, ours[name], strict=True):
                _check(their_row, our_row)
        else:
            expected = None if value == _NO_BOOK_AND_PAGE else value
            assert expected == ours[name], (name, value, ours[name])


def _learning(sets: Mapping[str, Sequence[bytes]], rounds: int) -> tuple[dict[str, tuple[float, float]], Table]:
    shares = {}
    for name, pages in sets.items():
        progress(f"learning from pages of {name}")
        shares[name] = measure_learning(_platform(name), pages, rounds)
    rows = [
        [name, f"{recording:.1%}", f"{storing:.1%}", f"{recording + storing:.1%}"]
        for name, (recording, storing) in shares.items()
    ]
    header = ["platform", "ranking and recording", "storing", "total"]
    return shares, Table("Learning, as a share of parsing simulated pages without it", header, rows)
