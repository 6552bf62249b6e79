"""The client against a gateway that keeps the contract: what it sends, and what it makes of the answers."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from parcelpost.errors import NotOffered, Refused, Unavailable
from parcelpost.model import Signal, TaskStatus
from parcelpost.protocol import payloads
from parcelpost.protocol.payloads import MetricsSample, RankedSelector, Receipt
from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.base import Upstream
from parcelpost.upstream.gateway import GatewayClient
from tests import traps
from tests.hostile import HostileGateway, Trap, a_task
from tests.upstream.factories import NOW, PAGE, a_beat, an_end, an_entry

SIGNAL = Signal(platform="echo", field="owner", selector="#o", selector_type="css", success=True)


def test_it_keeps_the_protocol(client: GatewayClient) -> None:
    upstream: Upstream = client  # the type checker looks
    assert upstream is client


async def test_work_is_asked_for_with_repeated_platforms(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.offer(a_task("t1"), a_task("t2"), a_task("t3", platform="other"), a_task("t4", platform="unasked"))
    work = await client.get_work(500, ["echo", "other"])
    assert [task.task_id for task in work.tasks] == ["t1", "t3"], "one per platform and priority"
    assert work.retry_after == 5.0
    assert gateway.requests[0].target == "/internal/work?capacity=100&platforms=echo&platforms=other"


async def test_no_work_says_when_to_ask_again(gateway: HostileGateway, client: GatewayClient) -> None:
    work = await client.get_work(0, ["echo"])
    assert (work.tasks, work.bad, work.retry_after) == ([], [], 30.0)
    assert gateway.requests[0].query["capacity"] == ["1"]


async def test_every_request_says_who_it_is_from(gateway: HostileGateway, client: GatewayClient) -> None:
    await client.heartbeat(a_beat())
    headers = gateway.requests[0].headers
    assert (headers["x-worker-token"], headers["x-worker-id"]) == (gateway.token, "w-1")
    assert headers["accept-encoding"] == "identity"


async def test_results_are_stored_in_order(gateway: HostileGateway, client: GatewayClient) -> None:
    answer = await client.submit_results([an_entry("t1"), an_entry("t2", parcel_id="parcel-t1")])
    assert (answer.stored, answer.failed, answer.receipts) == (2, 0, {})
    (last,) = gateway.results.values()
    assert (last["task_id"], last["data"]) == ("t2", {"owner": "Ann"})


async def test_receipts_are_by_task(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.receipts = True
    gateway.play("results", traps.failing(lambda entry: entry["task_id"] == "t2"))
    answer = await client.submit_results([an_entry("t1"), an_entry("t2")])
    assert answer.receipts == {
        "t1": Receipt("t1", "stored"),
        "t2": Receipt("t2", "rejected", "could not be stored"),
    }
    again = await client.submit_results([an_entry("t1")])
    assert again.receipts == {"t1": Receipt("t1", "duplicate")}


async def test_a_raw_file_goes_as_it_is_on_disk(gateway: HostileGateway, client: GatewayClient, tmp_path: Path) -> None:
    path = tmp_path / "p.html.gz"
    path.write_bytes(gzip.compress(PAGE * 50_000, mtime=0))
    entry = an_entry(page=True)
    await client.upload_raw_file(entry, path)
    (stored,) = gateway.raw_files.values()
    assert (stored.name, stored.body) == (payloads.raw_file_name(entry), path.read_bytes())
    assert stored.metadata == json.loads(payloads.raw_file_metadata(entry))
    body = gateway.requests[0].body
    assert body.index(b'name="metadata"') < body.index(b'name="file"')
    assert "transfer-encoding" not in gateway.requests[0].headers


async def test_a_raw_file_that_is_gone_is_refused(client: GatewayClient, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="No such file"):
        await client.upload_raw_file(an_entry(page=True), tmp_path / "gone.html.gz")


async def test_an_artifact_is_uploaded_once_the_answer_is_about_it(
    gateway: HostileGateway, client: GatewayClient, tmp_path: Path
) -> None:
    path = tmp_path / "t1.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    told: dict[str, Any] = {"status": "ok", "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    for answer in (told, {"status": "ok"}):
        gateway.play("artifacts", traps.answer(answer))
        await client.upload_artifact("t1", "screenshot", path)
    gateway.play("artifacts", traps.answer({**told, "sha256": "0" * 64}))
    with pytest.raises(Unavailable, match="another request"):
        await client.upload_artifact("t1", "screenshot", path)


async def test_a_failed_task_is_reported_with_its_reason(gateway: HostileGateway, client: GatewayClient) -> None:
    await client.report_end(an_end("t1", error="no luck"))
    assert gateway.failed == [("t1", {"error": "no luck", "attempts": 1, "permanent": True, "artifacts": []})]


@pytest.mark.parametrize("status", [TaskStatus.EXPIRED, TaskStatus.NOT_FOUND, TaskStatus.COMPLETED])
async def test_an_end_with_nothing_to_send_is_complete(
    gateway: HostileGateway, client: GatewayClient, status: TaskStatus
) -> None:
    await client.report_end(an_end("t1", status))
    assert (gateway.completed, gateway.failed) == (["t1"], [])


async def test_an_id_is_one_segment_of_the_path(gateway: HostileGateway, client: GatewayClient) -> None:
    task_ids = ["a/b", "../x", "a?b#c", "100%", "ü ~", "a%2Fb", ".x", 'a"<b>', "a b", "[x]"]
    for task_id in task_ids:
        await client.report_end(an_end(task_id))
    assert [reported for reported, _ in gateway.failed] == task_ids


async def test_what_may_stand_in_a_segment_is_not_escaped(gateway: HostileGateway, client: GatewayClient) -> None:
    task_id = "CT:hartford@1!$&'()*+,;=-._~"
    await client.report_end(an_end(task_id))
    await client.report_end(an_end(task_id, TaskStatus.COMPLETED))
    assert [request.target for request in gateway.requests] == [
        f"/internal/tasks/{task_id}/fail",
        f"/internal/tasks/{task_id}/complete",
    ]


@pytest.mark.parametrize("task_id", [".", "..", ""])
async def test_an_id_that_no_path_can_hold_is_refused(
    gateway: HostileGateway, client: GatewayClient, task_id: str
) -> None:
    with pytest.raises(Refused):
        await client.report_end(an_end(task_id))
    assert gateway.requests == []


@pytest.mark.parametrize("trap", [traps.status(404), traps.status(405), traps.redirect("/internal/tasks/a/b/fail")])
async def test_an_odd_id_that_a_gateway_cannot_find_its_way_with_is_refused_alone(
    gateway: HostileGateway, client: GatewayClient, trap: Trap
) -> None:
    gateway.play("fail", trap)
    with pytest.raises(Refused):
        await client.report_end(an_end("a//b"))


async def test_a_heartbeat_brings_commands_back(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.commands = ["pause", "platforms:a,b"]
    assert (await client.heartbeat(a_beat())).commands == ["pause", "platforms:a,b"]
    assert (await client.heartbeat(a_beat())).commands == []
    assert gateway.beats[0]["queue"]["unsynced"] == 5
    assert (gateway.beats[0]["oldest_unsynced_seconds"], gateway.beats[0]["memory_percent"]) == (6.5, 0.0)


async def test_the_optional_parts_are_used_where_they_are(gateway: HostileGateway, client: GatewayClient) -> None:
    found = {"platform": "echo", "field": "f", "selector": "s", "selector_type": "css"}
    gateway.selectors = [{**found, "success_rate": 1, "samples": 2}]
    await client.submit_signals([SIGNAL], "first")
    await client.submit_metrics([MetricsSample(at=NOW, values={"tasks_completed": 3})])
    assert await client.get_selectors("echo") == [RankedSelector(**found, success_rate=1.0, samples=2)]
    assert gateway.signals[0]["selector"] == "#o"
    assert gateway.metrics == [{"timestamp": "2026-01-01T12:00:00.000Z", "tasks_completed": 3}]


@pytest.mark.parametrize("code", [404, 405])
async def test_the_optional_parts_may_be_missing(gateway: HostileGateway, client: GatewayClient, code: int) -> None:
    gateway.play("*", traps.status(code), times=None)
    with pytest.raises(NotOffered):
        await client.submit_signals([SIGNAL], "first")
    with pytest.raises(NotOffered):
        await client.submit_metrics([MetricsSample(at=NOW, values={})])
    with pytest.raises(NotOffered):
        await client.get_selectors("echo")


async def test_the_base_path_is_a_setting(gateway: HostileGateway) -> None:
    gateway.base_path = "/internal/parcel"
    settings = GatewaySettings(url=f"{gateway.url}/", base_path="internal/parcel/")
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        await client.get_work(1, ["echo"])
    assert gateway.requests[0].target.startswith("/internal/parcel/work?")


async def test_bodies_are_compressed_only_once_the_gateway_has_said_so(
    gateway: HostileGateway, client: GatewayClient
) -> None:
    large = an_entry("large", data=json.dumps({"text": "x" * 5_000}).encode())
    await client.submit_results([large])
    gateway.accepts_gzip = True
    await client.submit_results([large])
    await client.submit_results([large])
    await client.submit_results([an_entry("small")])
    encodings = [request.headers.get("content-encoding") for request in gateway.requests]
    assert encodings == [None, None, "gzip", None]
    assert len(gateway.submissions["large"]) == 3


async def test_a_gateway_that_takes_no_compressed_body_after_all_gets_plain_ones(
    gateway: HostileGateway, client: GatewayClient
) -> None:
    large = an_entry("large", data=json.dumps({"text": "x" * 5_000}).encode())
    gateway.play(
        "heartbeat", traps.answer({"acknowledged": True}, headers={"Accept-Encoding": "br, GZIP;q=0.5"}), times=2
    )
    await client.heartbeat(a_beat())
    assert (await client.submit_results([large])).stored == 1
    await client.heartbeat(a_beat())
    await client.submit_results([large])
    encodings = [request.headers.get("content-encoding") for request in gateway.requests]
    assert encodings == [None, "gzip", None, None, None], "it is not asked twice"


async def test_weight_zero_means_no(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.play("heartbeat", traps.answer({"acknowledged": True}, headers={"Accept-Encoding": "gzip; q=0.0"}))
    await client.heartbeat(a_beat())
    await client.submit_results([an_entry(data=json.dumps({"text": "x" * 5_000}).encode())])
    assert "content-encoding" not in gateway.requests[-1].headers
