"""`parcelpost reparse`: stored pages, read again by this version's parsers."""

from __future__ import annotations

import asyncio
from pathlib import Path

from parcelpost.model import Json, Page, Result
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Run
from tests.storage.making import NOW, a_task, look

REGISTER = b"Schedule Number,Certificate Number,Tax Year,Principal\n1-1,C1,2024,10.50\n1-1,C2,2025,11\n2-2,C3,2025,7\n"
RECORDS = "SELECT parcel_id, data FROM results WHERE platform = 'lien_register' ORDER BY parcel_id"


def fill(store: Path, data: dict[str, Json], body: bytes) -> None:
    """A list that an older parser has read."""

    async def write() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_task(a_task("list", platform="lien_register", parcel_id=""))
            (claim,) = await lpm.claim(platforms=["lien_register"])
            page = Page(body=body, content_type="text/csv")
            await lpm.save_result(claim, Result(data=data, page=page, scraped_at=NOW, parcel_id="1-1"))

    asyncio.run(write())


def test_a_page_without_a_record_is_listed_and_its_record_kept(store: Path, run: Run) -> None:
    fill(store, {"owner": "Ann"}, b"no,register\n1,2\n")
    before = look(store, RECORDS)
    ran = run("reparse", "--platform", "lien_register", "--store", store)
    assert ran.code == 0
    assert "1 page without a record now" in ran.out
    assert "it has no column of parcels and certificates" in ran.out
    assert look(store, RECORDS) == before


def test_records_are_brought_up_to_date_once(store: Path, run: Run) -> None:
    fill(store, {"owner": "Ann"}, REGISTER)
    wished = run("reparse", "--dry-run", "--json", "--store", store).document
    assert (wished["changed"], wished["added"]) == (1, 1)
    assert len(look(store, RECORDS)) == 1
    ran = run("reparse", "--since", "2020-01-01", "--store", store)
    assert (ran.code, ran.out) == (0, "1 page read: 1 record changed, 1 added, 0 the same.\n")
    (first, data), (second, _) = look(store, RECORDS)
    assert (first, second) == ("1-1", "2-2")
    assert '"certificate_number":"C2"' in data
    again = run("reparse", "--since", "2020-01-01", "--json", "--store", store).document
    assert (again["changed"], again["added"], again["unchanged"]) == (0, 0, 2)


def test_filters_that_fit_nothing_read_nothing(store: Path, run: Run) -> None:
    fill(store, {"owner": "Ann"}, REGISTER)
    assert run("reparse", "--county", "elsewhere", "--json", "--store", store).document["pages"] == 0
    assert run("reparse", "--since", "2999-01-01", "--json", "--store", store).document["pages"] == 0
    assert run("reparse", "--since", "yesterday", "--store", store).code == 2
