"""`parcelpost status`: what is worth a person's attention, and what is only worth a line."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.model import Source
from parcelpost.schedule import Timing
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import SyncRound
from parcelpost.storage.locks import live_folder
from parcelpost.worker.schedules import StoredSchedule
from parcelpost.worker.status import MemoryPressure
from tests.cli.support import GONE, Run, a_status, held_here, holder, make_store, publish_status, task
from tests.storage.crash.peer import Peer
from tests.storage.factories import claim_one, save_one


def status(run: Run, store: Path, *arguments: object) -> str:
    ran = run("status", *arguments, "--store", store)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def work(store: Path, *, done: int, failed: int) -> Path:
    """A store in which so many tasks were done and given up."""

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for number in range(done):
                await save_one(lpm, task(f"done{number}"))
            await lpm.add_tasks(task(f"failed{number}") for number in range(failed))
            for claim in await lpm.claim(failed) if failed else []:
                await lpm.give_up(claim, f"no table on page {claim.seq}")

    asyncio.run(make())
    return store


def test_when_every_task_fails_that_is_said_with_the_reason_and_the_next_step(tmp_path: Path, run: Run) -> None:
    store = work(tmp_path / "parcelpost.db", done=0, failed=6)
    (line,) = [line for line in status(run, store).splitlines() if line.startswith("Warning: 6 of 6")]
    assert line.startswith("Warning: 6 of 6 tasks failed in the last 24 h, most often with: no table on page ")
    assert f"'parcelpost tasks list --status failed --store {store}'" in line
    assert f"'parcelpost tasks retry --status failed --store {store}'" in line
    found = json.loads(status(run, store, "--json"))
    assert (found["ok"], found["failures"]["failed"], found["failures"]["ended"]) == (False, 6, 6)
    assert "Warning: 6 of 6 tasks" in run("store", "status", "--store", store).out


def test_a_failure_among_many_is_told_without_an_alarm(tmp_path: Path, run: Run) -> None:
    store = work(tmp_path / "parcelpost.db", done=30, failed=1)
    out = status(run, store)
    assert "Warning: 1 of" not in out
    assert "failed         1 of 31 tasks failed in the last 24 h, most often with: no table on page 31\n" in out


def test_a_raw_folder_that_is_gone_while_pages_wait_for_delivery_is_no_matter_of_the_gateway(
    full_store: Path, run: Run
) -> None:
    data = full_store.parent / "data"
    data.rename(data.with_name("away"))
    out = status(run, full_store)
    assert f"nothing can be delivered: the raw folder {data} was deleted or moved, or its volume is not" in out
    assert "put the folder back or mount it" in out
    assert "results reject" not in out
    data.with_name("away").rename(data)
    assert "nothing can be delivered" not in status(run, full_store)


def test_what_is_requeued_is_handled(tmp_path: Path, run: Run) -> None:
    store = work(tmp_path / "parcelpost.db", done=0, failed=2)
    assert run("tasks", "retry", "--status", "failed", "--yes", "--store", store).code == 0
    assert "most often" not in status(run, store)


def test_nothing_failed_in_a_new_store(tmp_path: Path, run: Run) -> None:
    assert "most often" not in status(run, make_store(tmp_path / "parcelpost.db"))


def obey(store: Path, owner: str, *, paused: bool, platforms: tuple[str, ...] = (), name: str = "w 1") -> None:
    """As a process of the worker `w 1`."""
    since = SystemClock().now() if paused else None
    publish_status(store, a_status(owner, name=name, worker_id="w 1", paused_since=since, platforms=platforms))


def test_a_pause_by_the_gateway_is_told_with_how_to_end_it(store: Path, run: Run) -> None:
    with held_here(store) as worker:
        obey(store, worker, paused=True, platforms=("vgsi",))
        out = status(run, store)
        assert re.match(r"Warning: the gateway has paused worker w 1: it starts no tasks", out)
        assert "parcelpost gateway command resume --worker" in out
        assert "commands       pause, only vgsi (from the gateway, for w 1)\n" in out
        found = json.loads(status(run, store, "--json"))
        assert [one["id"] for one in found["findings"]] == ["worker.paused"]
        assert (found["statuses"][0]["paused_since"] is None, found["statuses"][0]["platforms"]) == (False, ["vgsi"])
        obey(store, worker, paused=False)
        out = status(run, store)
        assert "has paused" not in out
        assert "\ncommands " not in out


def test_a_pause_that_only_one_process_of_a_worker_has_heard_of_is_told_once(store: Path, run: Run) -> None:
    with held_here(store, claims=0) as first, held_here(store, claims=0) as second:
        obey(store, first, paused=True, name="w 1")
        obey(store, second, paused=False, name="w 1-2")
        assert status(run, store).count("has paused worker w 1") == 1
        obey(store, first, paused=False, name="w 1")
        obey(store, second, paused=True, name="w 1-2")
        assert status(run, store).count("has paused worker w 1") == 1


def test_a_command_ends_with_the_process_that_followed_it(store: Path, run: Run) -> None:
    obey(store, GONE, paused=True)
    with held_here(store):
        assert "paused" not in status(run, store)


def strain(store: Path, owner: str, *, starts_tasks: bool, summary: str) -> None:
    memory = MemoryPressure(since=SystemClock().now(), starts_tasks=starts_tasks, summary=summary)
    publish_status(store, a_status(owner, name="w 1", memory=memory))


def test_a_worker_that_starts_nothing_for_want_of_memory_is_told_with_what_to_do(store: Path, run: Run) -> None:
    with held_here(store) as worker:
        strain(store, worker, starts_tasks=False, summary="86% of the memory is used: no task is started")
        out = status(run, store)
        assert re.match(r"Warning: worker w 1: 86% of the memory is used: no task is started \(for \d+ s\)\. Fix", out)
        strain(store, worker, starts_tasks=True, summary="76% of the memory is used: half of the slots run tasks")
        out = status(run, store)
        assert out.startswith("No problems found.\n")
        assert "\nNote: worker w 1: 76%" in out
        publish_status(store, a_status(worker, name="w 1"))
        assert "of the memory" not in status(run, store)


def test_want_of_memory_ends_with_the_process_that_had_it(store: Path, run: Run) -> None:
    strain(store, GONE, starts_tasks=False, summary="86% of the memory is used")
    with held_here(store):
        assert "of the memory" not in status(run, store)


def finish(store: Path, *, source: Source) -> Path:
    """A store with one result that waits to be delivered."""

    async def make() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await save_one(lpm, task("done", source=source))

    asyncio.run(make())
    return store


def test_results_to_deliver_and_no_worker_need_attention(tmp_path: Path, run: Run) -> None:
    store = finish(tmp_path / "parcelpost.db", source=Source.GATEWAY)
    out = status(run, store)
    assert out.startswith("Error: 1 result to deliver, but no worker is running. Fix: start one with ")
    assert f"'parcelpost run --mode ondemand --gateway URL --store {store}'" in out
    with held_here(store, claims=0):
        assert status(run, store).startswith("No problems found.\n")


def test_results_that_nobody_ordered_may_stay_where_no_gateway_is_set(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = finish(tmp_path / "parcelpost.db", source=Source.LOCAL_FILE)
    assert status(run, store).startswith("No problems found.\n")
    monkeypatch.setenv("PARCELPOST_GATEWAY_URL", "https://gateway.example.org")
    assert status(run, store).startswith("Error: 1 result to deliver, but no worker is running.")


def test_tasks_of_a_file_are_done_without_a_gateway(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    assert run("add", "echo", "1", "--state", "CT", "--county", "hartford", "--store", store).code == 0
    assert f"start one with 'parcelpost run --mode standalone --store {store}'." in status(run, store)


def test_a_death_beside_a_worker_that_lives_is_no_reason_to_start_one(store: Path, run: Run) -> None:
    with held_here(store, claims=1), holder(store, claims=1) as peer:
        peer.send_signal(signal.SIGKILL)
        peer.wait()
        out = status(run, store)
    assert out.startswith("No problems found.\n")
    assert f"\ncrashed        -{peer.pid}-" in out.replace("holder", "")


def test_a_process_that_hangs_is_named_with_its_id_and_what_it_holds(store: Path, run: Run) -> None:
    with Peer(store) as process:
        held = len(process.ask("claim", "1"))
        process.suspend()
        (lock,) = live_folder(store).glob("peer-*.lock")
        an_hour_ago = SystemClock().now().timestamp() - 3_600
        os.utime(lock, (an_hour_ago, an_hour_ago))
        out = status(run, store)
        pid = process.process.pid
        says = f"process {pid} ({lock.stem}) has not responded for 60 min and holds {held} task"
        assert out.startswith(f"Error: {says}")
        assert f"kill -CONT {pid}" in out
        examined = run("doctor", "--store", store, "--json")
        assert examined.code == 1
        assert says in examined.out
        os.utime(lock, (an_hour_ago, an_hour_ago))
        process.resume()
        assert "not responded" not in status(run, store), "it is given the time for one"


def test_the_last_delivery_is_one_of_results(store: Path, run: Run) -> None:
    async def log() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for kind in ("results", "raw_files"):
                await lpm.sync_log.record(
                    SyncRound(direction="upload", record_type=kind, record_count=1, success=True, duration_ms=1)
                )

    asyncio.run(log())
    assert re.search(r"last delivery  \d+ s ago, 1 result\n", status(run, store))
    assert "1 raw file  " in run("log", "--store", store).out


def test_a_clock_that_was_set_back_is_told_before_and_after_a_worker_has_corrected_the_delays(
    tmp_path: Path, run: Run
) -> None:
    store = tmp_path / "parcelpost.db"

    async def retry_in_ten_years() -> None:
        ahead = ManualClock(SystemClock().now() + timedelta(days=3_650))
        async with LocalPersistenceManager.open(store, clock=ahead) as lpm:
            await lpm.retry_later(await claim_one(lpm, task("late")), "timeout", timedelta(hours=1))

    async def correct() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.maintenance.correct_times()

    asyncio.run(retry_in_ten_years())
    assert "Error: the clock was set back: 1 task and 0 paused platforms are waiting for a time" in status(run, store)
    asyncio.run(correct())
    assert "the clock was set back by 3,650 days in the last 24 h" in status(run, store)


def test_a_county_that_is_older_than_its_schedule_asks_for_is_named(tmp_path: Path, run: Run) -> None:
    store, settings = tmp_path / "parcelpost.db", tmp_path / "parcelpost.toml"
    settings.write_text('[schedules.weekly]\nplatform = "vgsi"\nstate = "CT"\ncounty = "hartford"\nevery = "7d"\n')

    async def make() -> None:
        clock = ManualClock(SystemClock().now() - timedelta(days=30))
        async with LocalPersistenceManager.open(store, clock=clock) as lpm:
            await save_one(lpm, task("old", source=Source.CLI))
            timing, now = Timing(every_seconds=7 * 86_400), clock.now()
            await lpm.state.put("schedule weekly", StoredSchedule(timing=timing, anchor=now, next_run_at=now))

    asyncio.run(make())
    out = status(run, store, "--config", settings)
    assert "schedule weekly is behind: 1 of 1 parcel at vgsi CT/hartford were not scraped in the last 8 days" in out
    (shown,) = json.loads(status(run, store, "--config", settings, "--json"))["schedules"]
    assert (shown["parcels"], shown["fresh"], shown["is_stale"]) == (1, 0, True)
    settings.write_text(settings.read_text() + "paused = true\n")
    out = status(run, store, "--config", settings)
    assert "is behind" not in out
    assert re.search(r"weekly .* paused +1 ", out)


def test_a_list_that_is_older_than_its_schedule_asks_for_is_named(tmp_path: Path, run: Run) -> None:
    store, settings = tmp_path / "parcelpost.db", tmp_path / "parcelpost.toml"
    place = 'platform = "govease"\nstate = "AL"\ncounty = "mobile"\nurl = "https://example.org/"\n'
    settings.write_text(f'[schedules.sales]\n{place}every = "7d"\nlist = true\n')

    async def make() -> None:
        clock = ManualClock(SystemClock().now() - timedelta(days=30))
        async with LocalPersistenceManager.open(store, clock=clock) as lpm:
            await save_one(lpm, task("refresh-sales:1-list", source=Source.LOCAL_FILE))
            timing, now = Timing(every_seconds=7 * 86_400), clock.now()
            await lpm.state.put("schedule sales", StoredSchedule(timing=timing, anchor=now, next_run_at=now))

    asyncio.run(make())
    out = status(run, store, "--config", settings)
    assert "schedule sales is behind: its list was not scraped in the last 7 days" in out
    assert "a list" in out
