"""Results within Firestore's limits, and what stands in their documents."""

from __future__ import annotations

import gzip
import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost.errors import Unauthorized, Unavailable
from parcelpost.model import Broken, OutboxEntry, Signal
from parcelpost.protocol.payloads import MetricsSample
from parcelpost.upstream import firestore
from parcelpost.upstream.firestore.client import FirestoreClient
from tests.firestore.conftest import ROOT, Open
from tests.firestore.making import add_tasks, task
from tests.firestore.server import FirestoreServer
from tests.upstream.factories import NOW, PAGE, a_beat, an_entry


def _result(task_id: str, data: Any, **changes: Any) -> OutboxEntry:
    return an_entry(task_id, data=msgspec.json.encode(data), **changes)


async def test_a_batch_of_any_length_goes_in_commits_of_500_writes(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, *(f"t{number}" for number in range(400)))
    answer = await client.submit_results([_result(f"t{number}", {"n": number}) for number in range(400)])
    assert (answer.stored, len(answer.receipts)) == (400, 400)
    assert server.calls["Commit"] == 3
    assert len(server.all(f"{ROOT}/results")) == len(server.all(f"{ROOT}/parcels")) == 400
    assert {one["status"] for one in server.all(f"{ROOT}/tasks").values()} == {"done"}


async def test_a_batch_of_any_size_goes_in_commits_of_10_mib(server: FirestoreServer, client: FirestoreClient) -> None:
    text = "é" * 400_000
    answer = await client.submit_results([_result(f"t{number}", {"text": text}) for number in range(20)])
    assert answer.stored == 20
    assert server.calls["Commit"] == 2
    assert all(one["data"] == {"text": text} for one in server.all(f"{ROOT}/results").values())


UNFIT = [
    ({"text": "x" * 1_100_000}, "it is too large for a document"),
    ({"a": [[1, 2], [3]]}, "a list contains another list"),
    ({"a": 2**64}, "a number has more than 64 bits"),
]


@pytest.mark.parametrize(("record", "why"), UNFIT, ids=["large", "lists", "number"])
async def test_a_record_that_no_document_holds_is_in_the_raw_store_whole(
    server: FirestoreServer, client: FirestoreClient, tmp_path: Path, record: Any, why: str
) -> None:
    entry = _result("t1", record)
    for _ in range(2):
        assert (await client.submit_results([entry])).stored == 1
    result = server.all(f"{ROOT}/results")["t1"]
    assert "data" not in result
    reference = result["data_in_raw_store"]
    assert reference["store"] == (tmp_path / "raw").as_uri()
    kept = gzip.decompress((tmp_path / "raw" / reference["key"]).read_bytes())
    assert kept == entry.data
    assert reference["sha256"] == hashlib.sha256(kept).hexdigest()
    assert (reference["bytes"], reference["why"]) == (len(kept), why)
    assert server.all(f"{ROOT}/parcels")["echo~CT~hartford~parcel-t1"]["task_id"] == "t1"


async def test_a_result_names_its_page(server: FirestoreServer, client: FirestoreClient, tmp_path: Path) -> None:
    entry = an_entry(page=True, lease_expires_at=NOW)
    page = tmp_path / "page.html.gz"
    page.write_bytes(gzip.compress(PAGE))
    await client.upload_raw_file(entry, page)
    await client.submit_results([entry])
    result = server.all(f"{ROOT}/results")["t1"]
    assert result["late"] is True
    assert result["page"]["store"] == (tmp_path / "raw").as_uri()
    path = tmp_path / "raw" / result["page"]["key"]
    assert gzip.decompress(path.read_bytes()) == PAGE
    told = json.loads((path.with_suffix("").with_suffix("") / f"{result['page']['name']}.json").read_bytes())
    assert (told["task_id"], told["sha256"]) == ("t1", result["page"]["sha256"])


async def test_a_raw_store_that_cannot_be_written_is_told(open_worker: Open, tmp_path: Path) -> None:
    page = tmp_path / "page.html.gz"
    page.write_bytes(gzip.compress(PAGE))
    async with open_worker() as client:
        (tmp_path / "raw" / "staging").rmdir()
        (tmp_path / "raw" / "staging").write_text("in the way")
        with pytest.raises((Unavailable, Unauthorized)) as error:
            await client.upload_raw_file(an_entry(page=True), page)
        assert "firestore.raw" in error.value.hint


async def test_a_late_result_completes_a_task_that_was_given_up(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "t1", status="failed", error="its lease expired without a report", ended_at=NOW)
    await client.submit_results([an_entry()])
    assert (task(server, "t1")["status"], task(server, "t1")["error"]) == ("done", None)


async def test_a_scrape_of_the_future_hides_no_later_one(server: FirestoreServer, client: FirestoreClient) -> None:
    now = datetime.now(UTC)
    scrapes = [("t1", "next year", now + timedelta(days=365)), ("t1", "newer", now), ("t2", "newest", now)]
    for number, (task_id, text, scraped_at) in enumerate(scrapes):
        ahead = timedelta(minutes=number)  # each is scraped and sent a minute after the one before
        server.documents.ahead = ahead
        await client.get_work(1, ["echo"])
        key, at = f"k{number}", scraped_at + ahead
        await client.submit_results([_result(task_id, {"v": text}, parcel_id="p", scraped_at=at, idempotency_key=key)])
    assert server.all(f"{ROOT}/results")["t1"]["data"] == {"v": "newer"}
    (parcel,) = server.all(f"{ROOT}/parcels").values()
    assert parcel["task_id"] == "t2"


async def test_of_two_scrapes_at_one_moment_the_same_one_stays_however_often_they_are_sent(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    one, other = (_result("t1", {"v": key}, idempotency_key=key) for key in ("a", "b"))
    for entry in (one, other, one, other, one):
        await client.submit_results([entry])
    assert server.all(f"{ROOT}/results")["t1"]["data"] == {"v": "b"}


STRANGE: list[dict[str, Any]] = [
    {"note": "made by hand"},
    {"scraped_at": "2020-01-01T00:00:00Z", "task_id": "zzz"},
    {"scraped_at": None, "received_at": NOW},
]


@pytest.mark.parametrize("there", STRANGE, ids=["nothing", "text", "null"])
async def test_i2_a_document_that_names_no_moment_hides_no_result(
    server: FirestoreServer, client: FirestoreClient, there: dict[str, Any]
) -> None:
    add_tasks(server, "t1")
    server.put({f"{ROOT}/results/t1": there, f"{ROOT}/parcels/echo~CT~hartford~parcel-t1": there})
    answer = await client.submit_results([_result("t1", {"v": 1})])
    assert answer.receipts["t1"].is_stored
    assert server.all(f"{ROOT}/results")["t1"]["data"] == {"v": 1}
    assert server.all(f"{ROOT}/parcels")["echo~CT~hartford~parcel-t1"]["task_id"] == "t1"


async def test_every_field_that_is_written_is_told_in_the_layout(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    add_tasks(server, "t1")
    await client.get_work(1, ["echo"])
    await client.submit_results([_result("t1", {}), _result("t2", {"a": [[1]]})])
    await client.heartbeat(a_beat())
    await client.submit_metrics([MetricsSample(at=datetime(2026, 11, 15, 12, tzinfo=UTC), values={"cpu_percent": 1})])
    signal = Signal(platform="a", field="b", selector="c", selector_type="css", success=True)
    await client.submit_signals([signal], "first")
    layout = (Path(firestore.__path__[0]) / "project" / "README.md").read_text()
    for collection in ("tasks", "results", "parcels", "selectors", "signal_batches"):
        documents = server.all(f"{ROOT}/{collection}")
        assert documents, collection
        names = {name for document in documents.values() for name in document}
        assert [name for name in names if f"`{name}`" not in layout] == []
    assert list(server.all(f"{ROOT}/workers/w-1/metrics")) == ["2026-11-15T12:00:00.000Z"]
    worker = server.all(f"{ROOT}/workers")["w-1"]
    assert (worker["active_tasks"], worker["queue"]["pending"]) == (2, 4)
    assert "last_seen_at" in worker
    assert "leases" not in worker


async def test_broken_fields_that_no_document_holds_are_left_out_of_a_heartbeat(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    broken = Broken(
        platform="vgsi",
        state="NH",
        county="grafton",
        field="owner",
        success_rate=0.0,
        used_to=1.0,
        failing=("x" * 6_000,),
        example="t1",
    )
    await client.heartbeat(msgspec.structs.replace(a_beat(), broken=(broken,) * 200))
    (worker,) = server.all(f"{ROOT}/workers").values()
    assert (worker["broken"], worker["active_tasks"]) == ([], 2)
