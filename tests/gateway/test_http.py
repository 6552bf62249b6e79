"""The workers' contract, asked of the application itself on both ledgers."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import zstandard

from parcelpost.clock import ManualClock, iso
from parcelpost.events import Event, RequestDeferred
from parcelpost.gateway.context import Context
from parcelpost.gateway.models import ParcelFilter
from parcelpost.model import PausedSite
from parcelpost.protocol.payloads import Completion
from parcelpost.storage.results import child_id
from tests.gateway.stage import PAGE, a_client, a_form, a_result, a_task, add_tasks, some_context

one_ledger = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For what happens before a ledger is asked, or without one."""


@pytest.fixture
async def context(database: str, tmp_path: Path) -> AsyncIterator[Context]:
    async with some_context(tmp_path, database=database) as context:
        yield context


@pytest.fixture
async def client(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_client(context) as client:
        yield client


# Work


async def test_a_task_is_handed_out_under_a_lease(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task(url="https://county.example/1"))
    answer = (await client.get("/internal/work?capacity=5&platforms=echo&platforms=other")).json()
    (task,) = answer["tasks"]
    assert answer["retry_after"] == 5
    assert task["task_id"] == "t1"
    assert task["target"] == {
        "parcel_id": "parcel-t1",
        "state": "CT",
        "county": "hartford",
        "url": "https://county.example/1",
    }
    assert (task["attempt"], task["lease_expires_at"]) == (1, "2026-01-01T00:15:00Z")
    assert (await client.get("/internal/work?capacity=5&platforms=echo")).json() == {"tasks": [], "retry_after": 30}


async def test_capacity_is_taken_as_one_to_a_hundred(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, *(a_task(f"t{number}") for number in range(220)))
    for asked, given in (("0", 1), ("-5", 1), ("3", 3), ("100000000", 100), ("9" * 30, 100)):
        answer = await client.get(f"/internal/work?capacity={asked}&platforms=echo")
        assert len(answer.json()["tasks"]) == given, asked


@one_ledger
async def test_a_wish_that_makes_no_sense_is_refused(subtests: pytest.Subtests, client: httpx2.AsyncClient) -> None:
    for query in [
        "capacity=1",
        "capacity=1&platforms=",
        "capacity=x&platforms=echo",
        "platforms=%00",
        f"platforms={'x' * 600}",
    ]:
        with subtests.test(query=query):
            answer = await client.get(f"/internal/work?{query}")
            assert answer.status_code == 422
            assert answer.json()["error"]["message"]


# Results


async def test_every_entry_of_a_batch_has_its_own_receipt(context: Context, client: httpx2.AsyncClient) -> None:
    batch = [a_result("t1"), a_result("t2", data=[]), a_result("t3"), a_result("t1")]
    answer = (await client.post("/internal/results", json=batch)).json()
    assert (answer["inserted"], answer["updated"], answer["failed"]) == (2, 1, 1)
    assert [receipt["status"] for receipt in answer["receipts"]] == ["stored", "rejected", "stored", "duplicate"]
    assert answer["errors"] == ["parcel-t2: data is not an object"]


async def test_what_is_rejected_is_counted_with_its_platform(context: Context, client: httpx2.AsyncClient) -> None:
    odd = [a_result("t4", platform=name) for name in ("", "x\0y", 7)]
    batch = [a_result("t1"), a_result("t2", data=[]), a_result("t3", scraped_at="now"), *odd, 7, a_result("t1")]
    assert (await client.post("/internal/results", json=batch)).json()["failed"] == 6
    assert context.counters.totals == {
        ("echo", "stored"): 1,
        ("echo", "done"): 1,
        ("echo", "duplicate"): 1,
        ("echo", "rejected"): 2,
        ("", "rejected"): 4,
    }


async def test_the_further_records_of_a_page_are_records_and_no_tasks(
    context: Context, client: httpx2.AsyncClient
) -> None:
    ids = ["t1", *(child_id("t1", f"/p-{number}") for number in range(4))]
    await client.post("/internal/results", json=[a_result(task_id) for task_id in ids])
    assert context.counters.totals == {("echo", "stored"): 5, ("echo", "done"): 1}


async def test_the_same_batch_again_changes_nothing(client: httpx2.AsyncClient) -> None:
    await client.post("/internal/results", json=[a_result()])
    again = (await client.post("/internal/results", json=[a_result()])).json()
    assert (again["inserted"], again["updated"], again["failed"], again["errors"]) == (0, 1, 0, None)
    assert again["receipts"] == [{"task_id": "t1", "status": "duplicate"}]


async def test_a_result_completes_its_task(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    await client.get("/internal/work?platforms=echo")
    await client.post("/internal/results", json=[a_result()])
    row = await context.ledger.task("t1")
    assert row is not None and row.state == "done"


@one_ledger
async def test_what_is_no_array_is_refused_whole(subtests: pytest.Subtests, client: httpx2.AsyncClient) -> None:
    for body in [b"{}", b"", b"[", b"null", b'"x"', b"[" * 100_000, b"\xff\xfe"]:
        with subtests.test(body=body):
            assert (await client.post("/internal/results", content=body)).status_code == 400


@one_ledger
async def test_an_empty_batch_is_no_error(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/internal/results", content=b"[]")
    assert answer.json() == {"inserted": 0, "updated": 0, "failed": 0, "errors": None, "receipts": []}


async def test_packed_bodies_are_understood(client: httpx2.AsyncClient) -> None:
    packers: dict[str, Any] = {"gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress, "identity": bytes}
    for encoding, pack in packers.items():
        body = pack(json.dumps([a_result(encoding)]).encode())
        answer = await client.post("/internal/results", content=body, headers={"Content-Encoding": encoding})
        assert answer.json()["inserted"] == 1, encoding
        assert answer.headers["accept-encoding"] == "gzip, zstd", encoding


@one_ledger
async def test_a_body_packed_in_another_way_is_refused_with_what_is_taken(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/internal/results", content=b"x", headers={"Content-Encoding": "br"})
    assert answer.status_code == 415
    assert "gzip" in answer.json()["error"]["message"]


async def test_a_ledger_that_is_away_is_503_and_nothing_is_called_bad(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    async with some_context(tmp_path, database=str(disk / "gateway.db")) as context, a_client(context) as client:
        disk.rename(tmp_path / "unplugged")
        for call in (
            client.post("/internal/results", json=[a_result()]),
            client.get("/internal/work?platforms=echo"),
            client.post("/internal/heartbeat", json={}),
            client.get("/health"),
            client.get("/metrics"),
        ):
            assert (await call).status_code == 503
        answer = await client.post("/internal/results", json=[a_result()])
        assert answer.headers["retry-after"] == "5"
        assert answer.json()["error"]["code"] == "UNAVAILABLE"
        (tmp_path / "unplugged").rename(disk)
        assert (await client.post("/internal/results", json=[a_result()])).json()["inserted"] == 1


async def test_health_tells_of_a_raw_store_that_cannot_be_written(tmp_path: Path) -> None:
    clock = ManualClock()
    async with some_context(tmp_path, clock=clock) as context, a_client(context) as client:
        assert (await client.get("/health")).json()["status"] == "ok"
        staging = tmp_path / "raw" / "staging"
        staging.rename(tmp_path / "raw" / "gone")
        staging.write_bytes(b"in the way of a folder")
        clock.advance(30)
        answer = await client.get("/health")
        assert (answer.status_code, [finding["id"] for finding in answer.json()["findings"]]) == (
            503,
            ["raw_store.not_writable"],
        )
        staging.unlink()
        clock.advance(30)
        assert (await client.get("/health")).status_code == 200


async def test_a_raw_store_without_room_is_503_and_told_now_and_then(tmp_path: Path) -> None:
    events: list[Event] = []
    clock = ManualClock()
    async with some_context(tmp_path, clock=clock, events=events) as context, a_client(context) as client:
        (tmp_path / "raw" / "staging").rmdir()
        (tmp_path / "raw" / "staging").write_bytes(b"in the way of a folder")
        for _ in range(3):
            assert (await client.post("/internal/raw-files", **a_form())).status_code == 503
        clock.advance(10)
        await client.post("/internal/raw-files", **a_form())
    told = [event for event in events if isinstance(event, RequestDeferred)]
    assert [event.more for event in told] == [0, 2]
    assert told[0].path == "POST /internal/raw-files"
    assert "staging" in told[0].reason


@one_ledger
async def test_a_full_disk_under_the_spool_is_503_too(
    context: Context, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    form = a_form(os.urandom(2_000_000))
    assert (await client.post("/internal/raw-files", **form)).status_code == 503


# Ends


async def test_a_task_ends_by_the_word_of_its_worker_only(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task("a/b"), a_task("c d"))
    await client.get("/internal/work?platforms=echo&capacity=2")
    stranger = {"X-Worker-ID": "w-2"}
    assert (await client.post("/internal/tasks/a%2Fb/complete", headers=stranger)).json()["success"] is False
    ended = await client.post("/internal/tasks/a%2Fb/complete")
    assert ended.json() == {"status": "reported", "success": True, "task_id": "a/b"}
    failed = await client.post("/internal/tasks/c%20d/fail", json={"error": "no\nluck", "permanent": True})
    assert failed.json()["success"] is True
    row = await context.ledger.task("c d")
    assert row is not None and (row.state, row.error) == ("failed", "no luck")


async def test_a_task_that_failed_for_now_is_queued_again(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    await client.get("/internal/work?platforms=echo")
    await client.post("/internal/tasks/t1/fail", json={"permanent": False})
    (task,) = (await client.get("/internal/work?platforms=echo")).json()["tasks"]
    assert task["attempt"] == 2


async def test_a_task_that_expired_unstarted_is_queued_again(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    await client.get("/internal/work?platforms=echo")
    ended = await client.post("/internal/tasks/t1/complete", json={"expired": True, "error": "its lease ended"})
    assert ended.json() == {"status": "reported", "success": True, "task_id": "t1"}
    row = await context.ledger.task("t1")
    assert row is not None and (row.state, row.error) == ("queued", "its lease ended")
    assert len((await client.get("/internal/work?platforms=echo")).json()["tasks"]) == 1


async def test_a_heartbeat_answers_until_when_leases_run_unless_there_is_none(
    context: Context, client: httpx2.AsyncClient
) -> None:
    await add_tasks(context, a_task())
    (task,) = (await client.get("/internal/work?platforms=echo")).json()["tasks"]
    holding = (await client.post("/internal/heartbeat", json={"active_tasks": 1})).json()
    assert holding["leases_since"] < task["lease_expires_at"] <= holding["lease_expires_at"]
    nothing = {"active_tasks": 0, "queue": {"pending": 0, "processing": 0, "unsynced": 0}}
    assert (await client.post("/internal/heartbeat", json=nothing)).json()["lease_expires_at"] is None


async def test_only_a_parcel_that_a_worker_did_not_find_is_not_found(
    context: Context, client: httpx2.AsyncClient
) -> None:
    await add_tasks(context, a_task("a"), a_task("b"))
    await client.get("/internal/work?platforms=echo&capacity=2")
    await client.post(
        "/internal/tasks/a/complete", content=msgspec.json.encode(Completion(not_found=True, error="no such parcel"))
    )
    await client.post("/internal/tasks/b/complete")
    rows = [await context.ledger.task(name) for name in ("a", "b")]
    assert [(row.state, row.error) for row in rows if row] == [("not_found", "no such parcel"), ("done", None)]


async def test_what_becomes_of_a_task_is_counted_with_its_platform(
    context: Context, client: httpx2.AsyncClient
) -> None:
    await add_tasks(context, a_task("a", "vgsi"), a_task("b", "vgsi"), a_task("c", "vgsi"))
    await client.get("/internal/work?platforms=vgsi&capacity=3")
    await client.post("/internal/tasks/a/complete", json={"not_found": True, "error": "no such parcel"})
    await client.post("/internal/tasks/b/fail", json={"permanent": True})
    await client.post("/internal/tasks/c/fail", json={"permanent": False})
    assert context.counters.totals == {("vgsi", "granted"): 3, ("vgsi", "not_found"): 1, ("vgsi", "failed"): 2}


async def test_an_unknown_task_is_no_error(subtests: pytest.Subtests, client: httpx2.AsyncClient) -> None:
    for task_id in ["nobody", "%00", "x" * 2_000, "%E2%82%AC" * 167, "a%2F..%2Fb"]:
        with subtests.test(task_id=task_id):
            answer = await client.post(f"/internal/tasks/{task_id}/fail", content=b"nonsense")
            assert (answer.status_code, answer.json()["success"]) == (200, False)


# The fleet


async def test_a_heartbeat_extends_leases_and_brings_commands(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    await client.get("/internal/work?platforms=echo")
    await client.post("/internal/heartbeat", json={"active_tasks": 1})
    assert isinstance(context.clock, ManualClock)
    context.clock.advance(400)
    await client.post("/internal/heartbeat", json={"active_tasks": 1})
    await context.ledger.add_command("pause", "w-1", context.clock.now(), context.clock.now())
    context.clock.advance(200)
    beat: dict[str, Any] = {"active_tasks": 1, "platforms": ["echo"], "queue": {"processing": 1}, "version": "1"}
    beat["blocked"] = [{"platform": "slow"}]
    answer = await client.post("/internal/heartbeat", json=beat)
    assert answer.json() == {
        "acknowledged": True,
        "commands": ["pause"],
        "lease_expires_at": "2026-01-01T00:25:00Z",
        "leases_since": "2025-12-31T00:10:00Z",
    }
    row = await context.ledger.task("t1")
    assert row is not None and row.leases[0].expires_at.isoformat() == "2026-01-01T00:25:00+00:00"
    (worker,) = await context.ledger.workers()
    assert (worker.heartbeat.blocked, worker.heartbeat.platforms) == ((PausedSite("slow"),), ("echo",))


async def test_a_result_of_something_else_does_not_end_a_task(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task())
    await client.get("/internal/work?platforms=echo")
    for wrong, named in [
        ({"parcel_id": "another"}, "parcel"),
        ({"platform": "vgsi"}, "platform"),
        ({"state": "NH"}, "state"),
        ({"county": "tolland"}, "county"),
        ({"county": "tolland", "parcel_id": "another"}, "county and parcel"),
    ]:
        answer = (
            await client.post("/internal/results", json=[a_result(multi_record=False, **wrong), a_result("t2")])
        ).json()
        said = f"the result's {named} does not match its task"
        assert answer["receipts"][0] == {"task_id": "t1", "status": "rejected", "error": said}
        assert answer["receipts"][1]["status"] in {"stored", "duplicate"}, "a task that is not known may be anything"
        row = await context.ledger.task("t1")
        assert row is not None and row.state == "leased"


async def test_a_record_of_a_list_has_its_own_number(database: str, tmp_path: Path) -> None:
    """But only a worker with the token of one that was given the list's task ends it so. `listed` is optional."""
    tokens = {"PARCELPOST_WORKER_TOKENS": "ann: token-of-ann, bob: token-of-bob"}
    ann, bob = {"X-Worker-Token": "token-of-ann"}, {"X-Worker-Token": "token-of-bob", "X-Worker-ID": "w-bob"}
    async with some_context(tmp_path, tokens, database=database) as context, a_client(context, headers=ann) as client:
        await add_tasks(context, *(a_task(f"t{number}") for number in range(6)))
        work = await client.get("/internal/work?platforms=echo&capacity=5")
        given = [task["task_id"] for task in work.json()["tasks"]]
        (other,) = {f"t{number}" for number in range(6)} - set(given)
        assert isinstance(context.clock, ManualClock)
        context.clock.advance(2_000)
        await context.ledger.expire_leases(context.clock.now(), 10)  # they are late, too
        cases: list[tuple[str, dict[str, Any], dict[str, str], int]] = [
            (given[0], {"multi_record": True}, {}, 1),
            (given[1], {}, {}, 1),
            (given[2], {"multi_record": None}, {}, 1),
            (given[3], {}, {"X-Worker-ID": "another-of-ann"}, 1),
            (given[4], {"multi_record": False}, {}, 0),
            (given[4], {"multi_record": True}, bob, 0),
            (given[4], {}, bob, 0),
            (other, {"multi_record": True}, {}, 0),
        ]
        for task_id, said, headers, stored in cases:
            record = a_result(task_id, parcel_id="another", **said)
            answer = await client.post("/internal/results", json=[record], headers=headers)
            told = answer.json()
            assert (told["inserted"] + told["updated"], told["failed"]) == (stored, 1 - stored), (task_id, said)
            row = await context.ledger.task(task_id)
            assert row is not None and (row.state == "done") is bool(stored)


async def test_a_late_result_of_the_right_parcel_is_taken_however_it_is_spelled(
    context: Context, client: httpx2.AsyncClient
) -> None:
    await add_tasks(context, a_task(parcel_id="12-34.5", state="Connecticut", county="Hartford County"))
    await client.get("/internal/work?platforms=echo")
    assert isinstance(context.clock, ManualClock)
    context.clock.advance(2_000)
    await context.ledger.expire_leases(context.clock.now(), 10)
    sent = a_result(parcel_id="12 345", state="conn", county="hartford", late=True)
    refused = (await client.post("/internal/results", json=[sent])).json()
    assert "unknown state 'conn'" in refused["errors"][0]
    assert (await client.post("/internal/results", json=[{**sent, "state": "ct"}])).json()["inserted"] == 1
    (row,) = await context.ledger.parcels(ParcelFilter(), None, 10)
    assert (row.parcel.state, row.parcel.county) == ("CT", "hartford")


async def test_spellings_of_a_place_are_one_parcel(context: Context, client: httpx2.AsyncClient) -> None:
    places = [("CT", "Invented County"), ("ct", "invented"), ("Connecticut", " INVENTED "), ("CT", "Invented")]
    batch = [
        a_result(f"t{number}", parcel_id="1", state=state, county=county)
        for number, (state, county) in enumerate(places)
    ]
    answer = (await client.post("/internal/results", json=batch)).json()
    assert answer["failed"] == 0
    (row,) = await context.ledger.parcels(ParcelFilter(), None, 10)
    assert (row.parcel.state, row.parcel.county) == ("CT", "invented")
    for query in ("county=Invented+County", "state=connecticut", "state=CT&county=invented"):
        assert len((await client.get(f"/v1/parcels?{query}")).json()["parcels"]) == 1
    bad = [a_result("t8", state="ZZ"), a_result("t9", county="---")]
    errors = (await client.post("/internal/results", json=bad)).json()["errors"]
    assert errors == ["parcel-t8: unknown state 'ZZ'", "parcel-t9: '---' is not a county name"]


async def test_a_clock_that_is_ahead_does_not_beat_honest_scrapes(context: Context, client: httpx2.AsyncClient) -> None:
    """Its scrape counts as of the moment when it came here first, also when it is sent again."""

    async def send(task_id: str, scraped_at: str, owner: str) -> str:
        result = a_result(task_id, parcel_id="1", scraped_at=scraped_at, data={"owner_names": [owner]})
        answer = await client.post("/internal/results", json=[result])
        return str(answer.json()["receipts"][0]["status"])

    assert isinstance(context.clock, ManualClock)
    ahead = ["2026-01-01T23:00:00Z", "2026-01-03T12:00:00Z", "2036-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"]
    for number, scraped_at in enumerate(ahead):
        assert await send(f"ahead-{number}", scraped_at, "Old") == "stored", scraped_at
        context.clock.advance(60)
    honest = iso(context.clock.now() - timedelta(seconds=30))
    assert await send("honest", honest, "New") == "stored"
    context.clock.advance(60)
    for number, scraped_at in enumerate(ahead):
        assert await send(f"ahead-{number}", scraped_at, "Old") == "duplicate", scraped_at
    (row,) = await context.ledger.parcels(ParcelFilter(), None, 10)
    assert (row.owner, row.sources[0].task_id) == ("New", "honest")


async def test_what_is_kept_and_told_of_a_heartbeat_is_bounded(context: Context, client: httpx2.AsyncClient) -> None:
    broken = {"platform": "p", "state": "CT", "county": "x", "success_rate": 0, "used_to": 1, "example": ""}
    beat = {
        "platforms": [f"{'p' * 500}{number}" for number in range(500)],
        "blocked": [{"platform": f"{'b' * 500}{number}"} for number in range(500)],
        "broken": [
            {**broken, "field": f"f{number}", "failing": [f"{'w' * 590}{way}" for way in range(20)]}
            for number in range(20)
        ],
    }
    for number in range(40):
        answer = await client.post("/internal/heartbeat", json=beat, headers={"X-Worker-ID": f"w-{number}"})
        assert answer.status_code == 200
    assert len((await client.get("/v1/workers")).content) < 40 * 32 * 1024
    assert len((await client.get("/v1/overview")).content) < 40 * 32 * 1024
    beat["version"] = "v" * 2_000_000
    assert (await client.post("/internal/heartbeat", json=beat)).status_code == 413


async def test_signals_become_ranked_selectors(client: httpx2.AsyncClient) -> None:
    signal = {"platform": "echo", "field": "owner", "selector": "#o", "selector_type": "css", "success": True}
    answer = await client.post("/internal/signals", json=[signal, {**signal, "success": False}, {"platform": 1}])
    assert answer.json() == {"accepted": 2, "failed": 1}
    (found,) = (await client.get("/internal/selectors?platform=echo")).json()["selectors"]
    assert (found["selector"], found["success_rate"], found["samples"]) == ("#o", 0.5, 2)


async def test_figures_are_kept(context: Context, client: httpx2.AsyncClient) -> None:
    samples = [{"timestamp": "2026-01-01T00:00:00Z", "cpu_percent": 1.5, "odd": "x"}, {"timestamp": "yesterday"}]
    assert (await client.post("/internal/metrics", json=samples)).json() == {"accepted": 1, "failed": 1}
    (kept,) = await context.ledger.metrics("w-1", context.clock.now(), 10)
    assert kept.values == {"cpu_percent": 1.5}


# Raw files


@one_ledger
async def test_a_page_is_kept_under_its_hash(context: Context, client: httpx2.AsyncClient) -> None:
    answer = await client.post("/internal/raw-files", **a_form())
    assert answer.json()["status"] == "ok"
    sha256 = answer.json()["path"].rsplit("/", 1)[-1].removesuffix(".html.gz")
    kept = await context.raw_store.open(sha256)
    assert kept is not None
    assert gzip.decompress(b"".join([chunk async for chunk in kept.chunks])) == PAGE


@one_ledger
async def test_a_page_that_is_not_what_its_hash_says_is_refused(client: httpx2.AsyncClient) -> None:
    for packed in (True, False):
        answer = await client.post("/internal/raw-files", **a_form(packed=packed, sha256="0" * 64))
        assert answer.status_code == 422


@one_ledger
async def test_a_form_that_is_not_whole_is_refused(subtests: pytest.Subtests, client: httpx2.AsyncClient) -> None:
    forms: list[dict[str, Any]] = [
        {"data": {}},
        {"files": {}},
        {"data": {"metadata": "{}"}},
        {"data": {"metadata": "x" * 100_000}},
        {"files": {"file": ("a", b"no gzip", "text/html")}},
        {"files": {"file": ("a", gzip.compress(PAGE)[:-4], "text/html")}},
        {"files": {"file": ("a", gzip.compress(PAGE) + b"more", "text/html")}},
    ]
    for broken in forms:
        with subtests.test(broken=broken):
            answer = await client.post("/internal/raw-files", **{**a_form(), **broken})
            assert answer.status_code in {400, 422}
            assert answer.json()["error"]["message"]


@one_ledger
async def test_a_raw_file_that_is_no_form_is_refused(client: httpx2.AsyncClient) -> None:
    for kind in ("text/html", "multipart/form-data", "multipart/form-data; boundary=x; charset=punycode"):
        headers = {"Content-Type": kind}
        answer = await client.post("/internal/raw-files", content=b"--x\r\n\r\n\xff", headers=headers)
        assert answer.status_code == 400


# What every answer has


async def test_every_answer_is_strict_and_has_a_number(client: httpx2.AsyncClient) -> None:
    for path in ("/health", "/internal/work?platforms=a", "/nowhere", "/openapi.json"):
        headers = (await client.get(path)).headers
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert len(headers["x-request-id"]) == 16


@one_ledger
async def test_the_reference_loads_nothing_from_elsewhere(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert "http://" not in answer.text and "https://" not in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")


@one_ledger
async def test_a_browser_is_shown_a_page_where_there_is_none(client: httpx2.AsyncClient) -> None:
    browser = await client.get("/nowhere", headers={"Accept": "text/html,*/*"})
    assert (browser.status_code, browser.headers["content-type"]) == (404, "text/html; charset=utf-8")
    missing = [await client.get("/nowhere"), await client.get("/v1/tasks/t9", headers={"Accept": "text/html"})]
    for answer in missing:
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")


async def test_an_error_of_ours_is_told_in_the_log_and_not_to_the_client(tmp_path: Path) -> None:
    """A table that is not there is not a state that passes: somebody has dropped it."""
    events: list[Event] = []
    async with some_context(tmp_path, events=events) as context, a_client(context) as client:
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as db:
            db.execute("DROP TABLE activity")
        answer = await client.get("/v1/overview")
    assert answer.status_code == 500
    assert "activity" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "no such table: activity" in str(events[-1])


async def test_metrics_say_how_the_queue_stands(context: Context, client: httpx2.AsyncClient) -> None:
    await add_tasks(context, a_task("t1"), a_task("t2"))
    await client.get("/internal/work?platforms=echo")
    await client.post("/internal/heartbeat", json={})
    text = (await client.get("/metrics")).text
    assert 'parcelpost_gateway_tasks{platform="echo",state="queued"} 1.0' in text
    assert 'parcelpost_gateway_events_total{outcome="granted",platform="echo"} 1.0' in text
    assert "parcelpost_gateway_workers_alive 1.0" in text
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    assert set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)) == set(re.findall(r"`(parcelpost_gateway_\w+)`", page))


async def test_metrics_tell_of_results_that_left_with_their_worker(
    context: Context, client: httpx2.AsyncClient
) -> None:
    beat = {"queue": {"unsynced": 7}, "oldest_unsynced_seconds": 60}
    await client.post("/internal/heartbeat", json=beat)
    text = (await client.get("/metrics")).text
    assert "parcelpost_gateway_unsynced 7.0" in text
    assert "parcelpost_gateway_unsynced_left 0.0" in text
    await client.post("/internal/heartbeat", json={**beat, "leaving": True})
    text = (await client.get("/metrics")).text
    assert "parcelpost_gateway_workers_alive 0.0" in text
    assert "parcelpost_gateway_unsynced 0.0" in text
    assert "parcelpost_gateway_unsynced_left 7.0" in text


async def test_answers_are_counted_by_class_also_those_that_are_our_fault(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context) as client:
        await client.get("/health")
        await client.get("/nowhere")
        with closing(sqlite3.connect(tmp_path / "gateway.db")) as db, db:
            db.execute("DROP TABLE activity")
        assert (await client.get("/v1/overview")).status_code == 500
        assert context.counters.responses == {"2xx": 1, "4xx": 1, "5xx": 1}
        text = (await client.get("/metrics")).text
        assert 'parcelpost_gateway_responses_total{status="5xx"} 1.0' in text
