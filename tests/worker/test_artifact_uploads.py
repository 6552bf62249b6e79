"""Artifacts of failed tasks go only to an upstream that asks for them, and never hold up a report."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing

import pytest

from parcelpost.cli.worker_setup import open_worker
from parcelpost.events import ArtifactNotUploaded
from parcelpost.settings.sources import load
from parcelpost.worker.control import Control
from tests import traps
from tests.hostile import HostileGateway, Play, Reply, Request, Trap
from tests.worker.rig import Rig

PNG = b"\x89PNG\r\n\x1a\n" + b"x" * 100
WANTED = {"status": "reported", "success": True, "wanted_artifacts": ["screenshot", "page", "video", 7]}


async def fail(rig: Rig, *task_ids: str) -> None:
    for task_id in task_ids:
        claim = await rig.claim(task_id)
        await rig.lpm.artifacts.put(task_id, PNG, "a log", b"<html>")
        await rig.lpm.give_up(claim, "no table")


async def test_a_gateway_that_does_not_know_them_gets_the_report_and_nothing_else(rig: Rig) -> None:
    await fail(rig, "t1", "t2")
    await rig.settle()
    while await rig.sync.last_step() == 0:
        pass
    body = {"error": "no table", "attempts": 1, "permanent": True, "artifacts": ["screenshot", "page"]}
    assert rig.gateway.failed == [("t1", body), ("t2", body)]
    assert {request.name for request in rig.gateway.requests} == {"fail"}


@pytest.mark.parametrize(
    "trap", [traps.status(404), traps.status(413), traps.status(422), traps.status(500), traps.html(), traps.cut()]
)
async def test_reports_are_delivered_whatever_happens_to_uploads(rig: Rig, trap: Trap) -> None:
    rig.gateway.play("fail", traps.answer(WANTED), times=None)
    rig.gateway.play("artifacts", trap, times=None)
    await fail(rig, "t1", "t2")
    await rig.settle()
    await rig.sync.last_step()
    assert rig.offline is None
    assert await rig.lpm.get_unsynced_results(9) == []
    await rig.sync.close()


async def test_a_report_does_not_wait_for_an_upload_that_hangs(rig: Rig) -> None:
    rig.gateway.play("fail", traps.answer(WANTED), times=None)
    rig.gateway.play("artifacts", traps.silence(), times=None)
    await fail(rig, "t1")
    await rig.settle()
    await rig.gateway.until(lambda: rig.gateway.count("artifacts") == 1)
    await fail(rig, "t2")
    async with asyncio.timeout(2):
        await rig.settle()
    assert rig.gateway.count("fail") == 2
    await rig.sync.close()


async def test_an_upload_is_tried_three_times(rig: Rig) -> None:
    rig.gateway.play("fail", traps.answer({**WANTED, "wanted_artifacts": ["page"]}), times=None)
    rig.gateway.play("artifacts", lambda _gateway, _request: Reply(503, {}), times=None)
    await fail(rig, "t1")
    for _ in range(6):
        await rig.sync.step()
        await asyncio.sleep(0.05)
        rig.clock.advance(600)
    assert rig.gateway.count("artifacts") == 3
    (given_up,) = rig.seen(ArtifactNotUploaded)
    assert isinstance(given_up, ArtifactNotUploaded)
    assert (given_up.task_id, given_up.kind) == ("t1", "page")
    assert "503" in given_up.reason
    await rig.sync.close()


async def test_an_upload_that_is_refused_is_given_up_and_the_next_one_is_made(rig: Rig) -> None:
    rig.gateway.play("fail", traps.answer(WANTED), times=None)
    rig.gateway.play("artifacts", traps.status(422), times=None)
    await fail(rig, "t1")
    await rig.settle()
    await rig.sync.last_step()
    assert [getattr(event, "kind", "") for event in rig.seen(ArtifactNotUploaded)] == ["screenshot", "page"]


async def test_a_report_goes_without_artifacts_whose_row_is_damaged(rig: Rig) -> None:
    await fail(rig, "t1", "t2")
    with closing(sqlite3.connect(rig.lpm.path)) as db, db:
        db.execute("UPDATE artifacts SET created_at = 'soon' WHERE task_id = 't1'")
    await rig.settle()
    assert [(task_id, body["artifacts"]) for task_id, body in rig.gateway.failed] == [
        ("t1", []),
        ("t2", ["screenshot", "page"]),
    ]


async def test_a_worker_that_leaves_waits_for_its_last_uploads(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parcelpost.worker.loop._GOODBYE_SECONDS", 0.0)
    uploaded = []

    def slowly(_gateway: HostileGateway, _request: Request) -> Play:
        async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await asyncio.sleep(0.3)
            uploaded.append(1)
            writer.write(Reply(200, {"status": "ok"}).encoded())
            await writer.drain()

        return play

    rig.gateway.play("fail", traps.answer(WANTED), times=None)
    rig.gateway.play("artifacts", slowly, times=None)
    await fail(rig, "t1")
    flags = {"storage.path": str(rig.lpm.path), "gateway.url": rig.gateway.url}
    settings = load(config=None, environment={"PARCELPOST_GATEWAY_TOKEN": rig.gateway.token}, flags=flags).settings
    control = Control()
    async with open_worker(settings, {}, control, progress_seconds=60) as worker:
        running = asyncio.create_task(worker.run("ondemand"))
        await rig.gateway.until(lambda: rig.gateway.count("artifacts") == 1)
        control.leave("the end of the test")
        await running
    assert len(uploaded) == 2
