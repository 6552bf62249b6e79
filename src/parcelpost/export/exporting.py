"""One export: pages of results in, files out. No more than a page is held at a time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import ParcelpostError
from parcelpost.export import places
from parcelpost.export.opening import Options, open_sink
from parcelpost.export.places import Place
from parcelpost.export.planning import Plan
from parcelpost.export.sink import Sink
from parcelpost.export.tables import items, read
from parcelpost.model import OutboxEntry

Pages = AsyncIterator[Sequence[OutboxEntry]]


class Exported(Struct, frozen=True, kw_only=True):
    files: list[Path]
    """Empty where it went to stdout."""
    rows: dict[str, int]
    """By table."""
    notes: list[str]


async def export(
    pages: Pages,
    what: Plan,
    options: Options,
    *,
    replace: bool,
    progress: Callable[[int], None],
    is_new_only: bool = False,
) -> Exported:
    """Each file is there when it is whole; until then, and if this fails or is cancelled, what was there before is.

    Raises ParcelpostError.
    """
    try:
        with places.opened(what.folder, list(what.files), replace=replace) as place:
            sink = open_sink(what, place, options)
            try:
                rows = await _write(pages, what, sink, place, progress)
            except BaseException:
                sink.abandon()
                raise
            notes = [*sink.notes, *_left_out(rows, what)]
            return Exported(files=place.put(), rows={one.name: rows[one.name] for one in what.tables}, notes=notes)
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        if what.is_stdout:
            again = "; the next export with --new has the same again" if is_new_only else ""
            hint = f"see whether there is room where it goes{again}"
            raise ParcelpostError(f"standard output could not be written: {why}", hint=hint) from error
        raise ParcelpostError(
            f"{error.filename or what.folder} could not be written: {why}",
            hint="see whether there is room and whether the folder may be written; what was there before is as it was",
        ) from error


async def _write(pages: Pages, what: Plan, sink: Sink, place: Place, progress: Callable[[int], None]) -> dict[str, int]:
    """By table how many, liens that are in none among them."""
    rows = Counter[str]()

    def write(page: Sequence[OutboxEntry]) -> None:
        parcels = [read(entry) for entry in page]
        for table in what.tables:
            rows[table.name] += sink.write(table, parcels)
        if what.lacks_liens:
            rows["liens"] += sum(len(items(parcel, "liens")) for parcel in parcels)

    done = 0
    async for page in pages:
        await _in_thread(partial(write, page), place)
        done += len(page)
        progress(done)
    await _in_thread(sink.close, place)
    return rows


def _left_out(rows: Mapping[str, int], what: Plan) -> list[str]:
    if not what.lacks_liens or not rows["liens"]:
        return []
    return [f"liens, which are in no file: {rows['liens']:,}; a folder, .xlsx or .gpkg takes both tables"]


async def _in_thread(work: Callable[[], None], place: Place) -> None:
    """Progress is shown meanwhile. Cancelled, it ends the work first: nothing is written behind our back."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        place.stop()
        await asyncio.gather(running, return_exceptions=True)
        raise
