"""Results, parcels and liens, in both ledgers."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

from msgspec.structs import replace

from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import IngestedResult, LeaseEnd, ParcelFilter, ParcelRow, StoreOutcome, TaskState
from parcelpost.search_fields import SearchFields
from tests.gateway.factories import NOON, arrival, parcel, task

HOUR = timedelta(hours=1)
INSERTED, UPDATED, KEPT, DUPLICATE = (
    StoreOutcome.INSERTED,
    StoreOutcome.UPDATED,
    StoreOutcome.KEPT,
    StoreOutcome.DUPLICATE,
)


async def known(ledger: Ledger, parcel_id: str) -> ParcelRow:
    found = await ledger.parcel(parcel(parcel_id).parcel)
    assert found is not None
    return found


async def test_a_result_completes_its_task(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("a")], now)
    await ledger.grant("w1", ["echo"], 1, now, now + HOUR)
    assert await ledger.store([arrival("a")], "w1", now + HOUR) == [INSERTED]
    found = await ledger.task("a")
    assert found is not None
    assert (found.state, found.ended_at, found.leases[0].end) == (TaskState.DONE, now + HOUR, LeaseEnd.DONE)


async def test_a_result_is_kept_whoever_holds_its_task(ledger: Ledger, now: datetime) -> None:
    await ledger.add_tasks([task("taken"), task("failed"), task("none"), task("queued")], now)
    await ledger.grant("w1", ["echo"], 3, now, now + HOUR)
    await ledger.end_task("failed", "w1", error="x", again=False, now=now)
    await ledger.end_task("none", "w1", error="none", again=False, now=now, not_found=True)
    batch = [arrival(name, late=True) for name in ("taken", "failed", "none", "queued", "unknown")]
    assert await ledger.store(batch, "w2", now) == [INSERTED] * 5
    states = [await ledger.task(name) for name in ("taken", "failed", "none", "queued")]
    assert [(row.state, row.error) for row in states if row] == [(TaskState.DONE, None)] * 4
    assert states[0] is not None
    assert states[0].leases[0].end is LeaseEnd.SUPERSEDED
    assert await ledger.task("unknown") is None
    (version,) = await ledger.versions(parcel("P-unknown"), 10)
    assert (version.late, version.worker_id) == (True, "w2")


async def test_the_same_again_is_a_duplicate(ledger: Ledger, now: datetime) -> None:
    first = arrival("a", value=1)
    assert await ledger.store([first, first], "w1", now) == [INSERTED, DUPLICATE]
    assert await ledger.store([first], "w2", now + HOUR) == [DUPLICATE]
    assert (await known(ledger, "P-a")).received_at == now
    assert [version.worker_id for version in await ledger.versions(parcel("P-a"), 10)] == ["w1"]


async def test_a_newer_result_of_the_same_task_takes_its_place(ledger: Ledger, now: datetime) -> None:
    await ledger.store([arrival("a", scraped_at=NOON, value=1)], "w1", now)
    assert await ledger.store([arrival("a", scraped_at=NOON + HOUR, value=2)], "w1", now) == [UPDATED]
    assert await ledger.store([arrival("a", scraped_at=NOON, value=1)], "w1", now) == [DUPLICATE]
    assert [version.data for version in await ledger.versions(parcel("P-a"), 10)] == [b'{"value":2}']
    found = await ledger.record(parcel("P-a"))
    assert found is not None
    assert (found.row, found.data) == (await known(ledger, "P-a"), b'{"value":2}')


async def test_a_page_that_was_read_again_takes_the_place_of_what_was_read_of_it_before(
    ledger: Ledger, now: datetime
) -> None:
    """A better parser's result has another key and the same moment: it is of the same scrape."""
    first = arrival("a", owner_names=["Ann"], liens=[{}, {}])
    again = arrival("a", owner_names=["Ann Lee"], liens=[{"status": "open"}])
    assert await ledger.store([first], "w1", now) == [INSERTED]
    assert await ledger.store([again], "w1", now + HOUR) == [UPDATED]
    assert await ledger.store([again], "w1", now + 2 * HOUR) == [DUPLICATE]
    found = await known(ledger, "P-a")
    assert (found.owner, found.lien_count, found.received_at) == ("Ann Lee", 1, now + HOUR)
    assert [row.lien.status for row in await ledger.liens(_all(), None, 10)] == ["open"]
    assert [version.data for version in await ledger.versions(parcel("P-a"), 10)] == [again.data]


async def test_what_was_read_again_of_an_older_page_stays_in_the_history(ledger: Ledger, now: datetime) -> None:
    old = [arrival("old", "P", NOON - HOUR, owner_names=[name]) for name in ("Ann", "Ann Lee")]
    await ledger.store([old[0], arrival("new", "P", NOON, owner_names=["Bo"])], "w1", now)
    assert await ledger.store([old[1]], "w1", now + HOUR) == [KEPT]
    found = await known(ledger, "P")
    assert (found.owner, found.received_at) == ("Bo", now)
    assert [version.data for version in await ledger.versions(parcel("P"), 10)][1] == old[1].data


async def test_in_one_batch_the_later_of_two_readings_counts(ledger: Ledger, now: datetime) -> None:
    readings = [arrival("a", owner_names=[name]) for name in ("Ann", "Ann Lee")]
    assert await ledger.store(readings, "w1", now) == [DUPLICATE, INSERTED]
    assert (await known(ledger, "P-a")).owner == "Ann Lee"
    others = [arrival("b", "P-c"), arrival("a", "P-a", owner_names=["Al"]), arrival("b", "P-b")]
    assert await ledger.store(others, "w1", now) == [INSERTED, UPDATED, INSERTED]


async def test_an_older_scrape_never_takes_a_newer_ones_place(ledger: Ledger, now: datetime) -> None:
    await ledger.store([arrival("new", "P", NOON, owner_names=["New"], liens=[{}])], "w1", now)
    old = arrival("old", "P", NOON - HOUR, owner_names=["Old"], liens=[{}, {}])
    assert await ledger.store([old], "w1", now + HOUR) == [KEPT]
    found = await known(ledger, "P")
    assert (found.owner, found.sources[0].task_id, found.lien_count, found.received_at) == ("New", "new", 1, now)
    assert [version.task_id for version in await ledger.versions(parcel("P"), 10)] == ["new", "old"]
    assert [version.task_id for version in await ledger.versions(parcel("P"), 1)] == ["new"]


async def test_whatever_the_order_the_newest_scrape_wins(ledger: Ledger, now: datetime) -> None:
    scrapes = [("a", NOON), ("b", NOON + HOUR), ("c", NOON + HOUR), ("d", NOON - HOUR)]
    for number, order in enumerate(permutations(scrapes)):
        batch = [arrival(name, f"P{number}", at, owner_names=[name]) for name, at in order]
        if number % 2:
            await ledger.store(batch, "w1", now)
        else:
            for one in batch:
                await ledger.store([one], "w1", now)
        found = await known(ledger, f"P{number}")
        assert (found.owner, found.sources[0].task_id) == ("c", "c"), "of equals the later task"
        assert len(await ledger.versions(parcel(f"P{number}"), 10)) == 4


async def test_a_batch_answers_each_entry_in_order(ledger: Ledger, now: datetime) -> None:
    await ledger.store([arrival("x", "P2", NOON), arrival("y", "P3", NOON)], "w1", now)
    batch = [
        arrival("z", "P3", NOON + HOUR),
        arrival("a", "P1", NOON - HOUR),
        arrival("b", "P1", NOON),
        arrival("x", "P2", NOON),
        arrival("c", "P2", NOON - HOUR),
        arrival("a", "P1", NOON - 2 * HOUR),
        arrival("a", "other parcel", NOON),
    ]
    assert await ledger.store(batch, "w1", now) == [UPDATED, KEPT, INSERTED, DUPLICATE, KEPT, DUPLICATE, INSERTED]
    assert await ledger.store(batch, "w1", now) == [DUPLICATE] * 7
    assert await ledger.store([], "w1", now) == []
    assert await ledger.counts() == {"parcels": 4, "liens": 0, "results": 7}


async def test_data_is_kept_as_sent(ledger: Ledger, now: datetime) -> None:
    data = b'{ "nul": "\\u0000", "big": 1e400, "n": 12345678901234567, "a": 1, "a": 2, "s": "\xc3\xa9" }'
    plain = arrival("a")
    odd = type(plain)(
        task_id="a", source=plain.source, parcel_id="P-a", data=data, search_fields=SearchFields(), scraped_at=NOON,
        parse_duration_ms=0, idempotency_key="k", raw_sha256="ab" * 32, raw_file="x.html.gz",
    )  # fmt: skip
    await ledger.store([odd], "w1", now)
    (version,) = await ledger.versions(plain.source, 1)
    assert (version.data, version.raw_sha256, version.raw_file) == (data, "ab" * 32, "x.html.gz")


async def test_liens_are_those_of_the_newest_scrape(ledger: Ledger, now: datetime) -> None:
    def liens(*amounts: int) -> list[dict[str, object]]:
        return [{"face_amount": amount, "certificate_number": f"C{amount}"} for amount in amounts]

    await ledger.store([arrival("a", "P", NOON, liens=liens(1, 2, 3))], "w1", now)
    await ledger.store([arrival("b", "P", NOON + HOUR, liens=liens(4))], "w1", now)
    await ledger.store([arrival("c", "P", NOON - HOUR, liens=liens(5, 6))], "w1", now)
    found = await ledger.liens(_all(), None, 10)
    assert [(row.sources[0].position, row.lien.amount_cents, row.lien.certificate_number) for row in found] == [
        (0, 400, "C4")
    ]
    await ledger.store([arrival("b", "P", NOON + 2 * HOUR, liens=liens(7, 8))], "w1", now)
    assert [row.lien.amount_cents for row in await ledger.liens(_all(), None, 10)] == [700, 800]
    nothing_said: list[dict[str, Any]] = [{}, {"liens": None}]
    for unknown in nothing_said:
        await ledger.store([arrival("c", "P", NOON + 3 * HOUR, **unknown)], "w1", now)
        assert len(await ledger.liens(_all(), None, 10)) == 2
    await ledger.store([arrival("d", "P", NOON + 4 * HOUR, liens=[])], "w1", now)
    assert await ledger.liens(_all(), None, 10) == []


async def test_three_platforms_give_one_parcel_and_each_field_is_the_newest_that_has_a_value(
    ledger: Ledger, now: datetime
) -> None:
    spellings = [
        parcel("01-02-000300", "vgsi"),
        parcel("01.02.000300", "mygov_due"),
        parcel("0102000300", "lien_register"),
    ]
    shown: list[dict[str, Any]] = [
        {"owner_names": ["Ann"], "situs_address": "1 Elm St", "tax_due": 5, "delinquent": False},
        {"owner_names": ["Bo"], "tax_due": 0},
        {"liens": [{"certificate_number": "1"}]},
    ]
    for batches in ([[0, 1, 2]], [[2], [1], [0]], [[1, 0], [2]]):
        county = f"county-{len(batches)}-{len(batches[0])}"
        for batch in batches:
            entries = [
                arrival(f"{county}{n}", replace(spellings[n], county=county), NOON + n * HOUR, **shown[n])
                for n in batch
            ]
            assert await ledger.store(entries, "w1", now + HOUR * batch[0]) == [INSERTED] * len(batch)
        (found,) = await ledger.parcels(ParcelFilter(county=county), None, 10)
        assert (found.parcel_id, found.owner, found.situs) == ("0102000300", "Bo", "1 Elm St")
        assert (found.tax_due_cents, found.delinquent, found.lien_count) == (0, False, 1)
        assert found.scraped_at == NOON + 2 * HOUR
        assert [row.source.platform for row in found.sources] == ["lien_register", "mygov_due", "vgsi"]
    assert (await ledger.counts())["parcels"] == 3, "another county is another parcel"


async def test_an_old_scrape_of_one_source_changes_nothing(ledger: Ledger, now: datetime) -> None:
    lien = {"certificate_number": "1", "status": "open"}
    await ledger.store([arrival("a", parcel("P", "vgsi"), NOON, owner_names=["Ann"], liens=[lien])], "w1", now)
    await ledger.store([arrival("b", parcel("P", "qpublic"), NOON - HOUR, situs_address="1 Elm St")], "w1", now)
    before = await ledger.parcels(_all(), None, 10), await ledger.liens(_all(), None, 10)
    old: dict[str, Any] = {
        "owner_names": ["Old"],
        "tax_due": 5,
        "delinquent": True,
        "liens": [{**lien, "tax_year": 2020}, {}],
    }
    for platform in ("vgsi", "qpublic"):
        entry = arrival("old", parcel("P", platform), NOON - 2 * HOUR, **old)
        assert await ledger.store([entry], "w1", now + HOUR) == [KEPT]
        assert await ledger.store([entry], "w1", now + HOUR) == [DUPLICATE]
    assert (await ledger.parcels(_all(), None, 10), await ledger.liens(_all(), None, 10)) == before


async def test_a_lien_of_two_sources_is_one_and_goes_when_both_have_dropped_it(ledger: Ledger, now: datetime) -> None:
    async def store(platform: str, hours: int, *liens: dict[str, object]) -> None:
        entry = arrival(f"{platform}{hours}", parcel("P", platform), NOON + hours * HOUR, liens=list(liens))
        await ledger.store([entry], "w1", now + hours * HOUR)

    async def liens() -> list[tuple[object, ...]]:
        found = await ledger.liens(_all(), None, 10)
        (row,) = await ledger.parcels(_all(), None, 10)
        assert row.lien_count == len(found)
        return [
            (row.lien.certificate_number, row.lien.status, row.lien.amount_cents, len(row.sources)) for row in found
        ]

    await store(
        "due", 0, {"certificate_number": "2024-0007", "certificate_year": 2024, "status": "Open", "face_amount": 5}
    )
    await store("register", 1, {"certificate_number": "7", "certificate_year": 2024, "status": "redeemed"})
    assert await liens() == [("7", "redeemed", 500, 2)]
    await store("register", 2, {"certificate_number": "7", "certificate_year": 2023})
    assert await liens() == [("7", None, None, 1), ("2024-0007", "open", 500, 1)], "another year is another lien"
    await store("due", 3)
    assert await liens() == [("7", None, None, 1)]
    await store("register", 4)
    assert await liens() == []


async def test_what_could_not_be_read_keeps_what_was_known(ledger: Ledger, now: datetime) -> None:
    first: dict[str, Any] = {"owner_names": ["Ann"], "situs_address": "1 Elm St", "tax_due": 5, "delinquent": True}
    liens = [{"certificate_number": "1", "status": "open"}, {"certificate_number": "2", "status": "open"}]
    partial: list[dict[str, Any]] = [
        {"unreadable": ["liens", "owner_names"], "delinquent": False, "situs_address": "1 Elm St"},
        {"completeness": "missing: liens, owner", "liens": [{"certificate_number": "1", "status": "redeemed"}]},
    ]
    await ledger.store([arrival("a", "P", NOON, liens=liens, **first)], "w1", now)
    for hours, record in enumerate(partial, 1):
        await ledger.store([arrival(f"b{hours}", "P", NOON + hours * HOUR, **record)], "w1", now)
    (row,) = await ledger.parcels(_all(), None, 10)
    assert (row.owner, row.situs, row.tax_due_cents, row.delinquent) == ("Ann", "1 Elm St", 500, False)
    assert (row.lien_count, row.sources[0].is_partial) == (2, True)
    found = {one.lien.certificate_number: one.lien.status for one in await ledger.liens(_all(), None, 10)}
    assert found == {"1": "redeemed", "2": "open"}
    assert await ledger.parcels(ParcelFilter(owner="ann"), None, 10), "it is still found by its owner"

    await ledger.store([arrival("c", "P", NOON + 9 * HOUR, liens=liens[:1], owner_names=["Bo"])], "w1", now)
    (row,) = await ledger.parcels(_all(), None, 10)
    assert (row.owner, row.situs, row.tax_due_cents, row.lien_count) == ("Bo", "", None, 1)
    assert not row.sources[0].is_partial


async def test_each_list_adds_its_liens_in_whatever_order_lists_come(ledger: Ledger, now: datetime) -> None:
    """A list says nothing about the liens of a parcel that are not on it, and may show a parcel more than once."""

    def listed(task_id: str, county: str, hours: int, *liens: tuple[str, str]) -> IngestedResult:
        shown = [{"certificate_number": number, "certificate_year": 2024, "status": is_} for number, is_ in liens]
        key = parcel("P", "register", county=county)
        return arrival(task_id, key, NOON + hours * HOUR, record_kind="lien", liens=shown)

    for number, batches in enumerate(([[0, 1, 2, 3]], [[3], [2], [1], [0]], [[2, 0], [3, 1]], [[1], [0, 3], [2]])):
        county = f"county-{number}"
        lists = [
            listed("a1", county, 0, ("7", "open"), ("8", "open")),
            listed("a2", county, 0, ("9", "open")),
            listed("b", county, 2, ("10", "open")),
            listed("c", county, 3, ("7", "redeemed")),
        ]
        for batch in batches:
            assert DUPLICATE not in await ledger.store([lists[place] for place in batch], "w1", now)
        assert await ledger.store(lists, "w1", now) == [DUPLICATE] * 4
        found = await ledger.liens(ParcelFilter(county=county), None, 10)
        assert {row.lien.certificate_number: row.lien.status for row in found} == {
            "7": "redeemed",
            "8": "open",
            "9": "open",
            "10": "open",
        }
        assert {row.sources[0].scraped_at for row in found} == {NOON, NOON + 2 * HOUR, NOON + 3 * HOUR}
        (row,) = await ledger.parcels(ParcelFilter(county=county), None, 10)
        assert (row.lien_count, len(row.sources), row.scraped_at) == (4, 1, NOON + 3 * HOUR)

        lien = {"certificate_number": "2024-8", "certificate_year": 2024, "status": "redeemed"}
        await ledger.store([arrival("due", parcel("P", "due", county=county), NOON + HOUR, liens=[lien])], "w1", now)
        found = await ledger.liens(ParcelFilter(county=county, lien_status="redeemed"), None, 10)
        assert len(found) == 2, "a later list without a lien does not make its last sight younger"


async def test_whatever_comes_in_whatever_order_parcels_and_liens_are_those_of_the_newest_scrapes(
    ledger: Ledger, now: datetime
) -> None:
    chance = random.Random(3)
    newest: dict[tuple[str, str], tuple[datetime, str, dict[str, Any]]] = {}
    for turn in range(40):
        batch = []
        for entry in range(chance.randrange(1, 6)):
            name, platform, at = chance.choice("PQ"), chance.choice("abc"), NOON + chance.randrange(30) * HOUR
            numbers = chance.sample(range(4), chance.randrange(4))
            data: dict[str, Any] = {
                "owner_names": chance.choice([[], ["Ann"], ["Bo"]]),
                "liens": [{"certificate_number": f"{n}", "status": chance.choice(["", "open"])} for n in numbers],
            }
            task_id = f"{turn}-{entry}"
            batch.append(arrival(task_id, parcel(name, platform), at, **data))
            newest[name, platform] = max(newest.get((name, platform), (NOON, "", {})), (at, task_id, data))
        await ledger.store(batch, "w1", now)
        rows = {row.parcel_id: row for row in await ledger.parcels(_all(), None, 10)}
        liens = await ledger.liens(_all(), None, 100)
        for name, row in rows.items():
            by_age = sorted((scrape for (of, _), scrape in newest.items() if of == name), reverse=True)
            owners = [data["owner_names"][0] for _, _, data in by_age if data["owner_names"]]
            assert (row.owner, row.scraped_at) == (owners[0] if owners else "", by_age[0][0])
            shown = [(lien["certificate_number"], lien["status"]) for _, _, data in by_age for lien in data["liens"]]
            statuses = {number: next((is_ for of, is_ in shown if of == number and is_), None) for number, _ in shown}
            assert {one.lien.certificate_number: one.lien.status for one in liens if one.parcel_id == name} == statuses
            assert row.lien_count == len(statuses)


async def test_liens_without_a_number_are_never_merged_and_repeated_ones_stay_apart(
    ledger: Ledger, now: datetime
) -> None:
    liens = [{"status": "open"}, {"case_number": "C-1"}, {"certificate_number": "7"}, {"certificate_number": "7"}]
    for platform in ("due", "register"):
        await ledger.store([arrival(platform, parcel("P", platform), liens=liens)], "w1", now)
    found = await ledger.liens(_all(), None, 10)
    assert sorted(len(row.sources) for row in found) == [1, 1, 2, 2, 2]
    assert (await ledger.counts())["liens"] == 5


async def test_scrapes_within_a_millisecond_are_of_one_moment(ledger: Ledger, now: datetime) -> None:
    """As both databases keep them: one must not call newer what the other calls the same."""
    await ledger.store([arrival("a", scraped_at=NOON + timedelta(microseconds=10))], "w1", now)
    again = arrival("a", scraped_at=NOON + timedelta(microseconds=20))
    assert await ledger.store([again, again], "w1", now) == [DUPLICATE, DUPLICATE]


async def test_a_large_batch_of_everything(ledger: Ledger, now: datetime) -> None:
    chance = random.Random(1)
    batch = [
        arrival(f"t{n}", f"P{chance.randrange(300)}", NOON + timedelta(seconds=chance.randrange(50)), pad="x" * 500)
        for n in range(1_000)
    ]
    answers = await ledger.store(batch, "w1", now)
    assert DUPLICATE not in answers
    assert answers.count(INSERTED) == len({one.source for one in batch})
    assert await ledger.store(batch, "w1", now) == [DUPLICATE] * 1_000


def _all() -> ParcelFilter:
    return ParcelFilter()
