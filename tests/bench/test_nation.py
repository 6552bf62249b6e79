"""The benchmark of large ledgers: a filled ledger is one that the gateway could have filled."""

from __future__ import annotations

from bench.nation import Operations, fill
from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.ledger.search_schema import PARCELS
from parcelpost.gateway.models import SearchFilter, SearchOrder
from tests.gateway.servers import postgres

SIZE = 2_000


async def test_a_small_ledger_is_filled_and_measured() -> None:
    with postgres() as server:
        database = server.get_uri()
        assert await fill(database, SIZE) > 0
        async with open_ledger(database, 5, SystemClock()) as ledger:
            found = await ledger.search(PARCELS, SearchFilter(), SearchOrder("parcel_id"), SIZE - 10, 50)
            assert (found.total, len(found.rows)) == (SIZE, 10)
            last = found.rows[-1]
            assert (last.parcel_id, last.number) == (f"{SIZE:010}", SIZE)
            by_name = await ledger.search(PARCELS, SearchFilter(text=last.owner or ""), SearchOrder("owner"), 0, 50)
            assert last in by_name.rows
            counted = await ledger.search_facets(PARCELS, SearchFilter(delinquent=True))
            assert counted.total == SIZE // 20
            for operation in Operations(ledger, SIZE).next_round().values():
                assert await operation()
