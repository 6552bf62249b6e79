"""`parcelpost status`: what it says first, what it shows, and that it only looks."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from parcelpost.cli.health.store_files import open_finding
from parcelpost.cli.settings_options import StoreContext
from parcelpost.clock import SystemClock
from parcelpost.errors import StoreReadOnly
from parcelpost.model import Broken
from parcelpost.settings import Settings
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import SyncRound
from parcelpost.worker.backoff import Offline
from parcelpost.worker.status import SlowUpstream, publish
from tests.cli.support import (
    COMMAND,
    GONE,
    Run,
    a_status,
    change,
    damage,
    held_here,
    holder,
    make_old,
    make_store,
    publish_status,
    rows,
)
from tests.storage.factories import a_result, a_task, save_one

NOW = SystemClock().now()


def put(
    store: Path,
    *rounds: SyncRound,
    away: Offline | None = None,
    loop: str = "sync",
    slow: SlowUpstream | None = None,
    owner: str = GONE,
) -> None:
    """What a worker that delivers leaves in the store."""

    async def write() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for one in rounds:
                await lpm.sync_log.record(one)
            await publish(lpm.state, a_status(owner, outages={loop: away} if away else {}, slow=slow))

    asyncio.run(write())


def a_round(*, direction: str = "upload", success: bool = True, count: int = 50) -> SyncRound:
    kind = "results" if direction == "upload" else "tasks"
    return SyncRound(direction=direction, record_type=kind, record_count=count, success=success)  # type: ignore[arg-type]


def an_away(*, denied: bool = False, until: timedelta = timedelta(hours=4)) -> Offline:
    reason = "401: who are you?" if denied else "no route to the gateway"
    return Offline(since=NOW - timedelta(hours=5), until=NOW + until, failures=3, reason=reason, denied=denied)


def status(run: Run, store: Path, *arguments: object) -> str:
    ran = run("status", *arguments, "--store", store)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def test_all_is_well_with_a_worker_and_a_backup(store: Path, run: Run) -> None:
    run("store", "backup", "--store", store)
    with holder(store) as process:
        out = status(run, store)
    assert out.startswith("No problems found.\n")
    assert f"(process {process.pid}, since " in out


def test_a_running_worker_that_cannot_write_to_the_store_is_told(store: Path, run: Run) -> None:
    with held_here(store) as worker:
        publish_status(store, a_status(worker, published_at=SystemClock().now() - timedelta(hours=7)))
        out = status(run, store)
        found = json.loads(status(run, store, "--json"))
        assert out.startswith(
            "Error: worker w1 has not been able to write to the store for 7 h. Fix: check its log and"
        )
        assert (found["ok"], found["findings"][0]["id"]) == (False, "store.not_writable")
        publish_status(store, a_status(worker, published_at=SystemClock().now() - timedelta(seconds=60)))
        assert "able to write" not in status(run, store), "a status is published every 30 s, or a little later"
        long_ago = SystemClock().now() - timedelta(hours=1)
        publish_status(store, a_status(worker, published_at=long_ago, cleaning_since=long_ago))
        assert "able to write" not in status(run, store), "the daily clean-up may hold the store for long"


def test_a_worker_that_has_ended_need_not_write_to_the_store(store: Path, run: Run) -> None:
    publish_status(store, a_status(GONE, published_at=SystemClock().now() - timedelta(hours=7)))
    assert "able to write" not in status(run, store)
    with held_here(store):
        assert "able to write" not in status(run, store)


def test_the_first_line_says_that_work_waits_for_a_worker(store: Path, run: Run) -> None:
    make_old(store, hours=27)
    out = status(run, store)
    assert out.startswith(
        "Error: 3 tasks to do, but no worker is running. "
        f"Fix: start one with 'parcelpost run --mode ondemand --gateway URL --store {store}'.\n"
        "Warning: there is no backup yet. Fix: run 'parcelpost store backup"
    )
    assert "\nworker         no worker is running\n" in out


def test_a_store_of_today_needs_no_backup_yet(store: Path, run: Run) -> None:
    assert "no backup" not in status(run, store)
    make_old(store, hours=25)
    assert "no backup" not in status(run, store)


def test_with_a_gateway_a_worker_is_started_without_a_mode(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCELPOST_STORE", str(store))
    monkeypatch.setenv("PARCELPOST_GATEWAY_URL", "https://gateway.example.org")
    assert "start one with 'parcelpost run'." in run("status").out


@pytest.mark.parametrize("loop", ["collector", "heartbeat"])
def test_a_gateway_that_was_never_reached_is_said(store: Path, run: Run, loop: str) -> None:
    put(store, away=an_away(), loop=loop)
    assert "3 failures in 5 h: no route to the gateway" in status(run, store)


def test_an_empty_store_needs_no_worker(tmp_path: Path, run: Run) -> None:
    assert status(run, make_store(tmp_path / "parcelpost.db")).startswith("No problems found.\n")


def test_every_number_is_there(full_store: Path, run: Run) -> None:
    put(full_store, a_round(count=2), a_round(direction="download", count=7), a_round(success=False))
    out = status(run, full_store)
    assert "outbox         3 results to deliver, the oldest waiting for " in out
    assert "; 1 rejected\n" in out
    assert re.search(r"^last delivery  \d+ s ago, 2 results$", out, re.MULTILINE)
    assert re.search(r"^last tasks     \d+ s ago, 7 tasks$", out, re.MULTILINE)
    assert "of 1.0 GiB; " in out
    assert "beacon        0           0          0          0       1        0\n" in out
    assert "all           2           0          3          0       1        1\n" in out
    assert "1 of them not yet due" in out
    assert "beacon           until resumed  asked to wait" in out


def test_one_platform_needs_no_line_of_its_own(store: Path, run: Run) -> None:
    assert "vgsi" not in status(run, store)


def test_json_has_the_same_under_stable_keys(full_store: Path, run: Run) -> None:
    put(full_store, a_round(), away=an_away())
    found = run("status", "--json", "--store", full_store).document
    assert set(found) == {
        "ok", "findings", "store", "schema_version", "last_change", "queue", "platforms", "paused", "failures", "sync",
        "storage", "used_percent", "cache_bytes", "artifact_bytes", "backup", "backups", "workers", "commands",
        "crashed", "statuses", "broken", "browser_waits", "schedules",
    }  # fmt: skip
    assert (found["queue"]["pending"], found["queue"]["delayed"]) == (2, 1)
    assert (found["queue"]["unsynced"], found["queue"]["rejected"]) == (3, 1)
    assert set(found["sync"]) == {"last_upload", "last_download", "outage"}
    assert found["sync"]["last_upload"]["record_count"] == 50
    assert found["sync"]["last_download"] is None
    assert (found["sync"]["outage"]["failures"], found["sync"]["outage"]["denied"]) == (3, False)
    assert found["paused"] == {"beacon": {"until": None, "reason": "asked to wait"}}
    assert (found["workers"], found["commands"], found["backup"]) == ([], [], None)


def test_backing_off_is_shown_and_is_no_fault(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db")
    put(store, away=an_away())
    out = status(run, store)
    assert out.startswith("No problems found.\n")
    assert "next attempt   " in out
    assert "; 3 failures in 5 h: no route to the gateway\n" in out


def test_the_first_line_says_that_the_gateway_is_away_while_a_worker_tries(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db")
    with held_here(store, claims=0) as worker:
        put(store, away=an_away(), owner=worker)
        out = status(run, store)
        found = json.loads(status(run, store, "--json"))
    assert out.startswith(
        "No problems found.\n"
        "Note: the gateway has been offline for 5 h: no route to the gateway. Fix: no action needed: "
    )
    assert (found["ok"], [one["id"] for one in found["findings"]]) == (True, ["upstream.offline"])


def test_a_gateway_that_stores_nothing_of_what_it_is_sent_is_a_problem_at_once(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db")
    put(store, away=structs.replace(an_away(), takes_nothing=True, reason="POST /results returned 400: no such column"))
    out = status(run, store)
    assert out.startswith(
        "Error: the gateway has responded but stored nothing for 5 h: POST /results returned 400: no such"
    )


@pytest.mark.parametrize(("hours", "level"), [(5, "Note"), (72, "Warning")])
def test_a_gateway_that_responds_with_errors_is_not_called_offline(
    tmp_path: Path, run: Run, hours: int, level: str
) -> None:
    store = make_store(tmp_path / "parcelpost.db")
    reason = "POST /internal/results returned 503: its database is down"
    outage = structs.replace(an_away(), since=NOW - timedelta(hours=hours), responded=True, reason=reason)
    with held_here(store, claims=0) as worker:
        put(store, away=outage, owner=worker)
        out = " ".join(status(run, store).split())
    span = "5 h" if hours == 5 else "3 days"
    assert f"{level}: the gateway has responded with errors for {span}: {reason}. Fix: " in out
    assert "offline" not in out


def test_a_slow_gateway_is_told(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db")
    slow = SlowUpstream(since=NOW - timedelta(hours=7), batch_size=6)
    with held_here(store, claims=0) as worker:
        put(store, slow=slow, owner=worker)
        out = status(run, store)
        put(store, slow=slow, away=an_away(), owner=worker)
        later = " ".join(status(run, store).split())
    told = "Note: the gateway is slow: for 7 h results have been sent in batches of about 6. Fix: "
    assert out.startswith(f"No problems found.\n{told}")
    assert later.startswith("No problems found. Note: the gateway has been offline for 5 h: no route to the gateway.")
    assert told in later


def test_the_first_line_says_that_all_that_is_to_do_is_paused(store: Path, run: Run) -> None:
    assert run("platforms", "pause", "vgsi", "--store", store).code == 0
    with held_here(store, claims=0):
        out = status(run, store)
    assert out.startswith(
        "No problems found.\nNote: all platforms with tasks are paused by an operator. "
        "Fix: resume with 'parcelpost platforms resume vgsi'.\n"
    )


def test_a_backoff_that_is_over_says_when_it_is_tried(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db")
    put(store, away=an_away(until=timedelta(minutes=-1)))
    assert "next attempt   when a worker runs; 3 failures" in status(run, store)
    with held_here(store, claims=0) as worker:
        put(store, away=an_away(until=timedelta(minutes=-1)), owner=worker)
        assert "next attempt   now; 3 failures" in status(run, store)


def test_a_gateway_that_came_back_is_not_away(store: Path, run: Run) -> None:
    put(store, away=an_away())
    assert "next attempt" in status(run, store)
    put(store)
    assert "next attempt" not in status(run, store)


def test_a_gateway_that_denies_us_comes_first(full_store: Path, run: Run) -> None:
    put(full_store, away=an_away(denied=True))
    first = status(run, full_store).splitlines()[0]
    assert first.startswith(
        "Error: the gateway rejected our credentials: 401: who are you?. Fix: check PARCELPOST_GATEWAY_TOKEN"
    )


def test_the_last_delivery_is_found_behind_a_long_outage(store: Path, run: Run) -> None:
    put(store, a_round(count=9), *[a_round(success=False)] * 60)
    assert re.search(r"^last delivery  \d+ s ago, 9 results$", status(run, store), re.MULTILINE)


def test_it_only_looks_while_a_worker_runs(store: Path, run: Run) -> None:
    with held_here(store, claims=2):
        before = rows(store)
        status(run, store)
        status(run, store, "--json")
        assert rows(store) == before


def test_a_missing_store_is_told_with_how_to_begin_and_not_created(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    none = tmp_path / "none" / "parcelpost.db"
    ran = run("status", "--store", none)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out == (
        f"Error: there is no store at {none}. Fix: check the path; for a new store, start with 'parcelpost init'.\n"
    )
    found = run("status", "--json", "--store", none)
    assert (found.code, found.document["ok"], found.document["store"]) == (1, False, str(none))
    assert found.document["findings"][0]["command"] == "parcelpost init"
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_was_moved_away_under_a_worker_is_told_with_who_has_it_open(store: Path, run: Run) -> None:
    with holder(store) as worker:
        store.rename(store.with_name("away"))
        shown = run("status", "--store", store)
        added = run("add", "echo", "1", "--state", "CT", "--county", "x", "--store", store)
        assert not store.exists()
        store.with_name("away").rename(store)
    what = f"process {worker.pid} has {store} open, but its file was moved or deleted"
    assert (shown.code, shown.out) == (1, f"Error: {what}. Fix: put it back, or stop that process.\n")
    assert (added.code, added.err.splitlines()[0]) == (1, f"error: {what}")


def test_a_store_that_was_moved_while_a_worker_has_it_open_is_an_error(store: Path, run: Run) -> None:
    away = store.with_name("away.db")
    with held_here(store, claims=0) as worker:
        publish_status(store, a_status(worker, store=str(store.resolve())))
        change(store, "PRAGMA wal_checkpoint(TRUNCATE)")
        store.rename(away)
        found = run("status", "--json", "--store", away).document
        away.rename(store)
    (finding,) = [one for one in found["findings"] if one["id"] == "store.moved"]
    assert found["ok"] is False
    assert finding["message"] == f"worker w1 has this store open as {store}: it was moved while that process ran"


def test_a_worker_that_was_stopped_on_purpose_is_stopped_and_no_problem(store: Path, run: Run) -> None:
    an_hour_ago = SystemClock().now() - timedelta(hours=1)
    publish_status(store, a_status(published_at=an_hour_ago, started_at=an_hour_ago, stopped_at=an_hour_ago))
    out = status(run, store)
    assert out.startswith(
        "No problems found.\nNote: the worker was stopped 60 min ago, with 3 tasks to do. Fix: start one with '"
    )
    assert "\nworker         stopped 60 min ago: w1\n" in out
    examined = run("doctor", "--json", "--set", "worker.mode=standalone", "--store", store).document
    assert "worker.stopped" in {one["id"] for one in examined["findings"]}
    assert "worker.not_running" not in {one["id"] for one in examined["findings"]}
    publish_status(store, a_status(name="w1-2"))  # a process that has ended without a word
    assert status(run, store).startswith("Error: 3 tasks to do, but no worker is running.")


def test_without_a_worker_every_process_of_the_last_run_counts(store: Path, run: Run) -> None:
    now = SystemClock().now()
    day, hour, minute = timedelta(days=1), timedelta(hours=1), timedelta(minutes=1)
    denied = {"sync": an_away(denied=True)}
    publish_status(store, a_status(name="w1-3", started_at=now - 2 * day, published_at=now - day, outages=denied))
    publish_status(store, a_status(name="w1-2", started_at=now - hour, published_at=now))
    assert "rejected our credentials" not in status(run, store), "that was an earlier run"
    publish_status(store, a_status(name="w1", started_at=now - hour, published_at=now - minute, outages=denied))
    assert status(run, store).startswith("Error: the gateway rejected our credentials: 401")


def test_a_damaged_store_is_told_with_what_mends_it(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=2_000)
    run("store", "backup", "--store", store)
    damage(store)
    ran = run("status", "--store", store)
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.startswith("Error: ")
    assert f"'parcelpost store restore --latest --force --store {store}'" in ran.out.splitlines()[0]
    assert run("status", "--json", "--store", store).document["ok"] is False


def test_a_store_that_its_owner_may_not_read_is_told_with_what_lets_them_in(store: Path) -> None:
    """As root, whom no mode keeps out, only what would be said."""
    context = StoreContext(store, Settings())
    store.chmod(0o000)
    assert open_finding(context, StoreReadOnly("Permission denied")).command == f"chmod u+rw {store}"
    store.chmod(0o600)
    store.parent.chmod(0o500)
    assert open_finding(context, StoreReadOnly("Permission denied")).command == f"chmod u+rwx {store.parent}"
    store.parent.chmod(0o700)
    assert open_finding(context, StoreReadOnly("read-only file system")).command == ""


def test_what_must_be_mended_comes_before_what_may_wait(full_store: Path, run: Run) -> None:
    make_old(full_store, hours=27)
    found = run("status", "--json", "--store", full_store).document["findings"]
    assert found[0]["message"].endswith("no worker is running")
    assert found[0]["command"] == "", "the gateway's address is for a person to fill in"
    assert found[1]["command"].startswith("parcelpost results retry --all")
    assert [(one["id"], one["severity"]) for one in found] == [
        ("worker.not_running", "error"),
        ("outbox.rejected", "error"),
        ("backup.none", "warning"),
        ("tasks.failing", "warning"),
    ]


def test_a_full_disk_comes_before_all_else(full_store: Path, run: Run) -> None:
    put(full_store, away=an_away(denied=True))
    first = status(run, full_store, "--set", "storage.min_free_bytes=1000TiB").splitlines()[0]
    assert first.startswith("Error: only ")
    assert first.endswith("Fix: free disk space; workers then resume on their own.")


def test_a_gateway_that_has_been_away_for_long_is_worth_a_word(store: Path, run: Run) -> None:
    away = structs.replace(an_away(), since=NOW - timedelta(days=3))
    with held_here(store, claims=0) as worker:
        put(store, away=away, owner=worker)
        out = status(run, store)
    assert out.startswith("Warning: the gateway has been offline for 3 days: no route to the gateway. Fix: ")
    assert "'parcelpost doctor'" in out.splitlines()[0]


def test_seconds_belong_to_watch(store: Path, run: Run) -> None:
    ran = run("status", "5", "--store", store)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: SECONDS can only be used with --watch")
    assert run("status", "--watch", "0", "--store", store).code == 2


@pytest.mark.parametrize(("arguments", "mark"), [((), "tasks to do, but no"), (("--json",), '"ok":false')])
def test_watching_prints_block_after_block_until_ctrl_c(store: Path, arguments: tuple[str, ...], mark: str) -> None:
    command = [COMMAND, "status", "--watch", "0.1", "--store", str(store), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen = 0
        while seen < 3:
            seen += mark in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_watching_on_a_terminal_draws_over_what_it_drew(store: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
    command = [COMMAND, "status", "--watch", "0.1", "--store", str(store)]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"Ctrl-C to quit") < 3:
            assert select.select([ours], [], [], 30)[0], seen
            seen += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        while select.select([ours], [], [], 30)[0]:
            try:
                if not os.read(ours, 65_536):
                    break
            except OSError:  # what Linux says when the other side is closed
                break
    os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[1A" in seen
    assert b"Traceback" not in seen


def test_a_field_that_a_site_no_longer_shows_is_named_with_its_selectors_and_a_page(store: Path, run: Run) -> None:
    field = Broken(
        platform="vgsi",
        state="NH",
        county="grafton",
        field="owner_names",
        success_rate=0.04,
        used_to=0.99,
        failing=("css #lblOwner",),
        example="seen",
        since=NOW,
    )
    other = structs.replace(field, field="year_built", found_otherwise=True)

    async def write() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await save_one(lpm, a_task("seen", platform="made_up"), a_result(body=b"<p>"))
            await publish(lpm.state, a_status(broken=(field, other)))

    asyncio.run(write())
    out = status(run, store)
    assert "vgsi NH/grafton: owner_names is found on 4% of pages" in out
    assert "css #lblOwner" in out
    assert ".html.gz" in out
    assert "Note: vgsi NH/grafton: year_built is found by other selectors" in out
    broken = run("status", "--json", "--store", store).document["broken"]
    assert [one["field"]["field"] for one in broken] == ["owner_names", "year_built"]
