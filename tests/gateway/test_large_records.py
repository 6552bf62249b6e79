"""Records of any size: what the gateway holds of them at once is bounded, whoever asks for how many."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest

from parcelpost.export import Format
from parcelpost.gateway.context import Context
from parcelpost.gateway.downloads import parcel_download
from parcelpost.gateway.ledger.queries import PAGE_CHARS
from parcelpost.gateway.models import ParcelFilter
from tests.gateway.conftest import fresh_schema
from tests.gateway.factories import NOON, arrival, parcel
from tests.gateway.stage import a_client, some_context

MIB = 1024 * 1024
LARGE = PAGE_CHARS // 2 + 1
"""Characters of a record. The second of a page fills it."""
PARCELS = 16
ALL = [f"P{number:02}" for number in range(PARCELS)]


pytestmark = pytest.mark.xdist_group("large records")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database that every test only reads: parcels of 4 MiB each, and one with as many scrapes of that size."""
    folder = tmp_path_factory.mktemp("large")
    database = str(folder / "gateway.db")
    if request.param == "postgres":
        database = asyncio.run(fresh_schema(request.getfixturevalue("postgres_server")))
    asyncio.run(_fill(folder, database))
    return database


async def _fill(folder: Path, database: str) -> None:
    async with some_context(folder, database=database) as context:
        for number, name in enumerate(ALL):
            at = NOON + timedelta(hours=number)
            await context.ledger.store([arrival(name, name, pad="x" * LARGE)], "w1", NOON)
            await context.ledger.store([arrival(name, "often", at, pad=f"{number:02}" * (LARGE // 2))], "w1", NOON)


@pytest.fixture
async def context(filled: str, tmp_path: Path) -> AsyncIterator[Context]:
    async with some_context(tmp_path, database=filled) as context:
        yield context


@pytest.fixture
async def client(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_client(context) as client:
        yield client


@contextmanager
def at_most(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit


async def test_a_page_of_records_ends_where_they_are_enough(context: Context) -> None:
    pages = [await context.ledger.records(ParcelFilter(), None, 100)]
    while pages[-1]:
        pages.append(await context.ledger.records(ParcelFilter(), pages[-1][-1].source.source, 100))
    assert [len(page) for page in pages] == [2] * (PARCELS // 2) + [1, 0]
    assert [one.row.parcel_id for page in pages for one in page] == ["often", *ALL]
    assert [len(page) for page in (await context.ledger.records(ParcelFilter(), None, 1),)] == [1]


async def test_a_page_of_scrapes_ends_there_too(context: Context) -> None:
    versions = await context.ledger.versions(parcel("often"), 100)
    assert [version.task_id for version in versions] == ALL[:-3:-1]
    last = versions[-1].scraped_at, versions[-1].task_id
    assert [version.task_id for version in await context.ledger.versions(parcel("often"), 1, last)] == [ALL[-3]]


async def test_a_list_without_records_does_not_read_them(client: httpx2.AsyncClient) -> None:
    with at_most(4 * MIB):
        for path in ("/v1/parcels?limit=1000", "/v1/parcels/latest", "/v1/liens"):
            assert (await client.get(path)).status_code == 200


async def test_a_list_with_records_goes_on_where_its_page_ended(client: httpx2.AsyncClient) -> None:
    seen: list[str] = []
    query = {"records": "true", "limit": "1000"}
    with at_most(80 * MIB):
        while True:
            page = (await client.get("/v1/parcels", params=query)).json()
            seen += [one["parcel_id"] for one in page["parcels"]]
            if page["next"] is None:
                break
            query["cursor"] = page["next"]
    assert seen == ["often", *ALL]


@pytest.mark.parametrize(("filled", "form"), [("sqlite", "csv"), ("postgres", "jsonl")], indirect=["filled"])
async def test_an_export_holds_a_page_at_a_time(context: Context, form: str) -> None:
    sent = 0
    with at_most(120 * MIB):
        async for page in (await parcel_download(context, ParcelFilter(), Format(form))).body_iterator:
            sent += len(page)
    assert sent > PARCELS * LARGE


async def test_a_history_of_large_records_is_told_as_far_as_it_goes(client: httpx2.AsyncClient) -> None:
    with at_most(120 * MIB):
        answer = await client.get("/v1/parcels/FL/union/often")
    (told,) = json.loads(answer.content)["sources"]
    assert told["more_history"]
    assert [scrape["task_id"] for scrape in told["history"]] == ALL[-1:]
    assert told["history"][0]["changes"][0]["field"] == "pad"
