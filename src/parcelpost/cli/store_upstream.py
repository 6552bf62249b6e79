"""`parcelpost store upstream`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import fields, print_json, print_lines, printable
from parcelpost.errors import InvalidInput, StoreInUse

if TYPE_CHECKING:
    from parcelpost.worker.identity import MetGateway

EXAMPLES = """
Examples:

\b
  parcelpost store upstream
  parcelpost store upstream --worker-id hartford-2
  parcelpost store upstream --accept-gateway
"""


class KnownAs(Struct, frozen=True, kw_only=True):
    """Who the store is upstream."""

    worker_id: str | None
    """None: no worker has run yet."""
    gateways: list[MetGateway]
    """By address: which one was met there first."""


def upstream(
    worker_id: Annotated[
        str | None,
        typer.Option("--worker-id", metavar="ID", help="Be this worker upstream, whatever the store still holds."),
    ] = None,
    accept_gateway: Annotated[
        bool,
        typer.Option("--accept-gateway", help="Work with the gateway that answers next, though it is another."),
    ] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show which worker this store is upstream, and which gateways it works with, or change that.

    Every process on the store collects, delivers and beats under one worker id. Tasks collected under another id may
    stay in that one's list at the gateway: change it only if the gateway no longer knows the old one. Another gateway
    than the one that the store met first at an address gets nothing, until it is accepted.
    """
    from parcelpost.cli import running

    if worker_id is None and not accept_gateway:
        found = running.run(store, _known(store))
    else:
        found = running.run(store, _changed(store, worker_id, accept_gateway=accept_gateway))
    if as_json:
        print_json(found)
    else:
        print_lines(fields(_lines(found)))


def _lines(found: KnownAs) -> Iterator[tuple[str, str]]:
    from parcelpost.protocol.payloads import ledger_name

    yield "worker id", printable(found.worker_id or "none yet: the first worker decides")
    for one in found.gateways:
        yield "gateway", printable(f"{one.address}, {ledger_name(one.ledger_id)}, since {one.since:%Y-%m-%d %H:%M} UTC")
    if not found.gateways:
        yield "gateway", "none met yet: the one that answers next is taken"


async def _known(store: Path) -> KnownAs:
    from parcelpost.cli.running import CLOCK, looking
    from parcelpost.storage.state import WorkerState
    from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId

    async with looking(store) as database:
        state = WorkerState(database, CLOCK)
        kept = await state.get(WORKER_ID_STATE, WorkerId)
        gateways = await state.list(GATEWAY_STATE, MetGateway)
    return KnownAs(worker_id=kept.worker_id if kept else None, gateways=gateways)


async def _changed(store: Path, worker_id: str | None, *, accept_gateway: bool) -> KnownAs:
    from parcelpost.cli.running import changing
    from parcelpost.settings.validation import is_worker_id
    from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, WorkerId

    if worker_id is not None and not (worker_id and is_worker_id(worker_id)):
        raise InvalidInput("a worker id is at most 200 visible ASCII characters without spaces")
    async with changing(store) as lpm:
        if worker_id is not None:
            if peers := lpm.peers():
                raise StoreInUse(f"{store} is open in {', '.join(peers)}")
            await lpm.state.put(WORKER_ID_STATE, WorkerId(worker_id))
        if accept_gateway:
            await lpm.state.delete_prefix(GATEWAY_STATE)
    return await _known(store)
