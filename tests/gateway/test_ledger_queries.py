"""What people look for, in both ledgers."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec
import pytest

from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ParcelFilter
from tests.gateway.factories import NOON, arrival, parcel

HOUR = timedelta(hours=1)


@pytest.fixture
async def filled(ledger: Ledger, now: datetime) -> Ledger:
    await ledger.store(
        [
            arrival(
                "1",
                parcel("A-1", "beacon", "FL", "union"),
                owner_names=["SMITH, Jane", "Ödön 100%"],
                situs_address="1 Main St",
                delinquent=True,
                liens=[{"status": "Sold", "face_amount": "10.50"}, {"status": "redeemed", "face_amount": 500}],
            ),
            arrival("2", parcel("A-2", "beacon", "FL", "clay"), owner_names=["Main_Street LLC"], delinquent=False),
        ],
        "w1",
        now,
    )
    await ledger.store(
        [arrival("3", parcel("A-3", "qpublic", "GA", "union"), liens=[{"status": "sold", "opening_bid": 5}])],
        "w1",
        now + HOUR,
    )
    return ledger


async def test_every_condition_must_hold(subtests: pytest.Subtests, filled: Ledger) -> None:
    for wanted, expected in [
        (ParcelFilter(), "231"),
        (ParcelFilter(platform="beacon"), "21"),
        (ParcelFilter(state="FL", county="union"), "1"),
        (ParcelFilter(owner="jane"), "1"),
        (ParcelFilter(owner="ÖDÖN 100%"), "1"),
        (ParcelFilter(owner="A-1"), ""),
        (ParcelFilter(owner="1 main"), ""),
        (ParcelFilter(search="MAIN"), "21"),
        (ParcelFilter(search="a-"), "213"),
        (ParcelFilter(search="n_s"), "2"),
        (ParcelFilter(search="%"), "1"),
        (ParcelFilter(search="!"), ""),
        (ParcelFilter(search="a-1\nsmith"), ""),
        (ParcelFilter(search="x\0"), ""),
        (ParcelFilter(county="\0"), ""),
        (ParcelFilter(state="\ud800"), ""),
        (ParcelFilter(delinquent=True), "1"),
        (ParcelFilter(delinquent=False), "2"),
        (ParcelFilter(lien_status="SOLD"), "13"),
        (ParcelFilter(lien_status="sold", min_lien_cents=600), "1"),
        (ParcelFilter(lien_status="sold", max_lien_cents=600), "3"),
        (ParcelFilter(lien_status="sold", min_lien_cents=2_000), ""),
        (ParcelFilter(min_lien_cents=50_000, max_lien_cents=50_000), "1"),
        (ParcelFilter(changed_since=NOON + HOUR), "3"),
        (ParcelFilter(platform="' OR '1'='1"), ""),
    ]:
        with subtests.test(wanted=wanted, expected=expected):
            found = await filled.parcels(wanted, None, 10)
            assert sorted(row.sources[0].task_id for row in found) == sorted(expected)
            latest = await filled.latest_parcels(wanted, 10)
            assert sorted(row.sources[0].task_id for row in latest) == sorted(expected)


async def test_parcels_are_paged_in_the_order_of_their_keys(filled: Ledger) -> None:
    found = [await filled.parcels(ParcelFilter(), None, 1)]
    while found[-1]:
        found.append(await filled.parcels(ParcelFilter(), found[-1][-1].parcel, 1))
    assert [row.sources[0].task_id for page in found for row in page] == ["2", "1", "3"]


async def test_the_latest_come_first(filled: Ledger) -> None:
    assert [row.sources[0].task_id for row in await filled.latest_parcels(ParcelFilter(), 2)] == ["3", "1"]
    liens = [(row.parcel_id, row.sources[0].position) for row in await filled.latest_liens(ParcelFilter(), 10)]
    assert liens == [("A-3", 0), ("A-1", 0), ("A-1", 1)]
    (redeemed,) = await filled.latest_liens(ParcelFilter(lien_status="redeemed"), 10)
    assert (redeemed.parcel_id, redeemed.sources[0].position) == ("A-1", 1)


async def test_a_page_is_known_by_the_parcel_whose_scrape_names_it(ledger: Ledger, now: datetime) -> None:
    scrape = msgspec.structs.replace(arrival("1", "A"), raw_sha256="ab" * 32)
    await ledger.store([scrape, arrival("2", "B")], "w1", now)
    assert await ledger.has_page(parcel("A").parcel, "ab" * 32)
    assert not await ledger.has_page(parcel("B").parcel, "ab" * 32)
    assert not await ledger.has_page(parcel("A").parcel, "cd" * 32)


async def test_liens_are_paged_and_have_themselves_what_is_wanted(filled: Ledger) -> None:
    first, second = await filled.liens(ParcelFilter(), None, 2)
    assert (first.sources[0].position, first.lien.status, first.owner) == (0, "sold", "SMITH, Jane; Ödön 100%")
    (third,) = await filled.liens(ParcelFilter(), (second.parcel, second.lien.key), 10)
    assert third.parcel_id == "A-3"
    assert await filled.liens(ParcelFilter(), (third.parcel, third.lien.key), 10) == []
    sold = await filled.liens(ParcelFilter(lien_status="sold"), None, 10)
    assert [(row.parcel_id, row.lien.amount_cents) for row in sold] == [("A-1", 1_050), ("A-3", 500)]


async def test_keys_sort_by_their_bytes(ledger: Ledger, now: datetime) -> None:
    names = ["B", "A", "É", "1", "10", "2", "B1", "BA"]
    await ledger.store([arrival(name, name) for name in names], "w1", now)
    found = await ledger.parcels(ParcelFilter(), None, 20)
    assert [row.parcel_id for row in found] == sorted(names)


async def test_a_parcel_that_is_not_here_is_none(ledger: Ledger) -> None:
    assert await ledger.parcel(parcel("x").parcel) is None
    assert await ledger.parcel(parcel("x").parcel) is None
    assert await ledger.versions(parcel("x"), 10) == []
