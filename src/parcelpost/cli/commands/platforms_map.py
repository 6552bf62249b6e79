"""`parcelpost platforms map`: proposes a field map for a layer or table."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parcelpost.cli.output import Cell, confirm, examples, fields, print_json, print_lines, printable, table
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, Yes, load_settings
from parcelpost.errors import InvalidInput, ParcelpostError

if TYPE_CHECKING:
    from parcelpost.scrapers.layers import Layer
    from parcelpost.scrapers.records.field_map_proposal import Proposal, Proposed
    from parcelpost.scrapers.records.field_maps import FieldMap
    from parcelpost.settings import Settings


MAP_EXAMPLES = examples(
    "parcelpost platforms map https://gis.example.org/arcgis/rest/services/Parcels/MapServer/0",
    "parcelpost platforms map https://data.example.org/resource/abcd-1234.json --output maps/rivers.toml",
    "parcelpost platforms map parcels.csv --field parcel_id=TAXLOT --likely --yes",
    "parcelpost platforms map response.json --json",
)

_SHOWN_RECORDS = 3
_SHOWN_CHARS = 32
_SIMPLE_NAME = re.compile(r"[A-Za-z0-9_.: /()#-]{1,100}", re.ASCII)


def map_layer(
    source: Annotated[
        str,
        typer.Argument(help="URL of a layer or table, or a saved response, GeoJSON or CSV.", metavar="URL|FILE"),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="File to write. [default: NAME.toml in fetch.field_maps_folder]"),
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="FIELD=COLUMN", help="Column to use for a field. Repeatable."),
    ] = None,
    likely: Annotated[bool, typer.Option("--likely", help="Also use likely columns. Check them first.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Propose a field map for an ArcGIS layer, a Socrata table, GeoJSON or CSV, and write it.

    Shows which field each column fills, how certain that is, and the first records. Asks before it writes the map.
    Columns that are only likely become comments. Requests respect the same limits as scraping.
    """
    import asyncio

    from parcelpost.cli.components import known_sites
    from parcelpost.scrapers.records.field_map_proposal import CERTAIN_FROM, LIKELY_FROM, propose
    from parcelpost.scrapers.records.field_maps import build_field_map, plain_row

    settings = load_settings(config, set_)
    layer = asyncio.run(_layer(source, settings))
    rows = [plain_row(row) for row in layer.rows]
    proposal = _with_own(propose(layer.columns, rows), field or [], layer)
    level = LIKELY_FROM if likely else CERTAIN_FROM
    given = proposal.field_map(level)
    path = output or Path(settings.fetch.field_maps_folder or ".", f"{_name(source)}.toml")
    is_complete = "parcel_id" in given["fields"]
    field_map = build_field_map(path.stem, given, str(path)) if is_complete else None
    matching = known_sites(settings).field_maps.matching(rows)
    records = _records(field_map, rows)
    if as_json:
        written = _write(path, source, proposal, level) if yes and field_map else None
        print_json(_document(source, layer, proposal, given, matching, records) | {"written": written})
        return
    print_lines(_columns(layer, proposal, level))
    print_lines(_remarks(proposal, level, matching, has_rows=bool(rows)))
    print_lines(_shown(records))
    if field_map is None:
        raise ParcelpostError(
            "cannot tell which column has the parcel number, so no field map was written",
            hint="name it with --field parcel_id=COLUMN, or accept likely columns with --likely",
        )
    if not yes:
        confirm(f"Write this map to {printable(str(path))}?")
    _write(path, source, proposal, level)
    print(printable(f"Written: {path}."))
    folder = settings.fetch.field_maps_folder
    if not folder or path.parent.resolve() != Path(folder).resolve():
        print(printable(f"To use it, set fetch.field_maps_folder to {path.parent.resolve()}."))


async def _layer(source: str, settings: Settings) -> Layer:
    import asyncio

    from parcelpost.cli.commands.parse import read_page
    from parcelpost.cli.components import fetch_options
    from parcelpost.cli.progress import Meter
    from parcelpost.model import GiveUp
    from parcelpost.scrapers.fetch.client import PageFetcher
    from parcelpost.scrapers.fetch.errors import FetchFailed
    from parcelpost.scrapers.layers import fetch_layer, read_layer

    async with Meter("reading the layer"):
        if not source.lower().startswith(("http://", "https://")):
            page = read_page(source)
            if isinstance(page, GiveUp):
                raise InvalidInput(f"{source}: {page.reason}")
            if len(page.body) > settings.fetch.max_page_bytes:
                raise InvalidInput(
                    f"{source} has {len(page.body):,} bytes, more than fetch.max_page_bytes",
                    hint="a sample of the rows is enough",
                )
            return await asyncio.to_thread(read_layer, page)
        async with PageFetcher.open(fetch_options(settings, os.environ)) as fetcher:
            try:
                return await fetch_layer(source, fetcher.session())
            except FetchFailed as error:
                raise ParcelpostError(f"cannot fetch the layer: {error}") from None


def _with_own(proposal: Proposal, own: Sequence[str], layer: Layer) -> Proposal:
    """Places the columns of --field. Raises InvalidInput."""
    from msgspec import structs

    from parcelpost.scrapers.records.field_map_proposal import placed_manually

    names = [column.name for column in layer.columns]
    for text in own:
        name, _, column = text.partition("=")
        if column not in names:
            raise InvalidInput(
                f"--field {text!r:.80}: the layer has no column {column!r:.60}", hint=", ".join(names)[:600]
            )
        placed = placed_manually(name, column)
        if placed is None:
            raise InvalidInput(f"--field {text!r:.80}: {name!r:.60} is not a field that can be mapped")
        others = {
            known: proposed
            for known, proposed in proposal.fields.items()
            if column not in proposed.columns or known == name
        }
        proposal = structs.replace(proposal, fields={**others, name: placed})
    return proposal


def _records(field_map: FieldMap | None, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    if field_map is None:
        return []
    records = (record for row in rows if (record := field_map.record(row)) is not None)
    return [record.as_json() for record, _ in zip(records, range(_SHOWN_RECORDS), strict=False)]


def _columns(layer: Layer, proposal: Proposal, level: float) -> list[str]:
    """A line for each column: where it belongs, how certain that is, and an example."""
    from parcelpost.scrapers.records.column_values import is_empty

    placed = {column: (name, proposed) for name, proposed in proposal.fields.items() for column in proposed.columns}
    reasons = {proposed.column: proposed.reason for proposed in proposal.placements}
    body: list[tuple[Cell, ...]] = []
    for column in layer.columns:
        name, proposed = placed.get(column.name, ("", None))
        example = next((row[column.name] for row in layer.rows if not is_empty(row.get(column.name))), None)
        reason = (proposed.reason if proposed else "") or reasons.get(column.name, "")
        body.append(
            (
                _cut(column.name),
                name or None,
                _confidence(proposed),
                _used(proposed, level),
                _cut(example),
                reason or None,
            )
        )
    return table(("column", "field", "confidence", "used", "example", "reason"), body)


def _confidence(proposed: Proposed | None) -> str | None:
    return None if proposed is None else f"{proposed.confidence:.2f}"


def _used(proposed: Proposed | None, level: float) -> str | None:
    return None if proposed is None else "yes" if proposed.confidence >= level else "no"


def _cut(value: Any) -> str | None:
    if value is None:
        return None
    text = str(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 3]}..."


def _remarks(proposal: Proposal, level: float, matching: FieldMap | None, *, has_rows: bool) -> Iterator[str]:
    if not has_rows:
        yield "There are no rows to check the columns against."
    if matching is not None:
        yield printable(f"The field map {matching.name} already matches these columns.")
    for text in proposal.missing(level):
        yield printable(f"Not certain: {text}.")


def _shown(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    hidden = {"parcel_id_norm", "record_kind", "field_map", "sales"}
    for number, record in enumerate(records, 1):
        yield ""
        yield f"Record {number}"
        known = {name: value for name, value in record.items() if value not in (None, [], "") and name not in hidden}
        texts = {name: "; ".join(value) if isinstance(value, list) else str(value) for name, value in known.items()}
        yield from (f"  {line}" for line in fields((name, printable(text)[:200]) for name, text in texts.items()))


def _document(
    source: str,
    layer: Layer,
    proposal: Proposal,
    given: Mapping[str, Any],
    matching: FieldMap | None,
    records: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    from parcelpost.scrapers.records.field_map_proposal import CERTAIN_FROM

    described = {column.name: column for column in layer.columns}
    placed = {column: (name, proposed) for name, proposed in proposal.fields.items() for column in proposed.columns}
    columns = []
    for placement in proposal.placements:
        name, proposed = placed.get(placement.column, (None, None))
        columns.append(
            {
                "column": placement.column,
                "alias": described[placement.column].alias or None,
                "kind": described[placement.column].kind or None,
                "field": name,
                "conversion": proposed.conversion if proposed else None,
                "confidence": round(proposed.confidence, 2) if proposed else 0,
                "certain": proposed is not None and proposed.confidence >= CERTAIN_FROM,
                "reason": (proposed.reason if proposed else "") or placement.reason or None,
            }
        )
    return {
        "source": source,
        "rows": len(layer.rows),
        "matching_field_map": matching.name if matching else None,
        "columns": columns,
        "missing": proposal.missing(),
        "field_map": given,
        "records": records,
    }


def _write(path: Path, source: str, proposal: Proposal, level: float) -> str:
    """Raises ParcelpostError; an existing file is never replaced."""
    text = "\n".join(_toml(source, proposal, level)) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ParcelpostError(f"{path} already exists", hint="delete it, or name another file with --output") from None
    except OSError as error:
        raise ParcelpostError(f"cannot write {path}: {error.strerror}") from None
    return str(path)


def _toml(source: str, proposal: Proposal, level: float) -> Iterator[str]:
    from parcelpost.scrapers.records.field_map_proposal import LIKELY_FROM

    given = proposal.field_map(level)
    yield f"# Proposed for {printable(source)[:200]}"
    yield "# The numbers say how certain each line is, from 0 to 1."
    yield f"has = [{', '.join(map(_quoted, given['has']))}]"
    yield ""
    yield "[fields]"
    yield from (
        _toml_line(name, proposed) for name, proposed in proposal.fields.items() if proposed.confidence >= level
    )
    others = {
        name: proposed for name, proposed in proposal.fields.items() if LIKELY_FROM <= proposed.confidence < level
    }
    if others:
        yield ""
        yield "# Likely but not certain: check each line, then remove its leading #."
        yield from (f"# {_toml_line(name, proposed)}" for name, proposed in others.items())


def _toml_line(name: str, proposed: Proposed) -> str:
    remark = f"{proposed.confidence:.2f} {printable(proposed.reason)}".strip()
    return f"{name} = {{ {proposed.conversion} = [{', '.join(map(_quoted, proposed.columns))}] }}  # {remark}"


def _quoted(column: str) -> str:
    from parcelpost.scrapers.tabular import column_name

    return f'"{column if _SIMPLE_NAME.fullmatch(column) else column_name(column)}"'


def _name(source: str) -> str:
    """A name for the map: of a file its own, of a layer its host and service."""
    if "://" not in source:
        words = Path(source).name.partition(".")[0]
    else:
        parts = urlsplit(source)
        path = [
            part
            for part in parts.path.split("/")
            if part and not re.fullmatch(r"\d+|query|MapServer|FeatureServer", part)
        ]
        words = f"{(parts.hostname or '').split('.')[-2:][0]}_{path[-1].partition('.')[0] if path else 'layer'}"
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")[:60] or "layer"
