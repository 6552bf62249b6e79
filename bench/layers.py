"""`bench layers`: how many cells of unknown layers a proposed field map places right.

The layers have column names after those that states and counties publish, not checked against a live service, and
invented rows that are tidier than real ones. What is right is written down by
hand for each layer; held-out layers were not used for the vocabulary."""

from __future__ import annotations

import argparse
import csv
import json
import random
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench.report import Report, Table, at_least, at_most
from parcelpost.model import Json, Page
from parcelpost.scrapers.html.values import parcel_norm
from parcelpost.scrapers.layers import read_layer
from parcelpost.scrapers.records import column_values
from parcelpost.scrapers.records.columns import Column
from parcelpost.scrapers.records.field_map_proposal import CERTAIN_FROM, LIKELY_FROM, propose
from parcelpost.scrapers.records.field_maps import FieldMap, build_field_map, plain_row
from parcelpost.scrapers.records.record import Record

NAME = "layers"
HELP = "columns of unknown layers that are placed right"
COLUMNS = Path(__file__).parent / "layer_columns"
_ROWS = 40
_CONVERSIONS = {
    **dict.fromkeys(("owner_names",), "texts"),
    **dict.fromkeys(("mailing",), "lines"),
    **dict.fromkeys(("mailing_zip", "situs_zip"), "zip"),
    **dict.fromkeys(("situs_address", "legal_description"), "joined"),
    **dict.fromkeys(
        ("land_area_acres", "building_area_sqft", "bedrooms", "bathrooms", "latitude", "longitude"), "some"
    ),
    **dict.fromkeys(("value_year", "tax_year", "year_built"), "year"),
    "last_sale_date": "day",
    "homestead": "flag",
    **dict.fromkeys(("land_value", "building_value", "market_value", "assessed_value", "taxable_value"), "money"),
    **dict.fromkeys(("last_sale_price", "tax_amount"), "money"),
}
_KINDS = {
    **dict.fromkeys(("oid",), column_values.SYSTEM),
    **dict.fromkeys(("date_ms",), column_values.DATE),
}


class Layer(Struct, frozen=True):
    name: str
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Json]]
    truth: Mapping[str, str]
    free: frozenset[str]
    """Fields that may be filled either way."""


class Score(Struct):
    cells: int = 0
    right: int = 0
    wrong: list[str] = []
    missing: list[str] = []

    def add(self, other: Score) -> None:
        self.cells += other.cells
        self.right += other.right
        self.wrong += other.wrong
        self.missing += other.missing


def layers(file: str) -> Iterator[Layer]:
    for name, given in tomllib.loads((COLUMNS / f"{file}.toml").read_text("utf-8")).items():
        kinds = [_column(text) for line in given["columns"].strip().splitlines() for text in line.split(";")]
        world = random.Random(name)
        rows = []
        for number in range(_ROWS):
            parcel = _parcel(world, number)
            rows.append({column.name: parcel[kind] for column, kind in kinds})
        yield Layer(name, [column for column, _ in kinds], rows, given["truth"], frozenset(given.get("any", ())))


def _column(text: str) -> tuple[Column, str]:
    name, _, rest = text.strip().partition(" ")
    kind, _, alias = rest.partition("|")
    return Column(name, alias, _KINDS.get(kind, "")), kind


def score(layer: Layer, at_least_confidence: float) -> Score:
    """Compares the records that a proposed field map gives with those of the field map written manually."""
    rows = [plain_row(row) for row in layer.rows]
    proposal = propose(layer.columns, rows)
    given = proposal.field_map(at_least_confidence)
    manual = build_field_map(
        layer.name, {"fields": {"parcel_id": {"text": ["OBJECTID"]}, **dict(_sources(layer.truth))}}, layer.name
    )
    proposed = build_field_map(layer.name, {"fields": {"parcel_id": {"text": ["-X"]}, **given["fields"]}}, layer.name)
    return compare(manual, proposed, rows, layer.truth, layer.free)


def _sources(truth: Mapping[str, str]) -> Iterator[tuple[str, Mapping[str, list[str]]]]:
    for field, columns in truth.items():
        yield field, {_CONVERSIONS.get(field, "text"): columns.split()}


def compare(
    manual: FieldMap,
    proposed: FieldMap,
    rows: Sequence[Mapping[str, Json]],
    truth: Mapping[str, Any],
    free: frozenset[str],
) -> Score:
    found = Score()
    wrong: dict[str, str] = {}
    missing = set()
    for row in rows:
        for field in sorted({*truth, *proposed.fields} - free):
            source = manual.fields.get(field) if field in truth else None
            want = _cell(field, source.value(row) if source is not None else None)
            other = proposed.fields.get(field)
            have = _cell(field, other.value(row) if other is not None else None)
            if want is not None:
                found.cells += 1
                found.right += want == have
                if have is None:
                    missing.add(field)
            if have is not None and have != want:
                wrong.setdefault(field, f"{manual.name}: {field} is {have!r}, not {want!r}"[:160])
    found.wrong, found.missing = sorted(wrong.values()), [f"{manual.name}: {field}" for field in sorted(missing)]
    return found


def _cell(field: str, value: Any) -> Any:
    if value in (None, [], ""):
        return None
    if field in ("last_sale_price", "building_area_sqft") and value == 0:
        return None
    return parcel_norm(value) if field == "parcel_id" else value


def corpus_scores(corpus: Path, at_least_confidence: float) -> Iterator[tuple[str, Score]]:
    """The real layers of a corpus, read without their field maps, beside the facts that were typed manually."""
    with (corpus / "MANIFEST.csv").open(encoding="utf-8") as manifest:
        entries = [entry for entry in csv.DictReader(manifest) if entry["platform"] in ("arcgis", "socrata")]
    for entry in entries:
        layer = read_layer(Page(body=(corpus / entry["file"]).read_bytes(), content_type=""))
        rows = [plain_row(row) for row in layer.rows]
        given = propose(layer.columns, rows).field_map(at_least_confidence)
        field_map = build_field_map(
            entry["file"], {"fields": {"parcel_id": {"text": ["-X"]}, **given["fields"]}}, "bench"
        )
        records = {record.parcel_id: record.as_json() for row in rows if (record := field_map.record(row))}
        expected = json.loads((corpus / entry["expected"]).read_text("utf-8"))
        yield entry["file"], _score_facts(entry["file"], expected, records)


def _score_facts(name: str, expected: Mapping[str, Any], records: Mapping[str | None, Mapping[str, Any]]) -> Score:
    found = Score()
    for facts in expected.get("records") or expected["records_checked"]:
        record = records.get(facts["parcel_id"], {})
        for field in sorted(facts.keys() & (set(Record.__struct_fields__) - {"liens", "sales"})):
            want, have = facts[field], record.get(field)
            if want is not None:
                found.cells += 1
                found.right += want == have
            if have not in (None, [], 0) and have != want:
                found.wrong.append(f"{name}: {field} is {have!r}, not {want!r}"[:160])
            elif want is not None and want != have:
                found.missing.append(f"{name}: {field}")
    found.missing = sorted(set(found.missing))
    return found


def _parcel(world: random.Random, number: int) -> dict[str, Json]:
    """One invented parcel: the values of each kind of column."""
    pick = world.choice
    street, kind = pick(_STREETS), pick(("ST", "AVE", "RD", "DR", "LN", "CT"))
    house, direction = world.randint(1, 9_899), pick(("", "", "N", "S", "E", "W"))
    situs = " ".join(filter(None, (str(house), direction, street, kind)))
    at_home = world.random() < 0.7
    city, state, zip_code = "CEDAR FALLS", "OH", "44240"
    mail = (
        situs
        if at_home
        else pick((f"PO BOX {world.randint(1, 9999)}", f"{world.randint(1, 999)} {pick(_STREETS)} AVE"))
    )
    mcity, mstate, mzip = (city, state, zip_code) if at_home else pick(_CITIES)
    pin = f"{world.randint(10, 99)}-{world.randint(100, 999)}-{number:03}-{world.randint(1000, 9999)}"
    land, is_built = world.randint(10, 200) * 500, world.random() < 0.8
    bldg = world.randint(80, 900) * 500 if is_built else 0
    total = land + bldg
    sold = world.random() < 0.8
    day = datetime(world.randint(1985, 2024), world.randint(1, 12), world.randint(1, 28), tzinfo=UTC)
    earlier = day.replace(year=day.year - world.randint(3, 9))
    price = world.randint(20, 900) * 1_000 if sold else 0
    acres = Decimal(world.randint(10, 4_000)) / 100
    built = world.randint(1900, 2020) if is_built else 0
    owner = f"{pick(_LAST)} {pick(_FIRST)}" if world.random() < 0.8 else f"{pick(_STREETS)} HOLDINGS LLC"
    use = pick(_USES)
    book, page = str(world.randint(100, 4_000)), str(world.randint(1, 999))

    def dated(form: str, of: datetime = day) -> Json:
        return of.strftime(form) if sold else None

    return {
        "oid": number + 1,
        "pin": pin,
        "pin_plain": pin.replace("-", ""),
        "pin2": str(700_000 + number * 7),
        "pin_state": f"055{pin.replace('-', '')}",
        "owner": owner,
        "prior_owner": f"{pick(_LAST)} {pick(_FIRST)}",
        "owner2": f"{pick(_LAST)} {pick(_FIRST)}" if world.random() < 0.3 else None,
        "mail": mail,
        "mail2": f"APT {number}" if world.random() < 0.1 else None,
        "mcity": mcity,
        "mstate": mstate,
        "mstate_name": mstate,
        "mzip": mzip,
        "mzip_int": int(mzip),
        "care": None,
        "mail_whole": f"{mail} {mcity} {mstate} {mzip}",
        "mcity_state": f"{mcity} {mstate}",
        "mcity_state_zip": f"{mcity} {mstate} {mzip}",
        "situs": situs,
        "snum": str(house),
        "sdir": direction or None,
        "sname": street,
        "stype": kind,
        "sname_type": f"{street} {kind}",
        "scity": city,
        "szip": zip_code,
        "szip_int": int(zip_code),
        "scity_state_zip": f"{city}, {state} {zip_code}",
        "state": state,
        "muni": "TOWN OF CEDAR FALLS",
        "county": "RIVERS",
        "legal": f"LOT {world.randint(1, 90)} BLK {world.randint(1, 9)} {street} ESTATES",
        "legal2": f"PB {world.randint(1, 90)} PG {world.randint(1, 90)}",
        "subdiv": f"{street} ESTATES",
        "usecode": use[0],
        "usedesc": use[1],
        "usedesc2": use[1].upper(),
        "zoning": pick(("R1", "R-2", "C2", "AG", "R1A")),
        "acres": acres,
        "acres_gis": acres + Decimal("0.01"),
        "acres_text": f"{acres}",
        "lotsqft": int(acres * 43_560),
        "livsqft": world.randint(700, 4_000) if is_built else 0,
        "yearbuilt": built,
        "land": land,
        "bldg": bldg,
        "total": total,
        "total_all": total + 1_500,
        "extra": 1_500,
        "total_market": total + 5_000,
        "prior": total - 2_000,
        "taxable": max(total - 25_000, 0),
        "land70": land * 7 // 10,
        "bldg70": bldg * 7 // 10,
        "total70": total * 7 // 10,
        "total20": total // 5,
        "total40": total * 2 // 5,
        "land40": land * 2 // 5,
        "bldg40": bldg * 2 // 5,
        "land10": land // 10,
        "bldg10": bldg // 10,
        "total10": total // 10,
        "tax": Decimal(total) * Decimal("0.011"),
        "tax_gross": Decimal(total) * Decimal("0.012"),
        "price": price,
        "price2": price // 2,
        "date_ms": int(day.timestamp() * 1_000) if sold else None,
        "date_text": dated("%m/%d/%Y"),
        "date_text2": dated("%m/%d/%Y", earlier),
        "date_iso": dated("%Y-%m-%dT00:00:00.000"),
        "date_iso2": dated("%Y-%m-%dT00:00:00.000", earlier),
        "date_compact": dated("%Y%m%d"),
        "saleyear": day.year if sold else 0,
        "month": day.month if sold else 0,
        "year": 2024,
        "year_before": 2023,
        "book": book,
        "page": page,
        "bookpage": f"{book}/{page}",
        "lat": Decimal("41.15") + Decimal(number) / 1_000,
        "lon": Decimal("-81.36") - Decimal(number) / 1_000,
        "lat_text": f"41.15{number:03}",
        "lon_text": f"-81.36{number:03}",
        "yn": pick("YN"),
        "code": use[0],
        "code2": pick("ABCD"),
        "text": pick(("Average", "Good", "Brick", "Public")),
        "url": f"https://example.org/parcel?id={number}",
        "float": Decimal(world.randint(1, 10**7)) / 97,
        "small": world.randint(1, 4) if is_built else 0,
        "zero": 0,
        "empty": None,
    }


_STREETS = (
    "OAK",
    "MAPLE HILL",
    "CEDAR",
    "RIVER BEND",
    "COUNTY LINE",
    "FOX RUN",
    "CHERRY",
    "WASHINGTON",
    "MILL CREEK",
    "SUNSET",
)
_CITIES = (("AUSTIN", "TX", "78701"), ("DENVER", "CO", "80202"), ("BOSTON", "MA", "02108"), ("TAMPA", "FL", "33602"))
_LAST = ("BLOOM", "MOSS", "RIVERA", "OKAFOR", "LINDQVIST", "NGUYEN", "HARPER", "DIAZ")
_FIRST = ("CLARA", "JOHN & ANNE", "PETER J", "MARIA", "SAM", "RUTH TRUSTEE")
_USES = (
    ("510", "Single family"),
    ("100", "Agricultural vacant"),
    ("400", "Commercial retail"),
    ("550", "Condominium unit"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--misses", action="store_true", help="list fields that were placed wrongly or not at all")
    parser.add_argument("--corpus", type=Path, help="also score this corpus of real layers")


def run(arguments: argparse.Namespace) -> Report:
    rows, notes, goals = [], [], []
    for file, title in (("learned", "learned"), ("held_out", "held out")):
        sums = {level: Score() for level in ("certain", "likely")}
        for layer in layers(file):
            scores = {"certain": score(layer, CERTAIN_FROM), "likely": score(layer, LIKELY_FROM)}
            for level, part in scores.items():
                sums[level].add(part)
            rows.append(
                (layer.name, title, *(_share(scores[level]) for level in sums), str(len(scores["certain"].wrong)))
            )
        rows.append((f"all {title}", title, *(_share(part) for part in sums.values()), str(len(sums["certain"].wrong))))
        if arguments.misses:
            notes += [
                *(f"wrong: {text}" for text in sums["certain"].wrong),
                *(f"missing: {text}" for text in sums["certain"].missing),
            ]
        goals.append(at_least(f"correct cells, {title}", 0.9, sums["certain"].right / sums["certain"].cells))
        goals.append(at_most(f"wrong fields marked certain, {title}", 0, len(sums["certain"].wrong)))
    if arguments.corpus:
        likely = dict(corpus_scores(arguments.corpus, LIKELY_FROM))
        for name, part in corpus_scores(arguments.corpus, CERTAIN_FROM):
            rows.append((name, "corpus", _share(part), _share(likely[name]), str(len(part.wrong))))
            if arguments.misses:
                notes += [*(f"wrong: {text}" for text in part.wrong), *(f"missing: {text}" for text in part.missing)]
    table = Table(
        "Cells placed correctly by a proposed field map",
        ("layer", "", "certain", "with likely", "wrong"),
        rows,
        notes,
        2,
    )
    return Report(NAME, goals, [table], {"rows": rows})


def _share(part: Score) -> str:
    return f"{part.right / max(1, part.cells):.3f}"
