"""`parcelpost gateway` on a ledger of its own: what goes in, what is shown, what is ordered."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import pytest
from msgspec.structs import replace

from parcelpost.clock import SystemClock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import WorkerHeartbeat
from parcelpost.gateway.webhooks import read_secrets
from tests.cli.support import COMMAND, Ran, Run, run_process, task
from tests.gateway.factories import arrival
from tests.gateway.receiver import SECRET, receiving

T = TypeVar("T")
CSV = "PIN,County\n1-1,Hartford\n,Hartford\n1-2,Hartford\n"
ATTEMPTS = 1


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    """Where a ledger will be."""
    return str(tmp_path / "gateway" / "gateway.db")


def at(ledger: str, work: Callable[[Ledger], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_ledger(ledger, ATTEMPTS, SystemClock()) as opened:
            return await work(opened)

    return asyncio.run(run())


def file(tmp_path: Path, text: str = CSV) -> Path:
    path = tmp_path / "parcels.csv"
    path.write_text(text)
    return path


async def beat(ledger: Ledger, worker_id: str, at: datetime) -> None:
    queue = {"pending": 3, "unsynced": 4}
    await ledger.record_heartbeat(
        WorkerHeartbeat(worker_id=worker_id, active_tasks=2, queue=queue, version="1.0"),
        at,
        at,
        at - timedelta(hours=1),
    )


async def kill_a_task(ledger: Ledger) -> None:
    """It was the worker's last attempt."""
    await ledger.add_tasks([task("lost")], long_ago())
    await ledger.grant("gone", ["vgsi"], 1, long_ago(), long_ago() + timedelta(minutes=1))
    await ledger.expire_leases(SystemClock().now(), 10)


def long_ago() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC)


def test_rows_become_tasks_and_a_bad_one_is_listed(tmp_path: Path, ledger: str, run: Run) -> None:
    ran = run("gateway", "add", file(tmp_path), "--platform", "echo", "--state", "CT", "--database", ledger)
    assert ran.code == 1
    assert ran.err == "line 3: parcel_id is empty\n"
    assert ran.out.splitlines()[-1] == "2 new tasks, 0 already known, 1 invalid row."
    (grant, _) = at(ledger, lambda one: one.grant("w", ["echo"], 5, long_ago(), long_ago()))
    assert (grant.task.target.parcel_id, grant.task.target.state) == ("1-1", "CT")


def test_the_same_again_changes_nothing(tmp_path: Path, ledger: str, run: Run) -> None:
    arguments = ("gateway", "add", file(tmp_path), "--platform", "echo", "--allow-bad", "--json", "--database", ledger)
    assert run(*arguments).document["new"] == 2
    at(ledger, lambda one: one.grant("w", ["echo"], 1, long_ago(), long_ago() + timedelta(days=9_000)))
    again = run(*arguments)
    assert (again.code, again.document["new"], again.document["known"]) == (0, 0, 2)
    assert run("gateway", "status", "--json", "--database", ledger).document["totals"]["leased"] == 1


def test_a_dry_run_makes_no_ledger(tmp_path: Path, ledger: str, run: Run) -> None:
    ran = run("gateway", "add", file(tmp_path), "--platform", "echo", "--dry-run", "--database", ledger)
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Nothing was stored.")
    assert not Path(ledger).exists()


def test_a_task_id_of_another_parcel_and_what_no_worker_could_store_or_deliver_are_bad(
    tmp_path: Path, ledger: str, run: Run
) -> None:
    rows = f"id,PIN,note\na,1-1,\na,1-2,\nb,1-3,{'x' * 300_000}\nc,1-4,\n{'x' * 501},1-5,\n"
    ran = run("gateway", "add", file(tmp_path, rows), "--platform", "echo", "--json", "--database", ledger)
    assert (ran.code, ran.document["new"], ran.document["bad"]) == (1, 2, 3)
    clash, large, long = sorted(ran.document["first_bad"], key=lambda bad: bad["line"])
    assert "already belongs to parcel '1-1'" in clash["reason"]
    assert large["line"] == 4
    assert "task_id has 501 bytes" in long["reason"]


def test_the_status_says_what_is_wrong_and_what_to_do(ledger: str, run: Run) -> None:
    at(ledger, kill_a_task)
    at(ledger, lambda one: one.add_tasks([task("t1"), task("t2")], long_ago()))
    ran = run("gateway", "status", "--database", ledger)
    assert ran.code == 0
    assert "Error: 2 tasks queued, but no worker is online." in ran.out
    assert "parcelpost gateway requeue --state dead" in ran.out
    assert "2 queued, 0 leased, 0 done, 0 not found, 0 failed, 1 dead" in ran.out
    at(ledger, lambda one: beat(one, "w1", SystemClock().now()))
    found = run("gateway", "status", "--json", "--database", ledger).document
    assert (found["totals"]["queued"], found["fleet"]["alive"]) == (2, 1)
    assert (found["workers"][0]["alive"], found["workers"][0]["unsynced"]) == (True, 4)
    assert [one["message"] for one in found["findings"]] == ["all leases expired for 1 task"]


def test_tasks_of_a_platform_that_nobody_works_on_need_attention(ledger: str, run: Run) -> None:
    async def fill(opened: Ledger) -> None:
        now = SystemClock().now()
        await opened.add_tasks([task("t1"), task("t2", platform="vgsii"), task("t3", platform="vgsii")], now)
        await opened.record_heartbeat(WorkerHeartbeat(worker_id="w1", platforms=("vgsi", "beacon")), now, now, now)
        await opened.record_heartbeat(
            WorkerHeartbeat(worker_id="gone", platforms=("vgsii",), leaving=True), now, now, now
        )

    at(ledger, fill)
    told = "2 tasks queued for vgsii, but no online worker handles that platform"
    assert f"Warning: {told}." in run("gateway", "status", "--database", ledger).out
    found = run("gateway", "status", "--json", "--database", ledger).document
    assert (found["ok"], [one["message"] for one in found["findings"]]) == (True, [told])


def test_workers_are_listed(ledger: str, run: Run) -> None:
    at(ledger, lambda one: one.add_tasks([], long_ago()))
    assert "No worker has connected yet" in run("gateway", "workers", "--database", ledger).out
    now = SystemClock().now()
    at(ledger, lambda one: beat(one, "ancient", long_ago()))
    at(ledger, lambda one: beat(one, "old", now - timedelta(days=1)))
    at(ledger, lambda one: beat(one, "new", now))
    at(ledger, lambda one: one.record_heartbeat(WorkerHeartbeat(worker_id="ended", leaving=True), now, now, now))
    lines = run("gateway", "workers", "--database", ledger).out.splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines[1:]}
    assert states == {"ancient": "offline", "old": "offline", "new": "alive", "ended": "stopped"}
    assert "1 alive (0 paused), 1 stopped, 1 offline" in run("gateway", "status", "--database", ledger).out


def test_an_order_goes_to_one_worker_or_to_all_that_are_alive(ledger: str, run: Run) -> None:
    now = SystemClock().now()
    for worker_id, seen in (("old", long_ago()), ("w1", now), ("w2", now)):
        at(ledger, lambda one, name=worker_id, seen=seen: beat(one, name, seen))  # type: ignore[misc]
    assert run("gateway", "command", "pause", "--worker", "w1", "--json", "--database", ledger).document["workers"] == 1
    assert run("gateway", "command", "sync-now", "--all", "--json", "--database", ledger).document["workers"] == 2
    waiting = {
        one["worker_id"]: one["pending_commands"]
        for one in run("gateway", "workers", "--json", "--database", ledger).document["workers"]
    }
    assert waiting == {"old": [], "w1": ["pause", "sync-now"], "w2": ["sync-now"]}
    refused = run("gateway", "command", "pause", "--worker", "old", "--database", ledger)
    assert (refused.code, "worker 'old' is offline" in refused.err) == (1, True)


def test_a_worker_id_is_freed_for_another_token(ledger: str, run: Run) -> None:
    now = SystemClock().now()

    def claim(token: str) -> str | None:
        return at(ledger, lambda one: one.claim_worker_id("w1", token, ["ann", "bob"], 9, now, now))

    assert (claim("ann"), claim("bob")) == ("ann", "ann")
    freed = run("gateway", "release", "w1", "--database", ledger)
    assert (freed.code, freed.err) == (0, "")
    assert freed.out == "Released w1 from token 'ann'. It will belong to the next token that uses it.\n"
    assert claim("bob") == "bob"
    at(ledger, lambda one: beat(one, "w1", now))
    again = run("gateway", "release", "w1", "--json", "--database", ledger)
    assert again.document == {"worker_id": "w1", "token": "bob"}
    assert "note: worker 'w1' was active in the last five minutes; stop it" in again.err


def test_the_ledger_is_that_of_the_settings_file_or_of_set(tmp_path: Path, ledger: str, run: Run) -> None:
    at(ledger, lambda one: beat(one, "w1", SystemClock().now()))
    config = tmp_path / "other.toml"
    config.write_text(f"[server]\ndatabase = {json.dumps(ledger)}\n")
    commands = [
        ("status",),
        ("workers",),
        ("command", "pause", "--all"),
        ("requeue", "--state", "dead", "--yes"),
        ("add", file(tmp_path), "--platform", "echo", "--allow-bad"),
    ]
    for given in (("--config", str(config)), ("--set", f"server.database={ledger}")):
        for command in commands:
            ran = run("gateway", *command, *given)
            assert (ran.code, ran.err.startswith("error")) == (0, False), (command, ran.err)
    assert run("gateway", "status", "--json", "--database", ledger).document["totals"]["queued"] == 2


def test_a_gateway_that_cannot_start_leaves_nothing_behind(tmp_path: Path, ledger: str, run: Run) -> None:
    raw = tmp_path / "raw"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for told, arguments in {
            f"server.port {port}": ["--port", port],
            "server.worker_tokens_file": ["--port", 0, "--set", "server.worker_tokens_file=nowhere"],
            "server.host": ["--port", 0, "--host", "0.0.0.0"],
            "server.raw": ["--port", 0, "--raw", "s3://"],
            "no_such_setting": ["--port", 0, "--set", "server.no_such_setting=1"],
        }.items():
            ran = run("gateway", "serve", "--database", ledger, "--raw", raw, *arguments)
            assert (ran.code in (1, 2), ran.err.startswith("error: "), told in ran.err) == (True, True, True), ran.err
            assert list(tmp_path.iterdir()) == [], told


def test_an_order_for_a_platform_that_nobody_works_on_is_told(ledger: str, run: Run) -> None:
    now = SystemClock().now()
    at(
        ledger,
        lambda one: one.record_heartbeat(WorkerHeartbeat(worker_id="w1", platforms=("vgsi", "beacon")), now, now, now),
    )
    order = ("gateway", "command", "platforms:vgsi,nosuch", "--all", "--json", "--database", ledger)
    ran = run(*order)
    assert (ran.code, ran.document["workers"]) == (0, 1)
    assert ran.err == "note: no active worker handles platform 'nosuch'; check the name\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("command", "dance", "--all"), "unknown command: 'dance'"),
        (("command", "pause"), "no worker was selected"),
        (("command", "pause", "--all", "--worker", "w1"), "no worker was selected"),
        (("command", "pause", "--worker", "nobody"), "no such worker: 'nobody'"),
        (("release", "nobody"), "worker ID 'nobody' does not belong to any token"),
        (("requeue",), "no state was given"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(
    ledger: str, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    at(ledger, lambda one: one.add_tasks([], long_ago()))
    ran = run("gateway", *arguments, "--database", ledger)
    assert ran.code == 1
    assert message in ran.err
    assert "hint: " in ran.err


@pytest.mark.parametrize(
    "command",
    [("status",), ("workers",), ("command", "pause", "--all"), ("requeue", "--state", "dead"), ("release", "w1")],
)
def test_only_adding_and_serving_make_a_ledger(ledger: str, run: Run, command: tuple[str, ...]) -> None:
    ran = run("gateway", *command, "--database", ledger)
    assert (ran.code, ran.err.splitlines()[0]) == (1, f"error: there is no ledger at {ledger}")
    assert not Path(ledger).exists()


def test_dead_tasks_are_queued_again(ledger: str) -> None:
    at(ledger, kill_a_task)
    arguments = ("gateway", "requeue", "--state", "dead", "--database", ledger)
    assert run_process(*arguments, answer="n\n").code == 1
    asked = run_process(*arguments, answer="y\n")
    assert (asked.code, asked.out) == (0, "1 task requeued.\n")
    assert run_process(*arguments, "--json").document == {"requeued": 0}


def test_changes_are_shown_since_a_number_or_a_time_and_followed(ledger: str, run: Run) -> None:
    async def fill(opened: Ledger, owner: str) -> None:
        now = SystemClock().now()
        await opened.store([arrival(owner, "P-1", now, owner_names=[owner])], "w1", now)
        await opened.find_changes(now, 10)

    at(ledger, lambda opened: fill(opened, "ANN"))
    at(ledger, lambda opened: fill(opened, "BO"))
    shown = run("gateway", "changes", "--database", ledger).out
    assert 'owner.changed    FL/union  P-1  {"owner":["ANN"]} -> {"owner":["BO"]}' in shown
    assert shown.count("parcel.new") == 1
    lines = run("gateway", "changes", "--database", ledger, "--since", "1", "--json").out.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["owner.changed"]
    assert run("gateway", "changes", "--database", ledger, "--kind", "lien").out == "No changes.\n"
    assert "not a valid" in run("gateway", "changes", "--database", ledger, "--since", "soon").err

    command = [COMMAND, "gateway", "changes", "--database", ledger, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "parcel.new" in process.stdout.readline()
        at(ledger, lambda opened: fill(opened, "CY"))
        while "CY" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert (process.communicate()[1], process.returncode) == ("", 0)


def test_webhooks_are_managed_and_their_secrets_shown_nowhere(
    ledger: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fill(opened: Ledger) -> None:
        now = SystemClock().now()
        await opened.store([arrival("a", "P-1", now, owner_names=["ANN"])], "w1", now)
        await opened.find_changes(now, 10)

    def webhook(*arguments: str) -> Ran:
        allowed = ("--set", "server.allow_private=127.0.0.1")
        return run("gateway", "webhook", *arguments, "--database", ledger, *allowed)

    at(ledger, fill)
    assert "No webhooks yet." in webhook("list").out
    with receiving() as receiver:
        url = f"{receiver.url}?key=hidden"
        private = run("gateway", "webhook", "add", url, "--database", ledger)
        assert "private address; add it to server.allow_private" in private.err
        assert "unknown kind of change: 'lein'" in webhook("add", url, "--kind", "lein").err
        assert "changes after 0 go to http://127.0.0.1" in webhook("add", url, "--name", "crm", "--since", "0").out
        assert (
            webhook("add", url, "--name", "other", "--since", "0", "--kind", "sale", "--json").document["behind"] == 0
        )
        assert "deleted" in webhook("delete", "other", "--yes").out.lower()
        assert "a webhook named 'crm' already exists" in webhook("add", url, "--name", "crm").err
        listed = webhook("list", "--json")
        assert (listed.document["webhooks"][0]["behind"], "hidden" in listed.out) == (1, False)
        assert "PARCELPOST_WEBHOOK_SECRET is not set" in webhook("test", "crm").err
        monkeypatch.setenv("PARCELPOST_WEBHOOK_SECRET", SECRET)
        tested = webhook("test", "crm")
        assert (tested.code, tested.err) == (0, ""), "its variable is known"
        assert "returned 200" in tested.out
        assert [event["type"] for event in receiver.events] == ["webhook.test"]
        receiver.status = 500
        failed = webhook("test", "crm", "--json")
        assert (failed.code, failed.document["status"]) == (1, 500)
        shown = webhook("show", "crm").out
        assert "change 0, 1 behind" in shown
        assert SECRET not in shown + tested.out + failed.out + failed.err
    assert webhook("pause", "crm", "--json").document["status"] == "paused"
    assert webhook("resume", "crm").out == "Resumed crm: 1 change to send.\n"
    assert webhook("replay", "crm", "--since", "1").out == "Replaying crm: 0 changes to send.\n"
    assert "the last change is 1" in webhook("replay", "crm", "--since", "2").err
    assert webhook("delete", "crm", "--yes").out == "Deleted crm.\n"
    assert "there is no webhook 'crm'" in webhook("show", "crm").err
    new = run("gateway", "webhook", "secret").out.strip()
    assert read_secrets("X", {"X": new})[0].reveal() == new


def test_known_parcels_are_queued_again(ledger: str, run: Run) -> None:
    async def fill(opened: Ledger) -> None:
        now = SystemClock().now()
        target = '{"parcel_id": "P-1", "state": "FL", "county": "union"}'
        fresh, old = arrival("a", "P-1", now), arrival("b", "P-2", now - timedelta(days=9))
        await opened.store([replace(one, target=target) for one in (fresh, old)], "w1", now)

    at(ledger, fill)
    refresh = ("gateway", "refresh", "--database", ledger)
    assert "nothing was selected" in run(*refresh).err
    for wrong in (("--parcel", "---"), ("--county", "--"), ("--state", "."), ("--state", "FL", "--parcel", " ")):
        refused = run(*refresh, *wrong, "--yes")
        assert (refused.code, refused.out) == (1, ""), wrong  # not everything
    assert run(*refresh, "--state", "FL", "--older-than", "7d", "--yes").out == "1 task queued.\n"
    assert run(*refresh, "--state", "FL", "--yes", "--json").document == {"queued": 1}
    assert run(*refresh, "--county", "union", "--yes").out.startswith("0 tasks queued: ")


def test_a_token_is_random_and_alone_on_stdout(run: Run) -> None:
    one, other = run("gateway", "token"), run("gateway", "token")
    assert len(one.out.strip()) >= 40
    assert one.out != other.out
    assert "PARCELPOST_WORKER_TOKENS" in one.err


def test_schedules_are_added_listed_and_changed(run: Run, ledger: str, tmp_path: Path) -> None:
    schedule, where = ("gateway", "schedule"), ("--database", ledger)
    site = ("--platform", "grizzly_gis", "--state", "FL", "--county", "columbia")

    def refused(*arguments: object) -> str:
        ran = run(*arguments)
        assert ran.code != 0
        return ran.err

    assert "no ledger" in refused(*schedule, "list", *where)
    timing = ("--every", "7d", "--at", "02:00", "--timezone", "America/New_York")
    added = run(*schedule, "add", "weekly", *site, *timing, *where).out
    assert "every 7 days at 02:00 America/New_York, known parcels in columbia, FL" in added
    assert "already" in refused(*schedule, "add", "weekly", *site, *timing, *where)
    rows = file(tmp_path, "parcel\n00-00-00-01234-000\n00-00-00-01235-000\n")
    run(*schedule, "add", "few", *site, "--cron", "0 6 * * 1-5", "--file", str(rows), *where)
    bad = file(tmp_path, "parcel,county\n00-00-00-01234-000,columbia\n,columbia\n")
    problem = refused(*schedule, "add", "bad", *site, "--every", "1d", "--file", str(bad), *where)
    assert "nothing was added" in problem
    for content, reason in (
        ("parcel\n", "has no rows"),
        (
            "parcel,county\n00-00-00-01234-000,Columbia County\n00-00-00-01235-000,Duval\n",
            "county is 'Duval', not columbia",
        ),
        ("parcel,state\n00-00-00-01234-000,Georgia\n", "state is 'Georgia', not FL"),
        ("parcel,platform\n00-00-00-01234-000,vgsi\n", "platform is 'vgsi', not grizzly_gis"),
    ):
        wrong_file = str(file(tmp_path, content))
        assert reason in refused(*schedule, "add", "bad", *site, "--every", "1d", "--file", wrong_file, *where)
    for wrong in (("--every", "soon"), ("--every", "1d", "--filter", "rich"), ("--every", "1d", "--pace", "0.01")):
        refused(*schedule, "add", "wrong", *site, *wrong, *where)
    assert "no known site" in refused(*schedule, "add", "x", *site[:4], "--county", "loving", *timing)
    listed = json.loads(run(*schedule, "list", *where, "--json").out)["schedules"]
    assert [(one["name"], one["parcels"], one["scope"]) for one in listed] == [
        ("few", 2, "file"),
        ("weekly", 0, "known"),
    ]
    run(*schedule, "pause", "few", *where)
    assert "paused" in run(*schedule, "show", "few", *where).out
    assert "resume it first" in refused(*schedule, "run-now", "few", *where)
    run(*schedule, "resume", "few", *where)
    assert json.loads(run(*schedule, "run-now", "few", *where, "--json").out)["schedule"]["name"] == "few"
    assert "grizzly_gis FL/columbia" in run("gateway", "status", *where).out
    run(*schedule, "delete", "few", "--yes", *where)
    assert "no such schedule" in refused(*schedule, "show", "few", *where)
