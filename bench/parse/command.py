"""`python -m bench parse`: pages per second on one core, and what noting how each way did costs."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.parse import peer
from bench.report import Report, Table, at_least, at_most, progress
from parcelpost.model import Done, Page, Signal, Target
from parcelpost.scrapers.county_platform import Parsed
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.looks import Looks
from parcelpost.simulator.sites import vgsi
from parcelpost.simulator.web import Request
from parcelpost.simulator.world import World
from parcelpost.storage.lpm import LocalPersistenceManager

NAME = "parse"
HELP = "reading pages, against the same fields read with BeautifulSoup"
GOAL, MOST_NOTING = 10.0, 0.05
REPETITIONS = 5
_TARGET = Target(parcel_id="", state="NH", county="invented")
_SITE = ("vgsi", _TARGET.state, _TARGET.county)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=0, help="how many simulated pages (default: 200, quick: 60)")


def run(arguments: argparse.Namespace) -> Report:
    count = arguments.pages or (60 if arguments.quick else 200)
    sets = {"simulated": _simulated(count), **_real()}
    rows, data, targets = [], [], []
    for name, pages in sets.items():
        progress(f"{name}: {len(pages)} pages of {sum(map(len, pages)) // len(pages):,} bytes")
        rates = _rates(pages)
        rows += [[name, reader, f"{rate:,.0f}", f"{rates['parcelpost'] / rate:.1f}"] for reader, rate in rates.items()]
        data += [{"pages": name, "reader": reader, "per_second": rate} for reader, rate in rates.items()]
        targets.append(at_least(f"{name}: rate / html.parser", GOAL, rates["parcelpost"] / rates["html.parser"]))
    noting = _noting_share(sets["simulated"])
    targets.append(at_most("noting and storing signals / parsing", MOST_NOTING, noting))
    table = Table(
        "Pages of vgsi per second, one core", ["pages", "read with", "per second", "ours / this"], rows, left=2
    )
    return Report(NAME, targets, [table], {"figures": data, "noting_share": noting})


def _simulated(count: int) -> list[bytes]:
    world = World(county="invented", size=count)
    asked = (Request(method="GET", target=f"/x/Parcel.aspx?Pid={number}", headers={}) for number in range(1, count + 1))
    return [vgsi.respond(one, world, Looks()).body for one in asked]


def _real() -> dict[str, list[bytes]]:
    folder = os.environ.get("PARCELPOST_CORPUS", "")
    found = [file.read_bytes() for file in sorted(Path(folder, "vgsi").glob("*.html"))] if folder else []
    return {"real": found * 10} if found else {}


def _rates(pages: Sequence[bytes]) -> dict[str, float]:
    readers: dict[str, Callable[[bytes], object]] = {
        "parcelpost": _parse,
        "html.parser": lambda body: peer.read(body, "html.parser"),
        "lxml": lambda body: peer.read(body, "lxml"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(REPETITIONS):
        for name, read in readers.items():
            seconds[name].append(_timed(lambda read=read: [read(body) for body in pages]))  # type: ignore[misc]
    return {name: len(pages) / median(found) for name, found in seconds.items()}


def _parse(body: bytes, ranking: Ranking | None = None) -> Parsed:
    platform = county_platform("vgsi")
    assert platform is not None
    page = Page(body=body)
    parsed = platform.parse(page, _TARGET, ranking.order(_SITE)) if ranking else platform.parse(page, _TARGET)
    assert isinstance(parsed.outcome, Done)
    return parsed


def _noting_share(pages: Sequence[bytes]) -> float:
    """Ranking the ways and storing their signals, as a share of parsing alone."""
    ranking = Ranking()
    parsed = [_parse(body, ranking) for body in pages]
    parsing = median(_timed(lambda: [_parse(body) for body in pages]) for _ in range(REPETITIONS))

    def note() -> list[Signal]:
        signals = []
        for one in parsed:
            ranking.note(_SITE, one.tries)
            signals += [
                _signal(one_try.field, one_try.way.selector, one_try.way.type, one_try.success) for one_try in one.tries
            ]
        return signals

    noting = median(_timed(note) for _ in range(REPETITIONS))
    return (noting + asyncio.run(_storing(note()))) / parsing


def _signal(field: str, selector: str, kind: str, success: bool) -> Signal:
    return Signal(platform="vgsi", field=field, selector=selector, selector_type=kind, success=success)


async def _storing(signals: list[Signal]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with LocalPersistenceManager.open(Path(folder, "bench.db")) as lpm:
            taken = []
            for _ in range(REPETITIONS):
                start = time.perf_counter()
                await lpm.signals.append(signals)
                taken.append(time.perf_counter() - start)
            return median(taken)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
