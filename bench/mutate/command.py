"""`bench mutate`: real pages, mutated, and how often the parser is silently wrong about them."""

from __future__ import annotations

import argparse
import csv
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct, structs

from bench.mutate import formats, markup, redesigns, responses, sheets
from bench.mutate.verdict import FLAGGED, NULLS, SAME, WRONG, Record, judge, records_of
from bench.report import Report, Table, at_least, at_most, progress
from parcelpost.model import Page, Target
from parcelpost.scrapers.platform import CountyPlatform
from parcelpost.scrapers.platforms import county_platform

NAME = "mutate"
HELP = "mutated real pages: how many records are silently wrong (needs PARCELPOST_CORPUS)"
MOST_WRONG = 0.001
PAGES, QUICK_PAGES = 10_000, 1_500
FEWEST_KINDS = 20
_SHOWN = 25
_VERDICTS = (SAME, FLAGGED, NULLS, WRONG)
_MORE_PAGES = {"grizzly_gis": "grizzly_gis_unlabelled/*.html"}
"""Pages that are not in the manifest."""

Mutate = Callable[[bytes, Sequence[str], Random], bytes | None]


class RealPage(Struct, frozen=True):
    name: str
    body: bytes
    platform: CountyPlatform
    target: Target
    records: Sequence[Record]
    texts: Sequence[str]
    mutations: Sequence[tuple[str, Mutate]]


class Finding(Struct, frozen=True):
    platform: str
    mutation: str
    page: str
    number: int
    verdict: str
    fields: Sequence[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--platform", action="append", default=[], help="only this platform; can be repeated")
    parser.add_argument("--seed", type=int, default=1, help="another seed makes other mutations")
    parser.add_argument("--pages", type=int, default=0, help=f"total number of mutated pages (default: {PAGES:,})")
    parser.add_argument("--save", type=Path, help="write the pages with a silently wrong record to this folder")


def run(arguments: argparse.Namespace) -> Report:
    pages = list(real_pages(arguments.platform))
    count = arguments.pages or (QUICK_PAGES if arguments.quick else PAGES)
    names = sorted({page.platform.name for page in pages})
    findings: list[Finding] = []
    for name in names:
        own = [page for page in pages if page.platform.name == name]
        progress(f"{name}: {len(own)} pages, {len(own[0].mutations)} kinds of mutation")
        findings += _findings(own, -(-count // len(names)), arguments.seed, arguments.save)
    return _report(findings, pages)


def real_pages(platforms: Sequence[str]) -> Iterator[RealPage]:
    """The pages with a record, of the corpus that PARCELPOST_CORPUS names."""
    folder = Path(os.environ.get("PARCELPOST_CORPUS", ""))
    if not (folder / "MANIFEST.csv").is_file():
        raise SystemExit("set PARCELPOST_CORPUS to a folder of real pages with a MANIFEST.csv")
    with (folder / "MANIFEST.csv").open(encoding="utf-8") as file:
        rows = [(row["platform"], row["state"], row["county"], folder / row["file"]) for row in csv.DictReader(file)]
    for name, pattern in _MORE_PAGES.items():
        for path in sorted(folder.glob(pattern)):
            state, county, *_ = path.name.split("_")
            rows.append((name, state, county, path))
    for name, state, county, path in rows:
        platform = county_platform(name)
        if platform is None or (platforms and name not in platforms):
            continue
        body, target = path.read_bytes(), Target(parcel_id="", state=state, county=county)
        records = records_of(platform.parse(Page(body=body), target).outcome)
        if records:
            texts = [text for record in records for text in markup.texts_of(dict(record))]
            if not platform.is_list and len(records) == 1:
                target = structs.replace(target, parcel_id=records[0]["parcel_id"])
            mutations = list(_mutations(body, target.parcel_id))
            yield RealPage(path.name, body, platform, target, records, texts, mutations)


def _mutations(body: bytes, parcel_id: str) -> Iterator[tuple[str, Mutate]]:
    start = body.lstrip()[:1]
    if start == b"<":
        for of_markup in (*markup.MUTATIONS, *redesigns.MUTATIONS, *formats.MUTATIONS):
            yield of_markup.__name__, _bound(of_markup, markup.Tree, parcel_id)
    elif start in (b"{", b"["):
        for of_json in responses.JSON:
            yield of_json.__name__, _bound(of_json, responses.Response, parcel_id)
    else:
        for of_csv in sheets.CSV:
            yield of_csv.__name__, _bound(of_csv, sheets.Sheet, parcel_id)


def _bound(mutation: Callable[..., bytes | None], parts: Callable[..., object], parcel_id: str) -> Mutate:
    return lambda body, texts, chance: mutation(body, parts(body, texts, chance, parcel_id))


def _findings(pages: Sequence[RealPage], count: int, seed: int, folder: Path | None) -> Iterator[Finding]:
    """So many mutated pages, each kind of mutation about equally often."""
    kinds = [name for name, _ in pages[0].mutations]
    for number in range(count):
        page = pages[number // len(kinds) % len(pages)]
        name, mutate = page.mutations[number % len(page.mutations)]
        chance = Random(zlib.crc32(f"{seed} {page.name} {name} {number}".encode()))
        body = mutate(page.body, page.texts, chance)
        if body is None:
            continue
        outcome = page.platform.parse(Page(body=body), page.target).outcome
        verdict, fields = judge(page.records, outcome, name)
        if verdict == WRONG and folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{page.platform.name}-{name}-{number}.html").write_bytes(body)
        yield Finding(page.platform.name, name, page.name, number, verdict, fields)


def _report(findings: Sequence[Finding], pages: Sequence[RealPage]) -> Report:
    wrong = [one for one in findings if one.verdict == WRONG]
    names = sorted({one.platform for one in findings})
    counts = {name: Counter(one.verdict for one in findings if one.platform == name) for name in names}
    kinds = {name: len({one.mutation for one in findings if one.platform == name}) for name in names}
    by_platform = Table(
        "Mutated pages",
        ["platform", "pages", "kinds", *_VERDICTS, "share wrong"],
        [
            [
                *(name, f"{sum(found.values()):,}", str(kinds[name])),
                *(f"{found[verdict]:,}" for verdict in _VERDICTS),
                f"{found[WRONG] / sum(found.values()):.2%}",
            ]
            for name, found in counts.items()
        ],
    )
    worst = Counter((one.platform, one.mutation) for one in wrong)
    fields = Counter((one.platform, field) for one in wrong for field in set(one.fields))
    tables = [
        by_platform,
        Table("Silently wrong, by mutation", ["platform", "mutation", "pages"], _most(worst), left=2),
        Table("Silently wrong, by field", ["platform", "field", "pages"], _most(fields), left=2),
    ]
    targets = [
        at_most("silently wrong / mutated pages", MOST_WRONG, len(wrong) / max(1, len(findings))),
        at_least("kinds of mutation, fewest of a platform", FEWEST_KINDS, min(kinds.values(), default=0)),
    ]
    listed = [{"platform": o.platform, "mutation": o.mutation, "page": o.page, "number": o.number} for o in wrong]
    for one, finding in zip(listed, wrong, strict=True):
        one["fields"] = sorted(set(finding.fields))
    figures = {name: dict(found) for name, found in counts.items()}
    return Report(NAME, targets, tables, {"pages": len(pages), "figures": figures, "silently_wrong": listed})


def _most(counted: Counter[tuple[str, str]]) -> list[list[str]]:
    return [[platform, name, str(count)] for (platform, name), count in counted.most_common(_SHOWN)]
