"""`parcelpost run` as an operator uses it: real processes, real signals, a real gateway over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import select
import signal
import socket
import sqlite3
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parcelpost.model import Source, Target, Task
from parcelpost.storage.lpm import LocalPersistenceManager
from tests.acceptance.forked import run_forked
from tests.acceptance.processes import FAST, PATIENCE_SECONDS, command, eventually, given, worker
from tests.hostile import HostileGateway, a_task
from tests.lengths import short_and_long
from tests.storage.factories import list_results


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "worker.log").read_text().splitlines() if line.startswith("{")]


async def add(folder: Path, *task_ids: str, **extra: object) -> None:
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        for task_id in task_ids:
            target = Target(parcel_id=task_id, state="CT", county="hartford", extra=extra)
            await lpm.add_task(Task(task_id=task_id, platform="echo", target=target, source=Source.CLI))


async def counts(folder: Path) -> dict[str, int]:
    async with LocalPersistenceManager.open(folder / "store.db") as lpm:
        depth = await lpm.queue_depth()
        return {"pending": depth.pending, "completed": depth.completed, "unsynced": depth.unsynced}


@pytest.mark.parametrize("mode", ["ondemand", "legacy"])
async def test_until_empty_works_through_all_that_is_offered_and_ends(tmp_path: Path, mode: str) -> None:
    async with HostileGateway() as gateway:
        gateway.offer(*(a_task(f"t{number}") for number in range(30)), a_task("bad", target={"fail": "give_up"}))
        arguments = ("--mode", mode, "--gateway", gateway.url, "--store", "store.db", "--until-empty")
        async with worker(*arguments, folder=tmp_path, token=gateway.token) as process:
            assert await process.ended() == 0
        assert len(gateway.submissions) == 30
        assert [task_id for task_id, _ in gateway.failed] == ["bad"]
        assert gateway.beats
        assert gateway.named_too_early == []
    assert await counts(tmp_path) == {"pending": 0, "completed": 30, "unsynced": 0}
    lines = (tmp_path / "worker.log").read_text().splitlines()
    assert "30 completed, 1 failed, 0 expired in this run; 0 to deliver, 0 rejected in the store" in lines
    assert lines[-1].startswith("1 of 31 tasks failed since this run started, most often with: ")
    assert "parcelpost tasks list --status failed" in lines[-1]


async def test_until_empty_ends_with_the_reason_when_the_gateway_is_dead_or_does_not_let_us_in(tmp_path: Path) -> None:
    async with HostileGateway() as gateway:
        for url, reason in ((gateway.url, "returned 401"), ("http://127.0.0.1:1", "ConnectError")):
            arguments = ("--gateway", url, "--store", "store.db", "--until-empty", "--give-up-after", "0.5")
            async with worker(*arguments, folder=tmp_path, token="wrong") as process:
                assert await process.ended() == 3
            lines = (tmp_path / "worker.log").read_text().splitlines()
            assert "0 completed, 0 failed, 0 expired in this run; 0 to deliver, 0 rejected in the store" in lines
            error = [line for line in lines if line.startswith("error: ")][-1]
            what = "error: gave up: the upstream has been unavailable for 0.5"
            assert error.startswith(what)
            assert reason in error
            assert any(line.startswith("hint: ") for line in lines)


async def test_a_summary_counts_the_run_and_not_the_store(tmp_path: Path) -> None:
    await add(tmp_path, "gone", fail="not_found")
    for task_ids in (("t1", "t2"), ("t3",)):
        await add(tmp_path, *task_ids)
        async with worker("--mode", "standalone", "--store", "store.db", "--until-empty", folder=tmp_path) as process:
            assert await process.ended() == 0
    told = [line for line in (tmp_path / "worker.log").read_text().splitlines() if "in this run" in line]
    assert told == [
        "2 completed, 1 not found, 0 failed, 0 expired in this run; 3 to deliver, 0 rejected in the store",
        "1 completed, 0 failed, 0 expired in this run; 4 to deliver, 0 rejected in the store",
    ]


async def test_standalone_keeps_its_results_and_a_later_gateway_gets_them(tmp_path: Path) -> None:
    await add(tmp_path, "a", "b", "c")
    async with worker("--mode", "standalone", "--store", "store.db", "--until-empty", folder=tmp_path) as process:
        assert await process.ended() == 0
    assert await counts(tmp_path) == {"pending": 0, "completed": 3, "unsynced": 3}
    said = [line for line in log(tmp_path) if line["event"] == "WorkProgress"]
    assert {line["level"] for line in said} == {"info"}
    assert sum(said[0][state] for state in ("pending", "processing", "completed")) == 3
    assert (said[-1]["pending"], said[-1]["processing"], said[-1]["completed"]) == (0, 0, 3)
    async with HostileGateway() as gateway:
        arguments = ("--mode", "standalone", "--gateway", gateway.url, "--store", "store.db", "--until-empty")
        async with worker(*arguments, folder=tmp_path, token=gateway.token) as process:
            assert await process.ended() == 0
        assert sorted(gateway.submissions) == ["a", "b", "c"]
        assert gateway.count("work") == 0


@short_and_long("tasks", (80,), (200,))
async def test_standalone_goes_on_after_a_kill(tmp_path: Path, tasks: int) -> None:
    await add(tmp_path, *(f"t{number:03}" for number in range(tasks)), delay_ms=20)
    async with worker("--mode", "standalone", "--store", "store.db", folder=tmp_path) as process:
        async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
            await eventually(lambda: _has_results(lpm, tasks // 10))
        process.kill()
        await process.ended()
    async with worker("--mode", "standalone", "--store", "store.db", "--until-empty", folder=tmp_path) as process:
        assert await process.ended() == 0
    assert (await counts(tmp_path))["completed"] == tasks


async def test_a_person_who_waits_at_a_terminal_sees_progress(tmp_path: Path) -> None:
    await add(tmp_path, "endless", fail="hang")
    ours, theirs = pty.openpty()
    settings = {**FAST, "worker.drain_seconds": "0.1"}
    arguments = command("run", "--mode", "standalone", "--store", "store.db", "--until-empty", settings=settings)
    process = await asyncio.create_subprocess_exec(*arguments, cwd=tmp_path, stderr=theirs)
    os.close(theirs)
    await asyncio.to_thread(_read_until, ours, b"0 tasks to do, 1 running, 0 completed, 0 failed")
    process.send_signal(signal.SIGINT)
    await asyncio.to_thread(_read_until, ours, b"1 task to do, 0 running, 0 completed, 0 failed")
    assert await asyncio.wait_for(process.wait(), PATIENCE_SECONDS) == 0
    os.close(ours)


def _read_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        assert select.select([terminal], [], [], PATIENCE_SECONDS)[0], seen
        seen += os.read(terminal, 65_536)


async def _has_results(lpm: LocalPersistenceManager, count: int) -> bool:
    return len(await list_results(lpm, limit=count)) == count


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_what_runs_and_delivers_it(tmp_path: Path, number: signal.Signals) -> None:
    async with HostileGateway() as gateway:
        gateway.offer(a_task("slow", target={"delay_ms": 700}))
        arguments = ("--gateway", gateway.url, "--store", "store.db", "--slots", "2")
        async with worker(*arguments, folder=tmp_path, token=gateway.token) as process:
            await gateway.until(lambda: any(beat["active_tasks"] == 1 for beat in gateway.beats))
            process.send_signal(number)
            assert await process.ended() == 0
        assert list(gateway.submissions) == ["slow"]
        last = gateway.beats[-1]
        assert (last["leaving"], last["active_tasks"]) == (True, 0)
        assert (last["queue"]["completed"], last["queue"]["unsynced"]) == (1, 0)
        assert not any(beat["leaving"] for beat in gateway.beats[:-1])
    (stopped,) = [line for line in log(tmp_path) if line["event"] == "WorkerStopped"]
    assert (stopped["reason"], stopped["released"]) == (number.name, 0)


async def test_what_does_not_end_in_its_grace_time_goes_back_to_the_queue(tmp_path: Path) -> None:
    async with HostileGateway() as gateway:
        gateway.offer(a_task("endless", target={"fail": "hang"}))
        settings = {**FAST, "worker.drain_seconds": "0.3"}
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        async with worker(*arguments, folder=tmp_path, token=gateway.token, settings=settings) as process:
            await gateway.until(lambda: any(beat["active_tasks"] == 1 for beat in gateway.beats))
            process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
    assert (await counts(tmp_path))["pending"] == 1


async def test_idle_slots_wait_for_a_store_that_another_program_holds_and_a_drain_does_not(tmp_path: Path) -> None:
    settings = {**FAST, "storage.busy_timeout_seconds": "0.1", "worker.drain_seconds": "3000"}
    arguments = ("--mode", "standalone", "--store", "store.db", "--slots", "3")
    async with worker(*arguments, folder=tmp_path, settings=settings) as process:
        await process.said("WorkerStarted")
        with contextlib.closing(sqlite3.connect(tmp_path / "store.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            await process.said("StoreNotWritable")
            other.execute("ROLLBACK")
            await process.said("StoreWritable")
            other.execute("BEGIN IMMEDIATE")
            await process.said("StoreNotWritable", times=2)
            process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
    assert [line for line in log(tmp_path) if line["event"] == "LoopFailed" and line["loop"].startswith("slot")] == []


async def test_a_second_signal_stops_at_once_and_loses_nothing(tmp_path: Path) -> None:
    async with HostileGateway() as gateway:
        gateway.offer(a_task("endless", target={"fail": "hang"}), a_task("done", priority=1))
        settings = {**FAST, "worker.drain_seconds": "3000"}
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        async with worker(*arguments, folder=tmp_path, token=gateway.token, settings=settings) as process:
            await gateway.until(lambda: bool(gateway.beats) and gateway.beats[-1]["active_tasks"] == 1)
            await gateway.until(lambda: "done" in gateway.submissions)
            process.send_signal(signal.SIGINT)
            await process.said("WorkerDraining")
            process.send_signal(signal.SIGINT)
            assert await process.ended() == 0
    assert (await counts(tmp_path))["pending"] == 1


async def test_the_gateways_commands_are_obeyed(tmp_path: Path) -> None:
    async with HostileGateway() as gateway:
        gateway.commands = ["pause"]
        gateway.nothing_for = 1
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        async with worker(*arguments, folder=tmp_path, token=gateway.token) as process:
            await gateway.until(lambda: any(beat["paused"] for beat in gateway.beats))
            gateway.offer(a_task("t1"))
            gateway.commands = ["nonsense"]
            beats = len(gateway.beats)
            await gateway.until(lambda: len(gateway.beats) > beats + 1)
            assert gateway.submissions == {}
            gateway.commands = ["resume"]
            await asyncio.wait_for(gateway.until(lambda: "t1" in gateway.submissions), PATIENCE_SECONDS)
            gateway.commands = ["drain"]
            assert await process.ended() == 0


@short_and_long("tasks", (60,), (120,))
async def test_three_processes_share_one_store_and_do_every_task_once(tmp_path: Path, tasks: int) -> None:
    async with HostileGateway(many_at_once=True) as gateway:
        gateway.offer(*(a_task(f"t{number:03}", target={"delay_ms": 5}) for number in range(tasks)))
        arguments = ("--gateway", gateway.url, "--store", "store.db", "--until-empty")
        async with (
            worker(*arguments, folder=tmp_path, token=gateway.token) as one,
            worker(*arguments, folder=tmp_path, token=gateway.token) as two,
            worker(*arguments, folder=tmp_path, token=gateway.token) as three,
        ):
            assert [await process.ended() for process in (one, two, three)] == [0, 0, 0]
        assert len(gateway.submissions) == tasks
        assert {len({entry["idempotency_key"] for entry in sent}) for sent in gateway.submissions.values()} == {1}
        ids = {request.headers["x-worker-id"] for request in gateway.requests}
        assert len(ids) == 1, "one store is one worker upstream"
        assert [beat.get("leaving", False) for beat in gateway.beats].count(True) >= 1
    ended_once = [line for line in log(tmp_path) if line["event"] == "WorkerStopped"]
    assert len(ended_once) == 3


async def test_when_the_process_that_delivers_is_stopped_another_goes_on_and_it_does_no_harm_when_it_continues(
    tmp_path: Path,
) -> None:
    settings = {**FAST, "storage.hung_after_seconds": "3", "collector.low_water": "1", "collector.high_water": "2"}
    async with HostileGateway() as gateway:
        gateway.nothing_for = 0.1
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        async with worker(*arguments, folder=tmp_path, token=gateway.token, settings=settings) as stopped:
            gateway.offer(a_task("t0"))
            await stopped.said("ResultsSynced")
            beats = len(gateway.beats)
            await gateway.until(lambda: len(gateway.beats) > beats + 2)  # by then it is idle, and writes nothing
            stopped.send_signal(signal.SIGSTOP)
            async with worker(*arguments, folder=tmp_path, token=gateway.token, settings=settings) as other:
                await other.said("WorkerStarted")  # by then what the stopped one asked for is answered
                gateway.offer(a_task("t1"))
                await asyncio.wait_for(gateway.until(lambda: "t1" in gateway.submissions), PATIENCE_SECONDS)
                await other.said("PeerHung")
                stopped.send_signal(signal.SIGCONT)
                await other.said("PeerBack")
                gateway.offer(a_task("t2"))
                await asyncio.wait_for(gateway.until(lambda: "t2" in gateway.submissions), PATIENCE_SECONDS)
                for process in (stopped, other):
                    process.send_signal(signal.SIGTERM)
                    assert await process.ended() == 0
        assert {len({entry["idempotency_key"] for entry in sent}) for sent in gateway.submissions.values()} == {1}


async def test_many_workers_share_one_gateway(tmp_path: Path) -> None:
    async with HostileGateway(many_at_once=True) as gateway:
        gateway.offer(*(a_task(f"t{number:03}", target={"delay_ms": 5}) for number in range(80)))
        folders = [tmp_path / "one", tmp_path / "two"]
        for folder in folders:
            folder.mkdir()
        arguments = ("--gateway", gateway.url, "--store", "store.db", "--until-empty")
        settings = {**FAST, "collector.low_water": "5", "collector.high_water": "20"}
        async with (
            worker(*arguments, folder=folders[0], token=gateway.token, settings=settings) as one,
            worker(*arguments, folder=folders[1], token=gateway.token, settings=settings) as two,
        ):
            assert [await one.ended(), await two.ended()] == [0, 0]
        assert len(gateway.submissions) == 80
        assert sum([(await counts(folder))["completed"] for folder in folders]) == 80


async def test_health_and_metrics_are_served_and_the_token_is_nowhere(tmp_path: Path) -> None:
    port = _free_port()
    async with HostileGateway(token="s3cret-t0ken") as gateway:
        gateway.offer(a_task("t1"))
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        settings = {**FAST, "http.port": str(port), "log.level": "debug"}
        async with worker(*arguments, folder=tmp_path, token=gateway.token, settings=settings) as process:
            await asyncio.wait_for(gateway.until(lambda: "t1" in gateway.submissions), PATIENCE_SECONDS)
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                assert (await client.get("/healthz")).status_code == 200
                assert (await client.get("/readyz")).json() == {"status": "ok", "findings": []}
                assert "parcelpost_" in (await client.get("/metrics")).text
            process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
    for file in tmp_path.rglob("*"):
        if file.is_file():
            assert b"s3cret-t0ken" not in file.read_bytes(), file


async def test_a_refused_token_is_said_and_scraping_goes_on(tmp_path: Path) -> None:
    port = _free_port()
    await add(tmp_path, "a", "b")
    async with HostileGateway() as gateway:
        arguments = ("--gateway", gateway.url, "--store", "store.db")
        settings = {**FAST, "http.port": str(port)}
        async with worker(*arguments, folder=tmp_path, token="wrong", settings=settings) as process:
            async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
                await eventually(lambda: _has_results(lpm, 2))
            await process.said('"event": "UpstreamOffline", "loop": "sync"')
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert "upstream.unauthorized" in {one["id"] for one in ready.json()["findings"]}
    assert (await counts(tmp_path))["unsynced"] == 2


def test_what_cannot_be_run_is_refused_with_what_to_do(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for arguments, message in (
        (["--mode", "ondemand"], "needs gateway.url"),
        (["--mode", "sometimes"], "worker.mode"),
        (["--mode", "standalone", "--slots", "many"], "executor.slots"),
        (["--mode", "standalone", "--set", "sync.bach_size=3"], "sync.batch_size"),
        (["--gateway", "ftp://example.org"], "gateway.url"),
        (["--gateway", "http://gateway.example.org"], "there is no token"),
        (["--mode", "standalone", "--platforms", "ecko"], "not installed"),
    ):
        with subtests.test(arguments=arguments):
            ran = run_forked("run", *arguments, folder=tmp_path, timeout=PATIENCE_SECONDS)
            assert ran.returncode == 2
            assert message in ran.stderr
            assert "hint: " in ran.stderr
            assert list(tmp_path.iterdir()) == []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_a_worker_whose_store_is_moved_away_says_so_saves_nothing_and_goes_on_when_it_is_back(
    tmp_path: Path,
) -> None:
    folder, away = tmp_path / "local_data", tmp_path / "away"
    async with HostileGateway() as gateway:
        arguments = ("--gateway", gateway.url, "--store", "local_data/store.db")
        async with worker(*arguments, folder=tmp_path, token=gateway.token) as process:
            await process.said('"WorkerStarted"')
            folder.rename(away)
            await process.said('"StoreLost"')
            gateway.offer(*(a_task(f"t{number}") for number in range(30)))
            away.rename(folder)
            await process.said('"StoreFound"')
            await asyncio.wait_for(gateway.until(lambda: len(gateway.submissions) == 30), PATIENCE_SECONDS)
            (folder / "store.db").unlink()
            await process.said('"StoreLost"', times=2)
            process.send_signal(signal.SIGTERM)
            assert await process.ended() == 1
    assert "error: " in (tmp_path / "worker.log").read_text()
    assert "Traceback" not in (tmp_path / "worker.log").read_text()


async def test_commands_say_that_the_store_was_moved_away_under_a_worker_and_create_no_second_one(
    tmp_path: Path,
) -> None:
    folder, away = tmp_path / "local_data", tmp_path / "away"
    adding = ("add", "echo", "1", "--state", "CT", "--county", "hartford", "--store", "local_data/store.db")

    def ran(*words: str) -> str:
        shown = run_forked(*words, folder=tmp_path, timeout=PATIENCE_SECONDS)
        return f"{shown.returncode} {shown.stdout}{shown.stderr}"

    arguments = ("--mode", "standalone", "--store", "local_data/store.db")
    async with worker(*arguments, folder=tmp_path) as process:
        await process.said('"WorkerStarted"')
        folder.rename(away)
        await process.said('"StoreLost"')
        for words in (adding, ("status", "--store", adding[-1])):
            shown = await asyncio.to_thread(ran, *words)
            assert shown.startswith("1 ")
            assert "open, but its file was moved or deleted" in shown
            assert "put it back, or stop that process" in shown
        assert not folder.exists(), "moving it back is as easy as before"
        moved = await asyncio.to_thread(ran, "status", "--store", "away/store.db")
        assert f"has this store open as {folder / 'store.db'}: it was moved while that process ran" in moved
        away.rename(folder)
        await process.said('"StoreFound"')
        assert (await asyncio.to_thread(ran, *adding)).startswith("0 ")
        folder.rename(away)
        await process.said('"StoreLost"', times=2)
        process.send_signal(signal.SIGTERM)
        await process.ended()
    assert [path.name for path in tmp_path.glob(".*")] == [], "the notice goes with the worker"
    assert (await asyncio.to_thread(ran, *adding)).startswith("0 ")


def test_too_low_a_limit_of_open_files_is_told_with_the_number_that_is_needed(tmp_path: Path) -> None:
    for arguments, needed in ((("run", "--mode", "standalone", "--slots", "4"), 224), (("gateway", "serve"), 128)):
        ran = run_forked(*arguments, folder=tmp_path, open_files=(40, 40), timeout=PATIENCE_SECONDS)
        assert ran.returncode == 2
        assert f"needs {needed} open files, but the system allows this process only 40" in ran.stderr
        assert "LimitNOFILE" in ran.stderr
        assert "Traceback" not in ran.stderr


async def test_a_soft_limit_of_open_files_is_raised_to_the_hard_one(tmp_path: Path) -> None:
    await add(tmp_path, "a")
    words = ("run", "--mode", "standalone", "--store", "store.db", "--until-empty", *given(FAST))
    ran = run_forked(*words, folder=tmp_path, open_files=(40, 400), timeout=PATIENCE_SECONDS)
    assert ran.returncode == 0, ran.stderr
