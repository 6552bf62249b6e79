"""`python -m bench export`: each format beside what a developer would write, and whether memory is bounded."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.export.contenders import CONTENDERS, PEER_OF
from bench.export.records import COUNTIES, fill_store
from bench.export.running import Measured, measure
from bench.report import Report, Table, Target, at_most, progress
from bench.store.disk import fresh_folder, machine, scratch

NAME = "export"
HELP = "exporting a store in every format, beside plain writers, and in how much memory"

_FULL, _QUICK = 100_000, 10_000
GROWTH_GOAL_MB = 40
"""How much more memory all records may take than a quarter of them."""


@dataclass(frozen=True, slots=True)
class Pair:
    """The same export, of a quarter of the records and of all of them."""

    quarter: Measured
    all: Measured

    @property
    def growth_mb(self) -> float:
        return self.all.peak_mb - self.quarter.peak_mb


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dir", type=Path, default=Path(), help="where to measure (default: the current folder's disk)"
    )
    parser.add_argument("--only", nargs="+", choices=sorted(CONTENDERS), help="measure these, in place of all")


def run(arguments: argparse.Namespace) -> Report:
    records = _QUICK if arguments.quick else _FULL
    names = arguments.only or list(CONTENDERS)
    with scratch(arguments.dir) as folder:
        where = machine(folder)
        progress(f"measuring in {folder} ({where['file_system']}), load {where['load']}")
        store = folder / "store" / "parcelpost.db"
        progress(f"filling a store with {records:,} records")
        asyncio.run(fill_store(store, records))
        pairs = {name: _measure(name, store, folder) for name in names}
    figures = [{"name": name, **asdict(pair)} for name, pair in pairs.items()]
    return Report(NAME, _targets(pairs), [_table(pairs)], {"machine": where, "records": records, "figures": figures})


def _measure(name: str, store: Path, folder: Path) -> Pair:
    progress(name)
    measured = []
    for county in (COUNTIES[0], ""):
        with fresh_folder(folder) as output:
            measured.append(measure(name, store, output, county))
    return Pair(*measured)


def _targets(pairs: dict[str, Pair]) -> list[Target]:
    return [
        at_most(f"{name}: MB more for {pair.all.records:,} records than for a quarter", GROWTH_GOAL_MB, pair.growth_mb)
        for name, pair in pairs.items()
        if name not in PEER_OF.values()
    ]


def _ratio(name: str, pairs: dict[str, Pair]) -> str:
    peer = pairs.get(PEER_OF.get(name, ""))
    return f"{pairs[name].all.per_second / peer.all.per_second:.2f} of {PEER_OF[name]}" if peer else ""


def _table(pairs: dict[str, Pair]) -> Table:
    rows = [
        [
            name,
            f"{pair.all.per_second:,.0f}",
            f"{pair.all.seconds:,.1f}",
            f"{pair.quarter.peak_mb:,.0f}",
            f"{pair.all.peak_mb:,.0f}",
            _ratio(name, pairs),
        ]
        for name, pair in pairs.items()
    ]
    header = ["format", "records/s", "seconds", "peak of a quarter, MB", "peak of all, MB", "rate"]
    return Table("Parcels with two liens each, exported", header, rows)
