"""Firestore's errors in the worker's words; nothing is tried again behind its back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from parcelpost.errors import Refused, TooLarge, Unauthorized, Unavailable, UpstreamError
from parcelpost.model import Signal
from parcelpost.upstream.base import Upstream
from parcelpost.upstream.firestore.client import FirestoreClient
from parcelpost.upstream.firestore.errors import QUOTA_REST_SECONDS
from tests.firestore.conftest import ROOT, Open
from tests.firestore.documents import Code
from tests.firestore.making import add_tasks, task
from tests.firestore.server import FirestoreServer, fails, hangs, lost
from tests.upstream.factories import a_beat, an_end, an_entry

TABLE: list[tuple[grpc.StatusCode, str, type[UpstreamError]]] = [
    (Code.UNAVAILABLE, "", Unavailable),
    (Code.DEADLINE_EXCEEDED, "", Unavailable),
    (Code.INTERNAL, "", Unavailable),
    (Code.UNKNOWN, "", Unavailable),
    (Code.CANCELLED, "", Unavailable),
    (Code.DATA_LOSS, "", Unavailable),
    (Code.RESOURCE_EXHAUSTED, "Quota exceeded.", Unavailable),
    (Code.RESOURCE_EXHAUSTED, "Write rate exceeds the limit for this project", Unavailable),
    (Code.RESOURCE_EXHAUSTED, "Bandwidth exceeds the maximum allowed", Unavailable),
    (Code.RESOURCE_EXHAUSTED, "CLIENT: Sent message larger than max (9 vs. 4)", TooLarge),
    (Code.INVALID_ARGUMENT, "Request payload size exceeds the limit: 10485760 bytes.", TooLarge),
    (Code.INVALID_ARGUMENT, "Transaction too big. Decrease transaction size.", TooLarge),
    (Code.INVALID_ARGUMENT, "Property array contains an invalid nested entity.", Refused),
    (Code.PERMISSION_DENIED, "Missing or insufficient permissions.", Unauthorized),
    (Code.UNAUTHENTICATED, "Request had invalid authentication credentials.", Unauthorized),
    (Code.NOT_FOUND, "The database (default) does not exist for project p", Unauthorized),
    (Code.FAILED_PRECONDITION, "The query requires an index.", Unauthorized),
    (Code.UNIMPLEMENTED, "", Unauthorized),
]


@pytest.mark.parametrize(("code", "message", "meaning"), TABLE)
async def test_every_status_has_its_meaning(
    server: FirestoreServer, client: FirestoreClient, code: grpc.StatusCode, message: str, meaning: type[UpstreamError]
) -> None:
    server.play("Commit", fails(code, message))
    with pytest.raises(UpstreamError) as error:
        await client.submit_results([an_entry()])
    assert type(error.value) is meaning
    assert server.calls["Commit"] == 1, "the library does not try again"
    assert code.name.lower().replace("_", " ") in str(error.value)
    assert "gateway" not in error.value.hint.lower()
    assert (await client.submit_results([an_entry()])).stored == 1


async def test_a_missing_index_is_told_with_what_to_do(server: FirestoreServer, client: FirestoreClient) -> None:
    link = f"https://console.firebase.google.com/project/p/firestore/indexes?create_composite={'C' * 600}-its-end"
    said = f"The query requires an index. You can create it here: {link}"
    server.play("RunQuery", fails(Code.FAILED_PRECONDITION, said))
    with pytest.raises(Unauthorized, match="requires an index") as error:
        await client.get_work(1, ["echo"])
    assert str(error.value).endswith(link), "a part of it leads nowhere"
    assert f"{server.host} (FIRESTORE_EMULATOR_HOST)" in str(error.value)
    assert "parcelpost firestore show indexes" in error.value.hint


async def test_a_failed_precondition_of_anything_but_a_query_is_no_missing_index(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    said = "The query requires an index, said a database in Datastore mode."
    server.play("BatchGetDocuments", fails(Code.FAILED_PRECONDITION, said))
    with pytest.raises(Unauthorized) as error:
        await client.get_work(1, ["echo"])
    assert "native mode" in error.value.hint
    assert "indexes" not in error.value.hint


async def test_a_quota_that_is_used_up_gets_a_longer_rest(server: FirestoreServer, client: FirestoreClient) -> None:
    server.play("Commit", fails(Code.RESOURCE_EXHAUSTED, "Quota exceeded."))
    with pytest.raises(Unavailable) as error:
        await client.submit_results([an_entry()])
    assert error.value.retry_after == QUOTA_REST_SECONDS


async def test_firestore_may_ask_for_a_rest(server: FirestoreServer, client: FirestoreClient) -> None:
    asked = AnyMessage()
    asked.Pack(RetryInfo(retry_delay=Duration(seconds=42)))
    details = Status(code=14, message="busy", details=[asked]).SerializeToString()
    server.play("Commit", fails(Code.UNAVAILABLE, "busy", grpc_status_details_bin=details))
    with pytest.raises(Unavailable) as error:
        await client.submit_results([an_entry()])
    assert error.value.retry_after == 42


CALLS: list[tuple[str, Callable[[Upstream], Awaitable[object]]]] = [
    ("BatchGetDocuments", lambda client: client.get_work(1, ["echo"])),
    ("RunQuery", lambda client: client.get_work(1, ["echo"])),
    ("BeginTransaction", lambda client: client.report_end(an_end())),
    ("Rollback", lambda client: client.report_end(an_end())),
    ("Commit", lambda client: client.heartbeat(a_beat())),
    ("RunQuery", lambda client: client.heartbeat(a_beat())),
    ("RunQuery", lambda client: client.get_selectors("echo")),
]


@pytest.mark.parametrize(("method", "call"), CALLS)
async def test_every_call_may_fail(
    server: FirestoreServer, client: FirestoreClient, method: str, call: Callable[[Upstream], Awaitable[object]]
) -> None:
    for code, meaning in ((Code.UNAVAILABLE, Unavailable), (Code.INVALID_ARGUMENT, Unauthorized)):
        server.play(method, fails(code))
        with pytest.raises(meaning):
            await call(client)
    await call(client)


async def test_signals_that_are_refused_are_refused(server: FirestoreServer, client: FirestoreClient) -> None:
    server.play("Commit", fails(Code.INVALID_ARGUMENT))
    with pytest.raises(Refused):
        await client.submit_signals(
            [Signal(platform="a", field="b", selector="c", selector_type="css", success=True)], "first"
        )


async def test_a_server_that_does_not_answer_is_waited_for_no_longer_than_we_want(
    server: FirestoreServer, open_worker: Open
) -> None:
    async with open_worker(timeout_seconds=0.3) as client:
        server.play("BeginTransaction", hangs())
        with pytest.raises(Unavailable, match="deadline exceeded"):
            await client.submit_results([an_entry()])


async def test_a_server_that_is_away_and_comes_back(server: FirestoreServer, client: FirestoreClient) -> None:
    assert (await client.submit_results([an_entry("t1")])).stored == 1
    await server.stop()
    with pytest.raises(Unavailable, match="unavailable"):
        await client.submit_results([an_entry("t2")])
    await server.start()
    async with asyncio.timeout(60):
        while True:
            try:
                assert (await client.submit_results([an_entry("t2")])).stored == 1
                break
            except Unavailable:
                await asyncio.sleep(0.05)
    assert len(server.all(f"{ROOT}/results")) == 2


async def test_a_conflict_is_tried_again_a_few_times(server: FirestoreServer, client: FirestoreClient) -> None:
    server.play("Commit", fails(Code.ABORTED, "Too much contention on these documents."), times=2)
    assert (await client.submit_results([an_entry()])).stored == 1
    server.play("Commit", fails(Code.ABORTED, "Too much contention on these documents."), times=100)
    with pytest.raises(Unavailable, match="contention"):
        await client.submit_results([an_entry("t2")])


@pytest.mark.parametrize("code", [Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION])
async def test_a_transaction_that_took_too_long_is_tried_again(
    server: FirestoreServer, client: FirestoreClient, code: grpc.StatusCode
) -> None:
    server.play("Commit", fails(code, "The referenced transaction has expired or is no longer valid."))
    assert (await client.submit_results([an_entry()])).stored == 1


async def test_a_conflict_over_dead_workers_tasks_does_not_keep_others_from_theirs(
    server: FirestoreServer, open_worker: Open
) -> None:
    add_tasks(server, "dead")
    async with open_worker("w-1") as dead, open_worker("w-2") as alive:
        assert (await dead.get_work(1, ["echo"])).tasks
        add_tasks(server, "next")
        server.documents.ahead = timedelta(minutes=20)
        server.play("Commit", fails(Code.ABORTED, "Too much contention on these documents."), times=4)
        assert [one.task_id for one in (await alive.get_work(5, ["echo"])).tasks] == ["next"]


@pytest.mark.parametrize("method", ["BatchGetDocuments", "Commit"])
@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.PERMISSION_DENIED])
async def test_no_transaction_is_left_open(
    server: FirestoreServer, client: FirestoreClient, method: str, code: grpc.StatusCode
) -> None:
    server.play(method, fails(code))
    with pytest.raises(UpstreamError):
        await client.submit_results([an_entry()])
    assert server.calls["BeginTransaction"] == 1
    assert server.documents.open_transactions == 0


async def test_a_transaction_that_is_cancelled_is_not_left_open(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    server.play("BatchGetDocuments", hangs())
    sending = asyncio.create_task(client.submit_results([an_entry()]))
    async with asyncio.timeout(60):
        while not server.calls["BatchGetDocuments"]:
            await asyncio.sleep(0.01)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert server.documents.open_transactions == 0


async def test_a_transaction_that_firestore_has_forgotten_is_begun_anew(
    server: FirestoreServer, client: FirestoreClient
) -> None:
    said = "The referenced transaction has expired or is no longer valid."
    server.play("Commit", fails(Code.INVALID_ARGUMENT, said))
    assert (await client.submit_results([an_entry()])).stored == 1


async def test_a_result_whose_receipt_was_lost_is_there_once(server: FirestoreServer, client: FirestoreClient) -> None:
    add_tasks(server, "t1")
    await client.get_work(1, ["echo"])
    server.play("Commit", lost())
    with pytest.raises(Unavailable):
        await client.submit_results([an_entry()])
    before = server.all(f"{ROOT}/results")
    assert task(server, "t1")["status"] == "done"
    assert (await client.submit_results([an_entry()])).stored == 1
    assert server.all(f"{ROOT}/results") == before, "not even the moment of its arrival has changed"


async def test_a_command_is_heard_though_the_answer_was_lost(server: FirestoreServer, client: FirestoreClient) -> None:
    await client.heartbeat(a_beat())
    command = {"command": "pause", "sent_at": server.documents.now()}
    server.put({f"{ROOT}/workers/w-1/commands/c1": command})
    server.play("Commit", lost())
    with pytest.raises(Unavailable):
        await client.heartbeat(a_beat())
    assert server.all(f"{ROOT}/workers/w-1/commands") == {}
    assert (await client.heartbeat(a_beat())).commands == ["pause"]
    assert (await client.heartbeat(a_beat())).commands == []
