"""What a failed attempt saw: uploaded once its report was asked for it, shown safely, and never in the way."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import IO, Any

import httpx2
import msgspec
import pytest

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.errors import RawStoreUnavailable
from parcelpost.events import Event, LoopFailed
from parcelpost.gateway.context import Context
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.model import Source, TaskStatus
from parcelpost.object_store import RawStore, open_raw_store
from parcelpost.protocol.payloads import MAX_ARTIFACT_BYTES
from parcelpost.settings.schema import GatewaySettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.worker.sync import SyncManager
from tests.gateway.served import Served, served
from tests.gateway.stage import PAGE, a_client, a_result, a_task, add_tasks, some_context
from tests.worker.rig import a_context

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 1_000
JPEG = b"\xff\xd8\xff\xe0" + b"x" * 100
WEBP = b"RIFF\x10\x00\x00\x00WEBPVP8 " + b"x" * 100
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture
async def context(tmp_path: Path, database: str) -> AsyncIterator[Context]:
    async with some_context(tmp_path, database=database) as context:
        yield context


@pytest.fixture
async def client(context: Context) -> AsyncIterator[httpx2.AsyncClient]:
    async with a_client(context) as client:
        yield client


def an_upload(kind: str, content: bytes, **metadata: Any) -> dict[str, Any]:
    told = {"task_id": "t1", "kind": kind, "sha256": hashlib.sha256(content).hexdigest(), **metadata}
    return {"data": {"metadata": json.dumps(told)}, "files": {"file": ("a", content, "application/gzip")}}


async def fail(context: Context, client: httpx2.AsyncClient, *kinds: str, task_id: str = "t1") -> dict[str, Any]:
    """Has a worker fail a task. Returns the reply to its report."""
    await add_tasks(context, a_task(task_id))
    await client.get("/internal/work?platforms=echo&capacity=9")
    body = {"error": "no table", "attempts": 3, "artifacts": list(kinds)}
    reply = await client.post(f"/internal/tasks/{task_id}/fail", json=body)
    assert reply.status_code == 200
    answer: dict[str, Any] = reply.json()
    return answer


async def artifacts(client: httpx2.AsyncClient, task_id: str = "t1") -> dict[str, Any]:
    """Paths by kind, as the task's page gets them. None: not uploaded yet."""
    found = (await client.get(f"/v1/tasks/{task_id}")).json()["artifacts"]
    return {artifact["kind"]: artifact["path"] for artifact in found}


async def test_a_report_that_names_them_is_asked_for_them_and_the_task_shows_them(
    context: Context, client: httpx2.AsyncClient
) -> None:
    reply = await fail(context, client, "page", "screenshot")
    assert reply == {
        "status": "reported",
        "success": True,
        "task_id": "t1",
        "wanted_artifacts": ["screenshot", "page"],
    }
    assert await artifacts(client) == {"screenshot": None, "page": None}
    for kind, content in (("screenshot", PNG), ("page", gzip.compress(PAGE))):
        answer = await client.post("/internal/artifacts", **an_upload(kind, content))
        assert answer.json() == {"status": "ok", "sha256": hashlib.sha256(content).hexdigest()}
    paths = await artifacts(client)
    screenshot, page = await client.get(paths["screenshot"]), await client.get(paths["page"])
    assert (screenshot.content, screenshot.headers["content-type"]) == (PNG, "image/png")
    assert (page.content, page.headers["content-type"]) == (PAGE, "text/html")
    for file in (screenshot, page):
        assert file.headers["x-content-type-options"] == "nosniff"
        assert file.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


async def test_images_are_known_by_their_content(context: Context, client: httpx2.AsyncClient) -> None:
    for task_id, content, media_type in (("jpeg", JPEG, "image/jpeg"), ("webp", WEBP, "image/webp")):
        await fail(context, client, "screenshot", task_id=task_id)
        upload = an_upload("screenshot", content, task_id=task_id)
        assert (await client.post("/internal/artifacts", **upload)).status_code == 200
        image = await client.get((await artifacts(client, task_id))["screenshot"])
        assert image.headers["content-type"] == media_type


BOMB = zlib.compress(b"0" * 2_000_000, wbits=31)
HOSTILE: dict[str, tuple[int, dict[str, Any]]] = {
    "a picture that is a program": (422, an_upload("screenshot", SVG)),
    "a picture that is a page": (422, an_upload("screenshot", b"<html>")),
    "an empty picture": (422, an_upload("screenshot", b"")),
    "another hash": (422, an_upload("screenshot", PNG, sha256="0" * 64)),
    "no hash": (422, an_upload("screenshot", PNG, sha256="x")),
    "an unknown kind": (422, an_upload("video", PNG)),
    "a kind that is a path": (422, an_upload("../../page", PNG)),
    "a picture that is too large": (413, an_upload("screenshot", PNG + b"x" * MAX_ARTIFACT_BYTES)),
    "a page that is not compressed": (422, an_upload("page", PAGE)),
    "a page that is cut off": (422, an_upload("page", gzip.compress(PAGE)[:-4])),
    "a page that unpacks to far more": (413, an_upload("page", BOMB)),
    "a task that nobody reported": (404, an_upload("screenshot", PNG, task_id="t2")),
    "a task that cannot exist": (404, an_upload("screenshot", PNG, task_id="../t1\x00")),
    "no metadata": (422, {**an_upload("screenshot", PNG), "data": {}}),
    "no form": (400, {"content": PNG}),
}


async def test_hostile_uploads_are_refused_and_leave_nothing(
    subtests: pytest.Subtests, tmp_path: Path, database: str
) -> None:
    settings: dict[str, Any] = {"database": database, "max_raw_bytes": 1_000_000}
    async with some_context(tmp_path, **settings) as context, a_client(context) as client:
        await fail(context, client, "screenshot", "page")
        for name, (status, upload) in HOSTILE.items():
            with subtests.test(name):
                answer = await client.post("/internal/artifacts", **upload)
                assert answer.status_code == status
                assert answer.json()["error"]["message"]
        assert await artifacts(client) == {"screenshot": None, "page": None}
        assert files(tmp_path) == []


async def test_only_the_worker_that_reported_may_upload_and_only_what_it_named_and_only_once(
    context: Context, client: httpx2.AsyncClient
) -> None:
    await fail(context, client, "screenshot")
    upload = an_upload("screenshot", PNG)
    other = {"X-Worker-ID": "w-2"}
    assert (await client.post("/internal/artifacts", **upload, headers=other)).status_code == 404
    assert (await client.post("/internal/artifacts", **an_upload("page", gzip.compress(PAGE)))).status_code == 404
    assert (await client.post("/internal/artifacts", **upload)).status_code == 200
    again = an_upload("screenshot", PNG + b"other")
    assert (await client.post("/internal/artifacts", **again)).status_code == 200, "its reply may have been lost"
    assert (await client.get((await artifacts(client))["screenshot"])).content == PNG


async def test_a_report_that_names_more_than_is_known_keeps_its_reason(
    context: Context, client: httpx2.AsyncClient
) -> None:
    reply = await fail(context, client, "video", "page", "page")
    assert reply["wanted_artifacts"] == ["page"]
    assert (await client.get("/v1/tasks/t1")).json()["error"] == "no table"


async def test_nothing_is_wanted_for_a_report_that_changes_nothing(
    context: Context, client: httpx2.AsyncClient
) -> None:
    await fail(context, client)
    body = {"error": "no table", "artifacts": ["page"]}
    for task_id in ("t1", "unknown"):
        again = await client.post(f"/internal/tasks/{task_id}/fail", json=body)
        assert again.json() == {"status": "reported", "success": False, "task_id": task_id}


async def test_a_later_failure_replaces_them(context: Context, client: httpx2.AsyncClient) -> None:
    for picture in (PNG, JPEG):
        await fail(context, client, "screenshot")
        assert (await client.post("/internal/artifacts", **an_upload("screenshot", picture))).status_code == 200
        await client.post("/v1/tasks/requeue", json={"task_ids": ["t1"]})
    image = await client.get((await artifacts(client))["screenshot"])
    assert (image.content, image.headers["content-type"]) == (JPEG, "image/jpeg")


async def test_a_later_failure_leaves_none_of_an_earlier_one(
    tmp_path: Path, context: Context, client: httpx2.AsyncClient
) -> None:
    left = []
    for kinds in (["screenshot", "page"], ["page"], []):
        await fail(context, client, *kinds)
        named = await artifacts(client)
        assert named == dict.fromkeys(kinds)
        for kind, content in (("screenshot", PNG), ("page", gzip.compress(PAGE))):
            status = (await client.post("/internal/artifacts", **an_upload(kind, content))).status_code
            assert status == (200 if kind in kinds else 404)
        await Maintenance(context).step()
        left.append(sorted(path.suffix for path in files(tmp_path)))
        await client.post("/v1/tasks/requeue", json={"task_ids": ["t1"]})
    assert left == [[".page", ".screenshot"], [".page"], []]


class Interrupted(RawStore):
    """Calls `meanwhile` before an artifact that was written is recorded."""

    meanwhile: Callable[[], Awaitable[object]]

    async def put_artifact(self, task_id: str, kind: str, content: IO[bytes]) -> None:
        await super().put_artifact(task_id, kind, content)
        await self.meanwhile()


def interrupted(context: Context, folder: Path, meanwhile: Callable[[], Awaitable[object]]) -> httpx2.AsyncClient:
    store = open_raw_store(str(folder / "raw"), {})
    store.__class__ = Interrupted
    store.meanwhile = meanwhile  # type: ignore[attr-defined]
    return a_client(msgspec.structs.replace(context, raw_store=store))


async def test_an_upload_that_is_sent_twice_at_once_is_stored(
    tmp_path: Path, context: Context, client: httpx2.AsyncClient
) -> None:
    await fail(context, client, "screenshot")
    async with interrupted(context, tmp_path, asyncio.Barrier(2).wait) as twice:
        uploads = [twice.post("/internal/artifacts", **an_upload("screenshot", PNG)) for _ in range(2)]
        assert [answer.status_code for answer in await asyncio.gather(*uploads)] == [200, 200]
    assert (await client.get((await artifacts(client))["screenshot"])).content == PNG


async def test_an_upload_of_a_task_that_is_deleted_meanwhile_leaves_no_file(
    tmp_path: Path, context: Context, client: httpx2.AsyncClient
) -> None:
    await fail(context, client, "screenshot")
    delete = partial(context.ledger.delete_artifact, "t1", "screenshot")
    async with interrupted(context, tmp_path, delete) as late:
        answer = await late.post("/internal/artifacts", **an_upload("screenshot", PNG))
    assert (answer.status_code, files(tmp_path)) == (404, [])


@pytest.mark.parametrize("task_id", ["t" * 500, "ü" * 250])
async def test_those_of_the_longest_task_id_can_be_read(
    context: Context, client: httpx2.AsyncClient, task_id: str
) -> None:
    await fail(context, client, "screenshot", task_id=task_id)
    await client.post("/internal/artifacts", **an_upload("screenshot", PNG, task_id=task_id))
    assert (await client.get((await artifacts(client, task_id))["screenshot"])).content == PNG


async def test_they_go_with_their_task_and_when_it_has_its_record(
    tmp_path: Path, context: Context, client: httpx2.AsyncClient
) -> None:
    for task_id in ("gone", "done", "kept"):
        await fail(context, client, "screenshot", task_id=task_id)
        await client.post("/internal/artifacts", **an_upload("screenshot", PNG, task_id=task_id))
    assert len(files(tmp_path)) == 3
    await client.post("/v1/tasks/delete", json={"task_ids": ["gone"]})
    await client.post("/v1/tasks/requeue", json={"task_ids": ["done"]})
    await client.get("/internal/work?platforms=echo&capacity=9")
    await client.post("/internal/results", json=[a_result("done")])
    await Maintenance(context).step()
    assert len(files(tmp_path)) == 1
    assert set(await artifacts(client, "kept")) == {"screenshot"}
    assert await artifacts(client, "done") == {}


async def test_only_so_many_are_kept(
    tmp_path: Path, context: Context, client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parcelpost.gateway.ledger.artifacts._MOST", 2)
    monkeypatch.setattr("parcelpost.gateway.maintenance._ARTIFACTS_AT_ONCE", 1)
    assert isinstance(context.clock, ManualClock)
    for number in range(4):
        await fail(context, client, "screenshot", task_id=f"t{number}")
        await client.post("/internal/artifacts", **an_upload("screenshot", PNG, task_id=f"t{number}"))
        context.clock.advance(1)
    maintenance = Maintenance(context)
    for _ in range(2):
        await maintenance.step()
    kept = [bool(await artifacts(client, f"t{number}")) for number in range(4)]
    assert kept == [False, False, True, True]
    assert len(files(tmp_path)) == 2


class Away(RawStore):
    async def delete_artifact(self, task_id: str, kind: str) -> None:
        raise RawStoreUnavailable("away")


async def test_a_raw_store_that_is_away_keeps_nothing_else_from_being_pruned(
    tmp_path: Path, context: Context, client: httpx2.AsyncClient
) -> None:
    assert isinstance(context.clock, ManualClock)
    await fail(context, client, "screenshot")
    await client.post("/internal/artifacts", **an_upload("screenshot", PNG))
    context.clock.advance(timedelta(days=60).total_seconds())
    store = open_raw_store(str(tmp_path / "raw"), {})
    store.__class__ = Away
    events: list[Event] = []
    away = Maintenance(msgspec.structs.replace(context, raw_store=store, emit=events.append))
    for _ in range(2):
        await away.step()
    assert await context.ledger.task("t1") is None
    (failure,) = [event for event in events if isinstance(event, LoopFailed)]
    assert failure.error == "RawStoreUnavailable: away"
    context.clock.advance(61)
    assert len(files(tmp_path)) == 1
    await Maintenance(context).step()
    assert files(tmp_path) == []


def files(folder: Path) -> list[Path]:
    return [path for path in (folder / "raw" / "artifacts").rglob("*") if path.is_file()]


# A real worker's store and client at a real gateway


@asynccontextmanager
async def a_worker(gateway: Served, folder: Path) -> AsyncIterator[tuple[LocalPersistenceManager, SyncManager]]:
    clock = SystemClock()
    async with (
        LocalPersistenceManager.open(folder / "store.db", clock=clock) as lpm,
        GatewayClient.open(GatewaySettings(url=gateway.address), "any", "harlow-01", clock.now) as client,
    ):
        sync = SyncManager(a_context(lpm, client, clock))
        yield lpm, sync
        await sync.close()


async def fail_here(gateway: Served, lpm: LocalPersistenceManager, task_id: str, screenshot: bytes | None) -> None:
    now = SystemClock().now()
    await gateway.ledger.add_tasks([a_task(task_id)], now)
    (grant,) = await gateway.ledger.grant("harlow-01", ["echo"], 1, now, now + timedelta(hours=1))
    await lpm.add_task(msgspec.structs.replace(grant.task, source=Source.GATEWAY))
    (claim,) = await lpm.claim(1)
    await lpm.artifacts.put(task_id, screenshot, "console: no table", PAGE)
    await lpm.give_up(claim, "the page has no table")


async def test_a_workers_report_comes_with_its_screenshot_and_its_page(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, a_worker(gateway, tmp_path) as (lpm, sync):
        await fail_here(gateway, lpm, "t1", PNG)
        await fail_here(gateway, lpm, "t/2", None)
        while await sync.last_step() == 0:
            pass
        assert await lpm.get_unsynced_results(9) == []
        async with httpx2.AsyncClient(base_url=gateway.address, trust_env=False) as client:
            assert set(await artifacts(client)) == {"screenshot", "page"}
            assert set(await artifacts(client, "t%2F2")) == {"page"}
            for task_id in ("t1", "t%2F2"):
                page = await client.get((await artifacts(client, task_id))["page"])
                assert page.content == PAGE
        row = await gateway.ledger.task("t1")
        assert row is not None
        assert (row.state, row.error) == ("failed", "the page has no table")


async def test_a_raw_store_that_is_away_costs_the_report_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway, a_worker(gateway, tmp_path) as (lpm, sync):
        (tmp_path / "raw" / "artifacts").write_text("no folder can be made here")
        for number in range(3):
            await fail_here(gateway, lpm, f"t{number}", PNG)
        while await sync.last_step() == 0:
            pass
        assert await lpm.get_unsynced_results(9) == []
        entry = await lpm.get_result("t1")
        assert entry is not None
        assert (entry.status, entry.synced_at is None) == (TaskStatus.FAILED, False)
        (tmp_path / "raw" / "artifacts").unlink()
        for _ in range(3):
            await sync.last_step()
        async with httpx2.AsyncClient(base_url=gateway.address, trust_env=False) as client:
            named = [await artifacts(client, f"t{number}") for number in range(3)]
        assert any(path for paths in named for path in paths.values()), "some are tried again"
