"""`parcelpost store upstream`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import fields, print_json, print_lines, printable
from parcelpost.errors import InvalidInput, StoreInUse

EXAMPLES = """
Examples:

\b
  parcelpost store upstream
  parcelpost store upstream --worker-id hartford-2
"""


class KnownAs(Struct, frozen=True, kw_only=True):
    """Who the store is upstream."""

    worker_id: str | None
    """None: no worker has run yet."""


def upstream(
    worker_id: Annotated[
        str | None,
        typer.Option("--worker-id", metavar="ID", help="Be this worker upstream, whatever the store still holds."),
    ] = None,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show which worker this store is upstream, or change that.

    Every process on the store collects, delivers and beats under one worker id. Tasks collected under another id may
    stay in that one's list at the gateway: change it only if the gateway no longer knows the old one.
    """
    from parcelpost.cli import running

    found = running.run(store, _known(store) if worker_id is None else _changed(store, worker_id))
    if as_json:
        print_json(found)
    else:
        print_lines(fields([("worker id", printable(found.worker_id or "none yet: the first worker decides"))]))


async def _known(store: Path) -> KnownAs:
    from parcelpost.cli.running import CLOCK, looking
    from parcelpost.storage.state import WorkerState
    from parcelpost.worker.identity import WORKER_ID_STATE, WorkerId

    async with looking(store) as database:
        kept = await WorkerState(database, CLOCK).get(WORKER_ID_STATE, WorkerId)
    return KnownAs(worker_id=kept.worker_id if kept else None)


async def _changed(store: Path, worker_id: str) -> KnownAs:
    from parcelpost.cli.running import changing
    from parcelpost.settings.checks import is_worker_id
    from parcelpost.worker.identity import WORKER_ID_STATE, WorkerId

    if not worker_id or not is_worker_id(worker_id):
        raise InvalidInput("a worker id is at most 200 visible ASCII characters without spaces")
    async with changing(store) as lpm:
        if peers := lpm.peers():
            raise StoreInUse(f"{store} is open in {', '.join(peers)}")
        await lpm.state.put(WORKER_ID_STATE, WorkerId(worker_id))
    return await _known(store)
