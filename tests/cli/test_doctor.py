"""`parcelpost doctor`: what it looks at, what it says, and that nothing stops it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parcelpost.cli.health import doctor
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.health.clock import compare_clocks
from parcelpost.cli.health.doctor import Report
from parcelpost.cli.health.store_files import check_integrity
from parcelpost.clock import SystemClock, iso
from parcelpost.events import WorkerJoined
from parcelpost.model import BrowserState
from parcelpost.settings.sources import diagnose
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.backoff import SYNC, Offline
from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId
from parcelpost.worker.status import SlowUpstream, WorkerStatus, publish
from tests import traps
from tests.cli.broken_stores import told
from tests.cli.support import Run, a_status, change, damage, holder, make_full_store, make_store, publish_status, rows
from tests.gateway.served import served
from tests.hostile import HostileGateway, Trap
from tests.storage.factories import save_one


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, with nothing set but the mode."""
    for name in [name for name in os.environ if name.startswith("PARCELPOST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PARCELPOST_WORKER_MODE", "standalone")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def examined(store: Path, *, limit_seconds: float = 60.0, **settings: str) -> Report:
    """In this event loop, where a test's gateway runs."""
    flags = {name.replace("__", "."): value for name, value in settings.items()}
    found = diagnose(config=None, environment=os.environ, flags=flags)
    return await doctor.run_checks(doctor.make_context(store, found, deep=False))


def test_all_is_well_where_it_is(here: Path, run: Run) -> None:
    store = make_store(here / "local_data" / "parcelpost.db")
    assert run("store", "backup").code == 0
    ran = run("doctor", "--strict")
    assert ran.code == 0, ran.out
    assert ran.out.startswith(
        "No problems found.\n\nstore     ok       local_data/parcelpost.db can be opened; its schema version, "
    )
    for about in ("backup", "outbox", "worker", "settings", "clock", "upstream", "browser"):
        assert f"\n{about} " in ran.out
    assert "the database file is intact (quick check)" in ran.out
    assert "can be restored" in ran.out
    found = run("doctor", "--json").document
    assert (found["ok"], found["findings"], found["store"]) == (True, [], "local_data/parcelpost.db")
    assert store.exists()


def test_without_a_store_the_rest_is_looked_at_and_nothing_is_made(here: Path, run: Run) -> None:
    ran = run("doctor", "--strict")
    assert ran.code == 0
    assert "skipped  there is no store at local_data/parcelpost.db yet: the first task or worker creates it" in ran.out
    assert "clock " in ran.out
    assert list(here.iterdir()) == []


def test_a_finding_has_what_to_do_and_a_command_on_a_line_of_its_own(here: Path, run: Run) -> None:
    store = make_full_store(here / "local_data" / "parcelpost.db")
    store.chmod(0o604)
    ran = run("doctor")
    assert ran.code == 1
    assert ran.out.startswith("Found 3 errors and 1 warning.\n")
    assert " of the store: local_data/parcelpost.db" in ran.out
    assert "\n                   $ chmod -R go-rwx local_data/parcelpost.db*\n" in ran.out
    assert "\n                   $ parcelpost results retry --all --yes\n" in ran.out


def test_what_the_gateway_said_last_and_that_it_is_slow_is_told(here: Path, run: Run) -> None:
    store = make_store(here / "local_data" / "parcelpost.db")
    now, said = SystemClock().now(), "POST /internal/results returned 503: the database is down (DB_DOWN)"

    offline = Offline(since=now, until=now, failures=2, reason=said)
    slow = SlowUpstream(since=now - timedelta(hours=7), batch_size=6)
    publish_status(store, a_status(outages={SYNC: offline}, slow=slow))
    out = " ".join(run("doctor").out.split())
    assert f"; the last attempt failed: {said}" in out


def test_a_warning_fails_only_where_it_is_asked_for(here: Path, run: Run) -> None:
    store = make_store(here / "local_data" / "parcelpost.db")
    later = iso(SystemClock().now() + timedelta(hours=3))
    change(store, f"INSERT INTO agent_metrics (timestamp) VALUES ('{later}')")
    ran = run("doctor")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "Found 1 warning.")
    assert "the clock is 3 h behind the newest rows of the store: it was set back" in ran.out
    assert run("doctor", "--strict").code == 1


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (b"some other file" * 100, "is not an SQLite database"),
        (b"", "is empty"),
    ],
)
def test_another_file_in_the_stores_place_is_told_and_left_alone(
    here: Path, run: Run, written: bytes, what: str
) -> None:
    other = here / "other.db"
    other.write_bytes(written)
    ran = run("doctor", "--json", "--store", other)
    assert ran.code == 1
    assert what in told(ran.document, "other.db")["message"]
    assert other.read_bytes() == written
    assert {check["area"] for check in ran.document["checks"]} >= {"settings", "clock", "upstream", "browser"}


def test_damage_without_a_backup_leaves_the_other_checks_their_say(here: Path, run: Run) -> None:
    store = make_store(here / "parcelpost.db", tasks=2_000)
    damage(store)
    ran = run("doctor", "--store", store)
    assert ran.code == 1
    assert "there is no backup; copy the file" in ran.out
    assert "\nclock " in ran.out


def test_settings_that_cannot_be_used_are_told_and_the_rest_is_looked_at(here: Path, run: Run) -> None:
    make_store(here / "elsewhere" / "parcelpost.db")
    (here / "parcelpost.toml").write_text('[sync]\nbatchsize = 5\n[storage]\npath = "elsewhere/parcelpost.db"\n')
    ran = run("doctor")
    assert ran.code == 1
    assert "parcelpost.toml:2: unknown setting sync.batchsize (did you mean sync.batch_size?)" in ran.out
    assert "ok       elsewhere/parcelpost.db can be opened" in ran.out


def test_it_only_looks_while_a_worker_runs(here: Path, run: Run) -> None:
    store = make_store(here / "parcelpost.db", tasks=3)
    with holder(store, claims=2) as process:
        before = rows(store)
        ran = run("doctor", "--store", store)
        assert rows(store) == before
    assert ran.code == 0, ran.out
    assert f"holder-{process.pid}-" in ran.out


async def test_a_bug_in_one_check_hides_nothing_of_the_others(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: CheckContext) -> list[CheckResult]:
        raise ZeroDivisionError("by nothing")

    replaced = [one._replace(run=broken) if one.area == "browser" else one for one in doctor._CHECKS]
    monkeypatch.setattr(doctor, "_CHECKS", replaced)
    found = await examined(here / "none.db")
    assert [one.state for one in found.checks if one.area == "browser"] == ["error"]
    assert [one.id for one in found.findings] == ["check.failed"]
    assert "clock" in {one.area for one in found.checks if one.state == "ok"}


def test_a_check_of_the_file_that_takes_too_long_is_broken_off(here: Path) -> None:
    store = make_store(here / "parcelpost.db", tasks=5_000)
    found = diagnose(config=None, environment=os.environ, flags={})
    case = doctor.make_context(store, found, deep=False)
    (answer,) = asyncio.run(check_integrity(replace(case, limit_seconds=0.0)))
    assert "could not be checked within 0 s" in answer.findings[0].message


# Browsers


def test_a_browser_that_no_worker_could_start_is_told_where_a_browser_is_needed(here: Path, run: Run) -> None:
    (here / "chromium").touch(0o700)
    never = ("--set", "browser.most=0")
    assert run("doctor", "--json", *never).document["findings"] == [], "nothing needs one"
    found = run("doctor", "--json", *never, "--set", f"browser.executable={here / 'chromium'}").document
    assert [finding["id"] for finding in found["findings"]] == ["browser.disabled"]


def test_browsers_that_a_crashed_worker_left_are_told(here: Path, run: Run) -> None:
    store = make_store(here / "local_data" / "parcelpost.db")
    now = SystemClock().now()

    async def leave() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            state = BrowserState(
                browser_id=0, owner="worker-1-0123abcd", status="idle", last_health_check=now, created_at=now
            )
            await lpm.browsers.add(state)

    asyncio.run(leave())
    assert told(run("doctor", "--json").document, "may have left 1 browser behind")["id"] == "browser.left_over"


# The gateway


def test_what_is_wrong_at_a_gateway_whose_ledger_is_here_is_told(here: Path, run: Run) -> None:
    ledger = here / "gateway_data" / "gateway.db"
    assert not {check["area"] for check in run("doctor", "--json").document["checks"]} & {"gateway"}
    assert not ledger.exists()
    (here / "parcels.csv").write_text("parcel_id,state,county\n1,CT,hartford\n")
    assert run("gateway", "add", "parcels.csv", "--platform", "echo").code == 0
    ran = run("doctor", "--json")
    assert ran.code == 1
    assert told(ran.document, "1 task queued, but no worker is online")["id"] == "fleet.no_worker"
    assert ran.document["findings"] == run("gateway", "status", "--json").document["findings"]
    ledger.write_bytes(b"another program's" * 1_000)
    assert told(run("doctor", "--json").document, "the gateway's ledger")["id"] == "ledger.unavailable"


def test_a_ledger_that_is_no_ledger_of_this_version_is_told_and_left_alone(here: Path, run: Run) -> None:
    ledger = here / "gateway_data" / "gateway.db"
    ledger.parent.mkdir()
    ledger.touch()

    def left_alone() -> None:
        before = ledger.read_bytes()
        finding = told(run("doctor", "--json").document, "the gateway's ledger")
        assert (finding["id"], "no ledger of this version" in finding["message"]) == ("ledger.unavailable", True)
        shown = run("gateway", "status")
        assert (shown.code, "no ledger of this version" in shown.err) == (1, True)
        assert ledger.read_bytes() == before

    left_alone()
    ledger.unlink()
    (here / "parcels.csv").write_text("parcel_id,state,county\n1,CT,hartford\n")
    assert run("gateway", "add", "parcels.csv", "--platform", "echo").code == 0
    current = ledger.read_bytes()
    assert run("doctor", "--json").code == run("gateway", "status").code + 1 == 1
    assert ledger.read_bytes() == current
    for older in ("DELETE FROM schema_version", "UPDATE search_state SET version = 0"):
        ledger.write_bytes(current)
        with contextlib.closing(sqlite3.connect(ledger, isolation_level=None)) as db:
            db.execute(older)
        left_alone()


def test_a_failing_site_is_told_as_the_gateway_tells_it(here: Path, run: Run) -> None:
    (here / "parcels.csv").write_text("parcel_id,state,county\n" + "".join(f"{n},CT,hartford\n" for n in range(60)))
    assert run("gateway", "add", "parcels.csv", "--platform", "echo").code == 0
    with contextlib.closing(sqlite3.connect(here / "gateway_data" / "gateway.db", isolation_level=None)) as db:
        db.execute("UPDATE tasks SET state = 'failed', ended_at = ?", (iso(SystemClock().now()),))
    findings = run("doctor", "--json").document["findings"]
    assert findings == run("gateway", "status", "--json").document["findings"]
    assert "tasks.failing" in {finding["id"] for finding in findings}


async def test_a_gateway_is_asked_without_taking_a_task_from_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", gateway.token)
        gateway.offer({"task_id": "t", "platform": "vgsi", "target": {}, "type": "scrape", "priority": 1})
        for extras, language in ((True, "the protocol with its extensions"), (False, "the plain protocol")):
            gateway.extras = extras
            found = await examined(here / "none.db", gateway__url=gateway.url)
            (summary,) = [one.summary for one in found.checks if one.area == "upstream"]
            assert f"accepts our token, and supports {language}" in summary
        assert (gateway.handed_out, gateway.beats) == ([], [])


async def test_the_doctor_asks_as_the_store_s_worker_or_as_nobody(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"PARCELPOST_WORKER_TOKENS": "ann: token-of-ann, bob: token-of-bob"}
    async with served(here, environment) as gateway:
        for name in ("ann", "bob"):
            monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", f"token-of-{name}")
            store = here / name / "parcelpost.db"
            for _ in ("without a store", "with one that has an id"):
                found = await examined(store, gateway__url=gateway.address)
                (line,) = [one for one in found.checks if one.area == "upstream"]
                assert "accepts our token" in line.summary, found.findings
                async with LocalPersistenceManager.open(store) as lpm:
                    await lpm.state.put(WORKER_ID_STATE, WorkerId(f"worker-of-{name}"))
        joined = [event.worker_id for event in gateway.events if isinstance(event, WorkerJoined)]
    assert joined == ["worker-of-ann", "worker-of-bob"]
    claims = [line for line in rows(here / "gateway.db") if line.startswith('INSERT INTO "worker_ids"')]
    assert len(claims) == 2, claims


async def test_a_token_that_is_refused_is_told_without_the_token(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", "an-old-token")
        found = await examined(here / "none.db", gateway__url=gateway.url)
    (problem,) = found.findings
    assert problem.message.startswith(f"the gateway at {gateway.url} rejected our credentials: ")
    assert "401" in problem.message
    assert "PARCELPOST_GATEWAY_TOKEN" in problem.fix
    assert "an-old-token" not in problem.message


@asynccontextmanager
async def a_worker(store: Path, url: str = "") -> AsyncIterator[LocalPersistenceManager]:
    """As `parcelpost run --gateway URL` leaves word of itself, or without a URL one that is standalone."""
    async with LocalPersistenceManager.open(store, clock=SystemClock(), worker="worker") as lpm:
        await publish(lpm.state, the_status(lpm, url))
        yield lpm


def the_status(lpm: LocalPersistenceManager, url: str, **fields: Any) -> WorkerStatus:
    mode, upstream = ("ondemand", "a gateway") if url else ("standalone", "")
    return a_status(lpm.owner_id, name="w", mode=mode, upstream=upstream, gateway_url=url, **fields)


async def test_a_gateway_that_only_the_worker_was_told_of_is_asked_and_no_fault(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARCELPOST_WORKER_MODE")
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", gateway.token)
        async with a_worker(here / "parcelpost.db", gateway.url):
            found = await examined(here / "parcelpost.db")
        assert found.ok, found.findings
        assert [(one.id, one.command) for one in found.findings] == [("settings.incomplete", "parcelpost init")]
        assert f"{gateway.url} responds" in next(one.summary for one in found.checks if one.area == "upstream")
        gone = await examined(here / "parcelpost.db")
    assert not gone.ok, "a worker is wanted that nobody could start without the address"


async def test_a_store_whose_workers_are_standalone_needs_no_gateway(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARCELPOST_WORKER_MODE")
    async with LocalPersistenceManager.open(here / "parcelpost.db"):
        pass
    never_ran = await examined(here / "parcelpost.db")
    async with a_worker(here / "parcelpost.db"):
        running = await examined(here / "parcelpost.db")
    ended = await examined(here / "parcelpost.db")
    for found in (never_ran, running, ended):
        states = {one.area: one.state for one in found.checks}
        assert (states["settings"], states["upstream"], found.findings) == ("ok", "skipped", [])


async def test_a_token_that_is_bad_is_one_problem_whoever_noticed_it(
    here: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    now = SystemClock().now()
    refusal = Offline(since=now - timedelta(hours=5), until=now, failures=99, reason="401", denied=True)
    store = here / "parcelpost.db"
    async with HostileGateway() as gateway, a_worker(store, gateway.url) as lpm:
        await save_one(lpm)
        refusals = dict.fromkeys(("collector", SYNC, "heartbeat"), refusal)
        await publish(lpm.state, the_status(lpm, gateway.url, outages=refusals))
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", "an-old-token")
        doctor = await examined(store, gateway__url=gateway.url)
        monkeypatch.delenv("PARCELPOST_GATEWAY_TOKEN")
        none_here = await examined(store, gateway__url=gateway.url)
        status = await asyncio.to_thread(run, "status", "--json", "--store", store)
    assert [one["id"] for one in status.document["findings"]] == ["upstream.unauthorized"]
    assert [one.id for one in doctor.findings] == ["upstream.unauthorized"]
    assert [one.id for one in none_here.findings] == ["upstream.unauthorized"]
    elsewhere = await examined(here / "none.db", gateway__url="https://gateway.invalid")
    no_file = await examined(here / "none.db", gateway__url="https://gateway.invalid", gateway__token_file="none")
    for found in (elsewhere, no_file):
        assert [one.id for one in found.findings] == ["settings.invalid"], found.findings


async def test_a_mode_that_was_set_needs_its_gateway_even_if_a_standalone_worker_ran(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_worker(here / "parcelpost.db"):
        pass
    monkeypatch.setenv("PARCELPOST_WORKER_MODE", "legacy")
    found = await examined(here / "parcelpost.db")
    assert [finding.message for finding in found.findings] == ["mode legacy needs gateway.url, which is not set"]


async def test_what_the_store_says_of_a_refusal_is_over_once_we_are_let_in(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = SystemClock().now()
    refusal = Offline(
        since=now, until=now, failures=1, reason="401 from the gateway", denied=True, remedy="set a token"
    )
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", gateway.token)
        async with a_worker(here / "parcelpost.db", gateway.url) as lpm:
            await publish(lpm.state, the_status(lpm, gateway.url, outages={SYNC: refusal}))
            working = await examined(here / "parcelpost.db", gateway__url=gateway.url)
        ended = await examined(here / "parcelpost.db", gateway__url=gateway.url)
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", "an-old-token")
        refused = await examined(here / "parcelpost.db", gateway__url=gateway.url)
    ids = [[one.id for one in found.findings] for found in (working, ended, refused)]
    assert ids == [["upstream.reauthorized"], [], ["upstream.unauthorized"]], "one bad token is one finding"
    assert "restart the worker if it uses other credentials" in working.findings[0].fix


@pytest.mark.parametrize("trap", [traps.silence(), traps.html(), traps.status(503), traps.endless(), traps.drip()])
async def test_whatever_a_gateway_does_the_doctor_ends(here: Path, monkeypatch: pytest.MonkeyPatch, trap: Trap) -> None:
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", gateway.token)
        gateway.play("*", trap, times=None)
        found = await examined(
            here / "none.db",
            gateway__url=gateway.url,
            gateway__timeout_seconds="0.2",
            gateway__max_response_bytes="64KiB",
        )
    (problem,) = found.findings
    assert problem.message.startswith(f"the gateway at {gateway.url} cannot be used: ")
    assert (problem.command, "gateway serve" in problem.fix) == ("", False), "no other gateway takes its place"


async def test_another_gateway_at_the_address_is_told_until_it_is_accepted(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = here / "parcelpost.db"
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", gateway.token)
        address = f"{gateway.url}/internal"
        met = MetGateway(address=address, ledger_id="0123456789abcdef", since=SystemClock().now())
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.state.put(f"{GATEWAY_STATE}{address}", met)
        found = await examined(store, gateway__url=gateway.url)
        (problem,) = found.findings
        assert problem.message == (
            f"a different gateway responds at {address}: one without a ledger ID; "
            "this store works with the one with ledger 0123456789abcdef"
        )
        assert "'parcelpost store upstream --accept-gateway'" in problem.fix
        assert problem.command == "", "a person has to think first"
        known = await asyncio.to_thread(run, "store", "upstream", "--store", store)
        assert f"gateway    {address}, the one with ledger 0123456789abcdef, since " in known.out
        accepted = await asyncio.to_thread(run, "store", "upstream", "--accept-gateway", "--store", store)
        assert (accepted.code, "none yet: the first one" in accepted.out) == (0, True)
        assert (await examined(store, gateway__url=gateway.url)).ok


def test_the_worker_id_of_a_store_can_be_changed_by_hand(here: Path, run: Run) -> None:
    store = make_store(here / "parcelpost.db")
    assert "worker ID  none yet" in run("store", "upstream", "--store", store).out
    assert "worker ID  hartford-2\n" in run("store", "upstream", "--worker-id", "hartford-2", "--store", store).out
    assert run("store", "upstream", "--store", store, "--json").document["worker_id"] == "hartford-2"
    assert run("store", "upstream", "--worker-id", "two words", "--store", store).code == 1


async def test_a_gateway_that_is_not_there_is_told(here: Path) -> None:
    found = await examined(here / "none.db", gateway__url="http://127.0.0.1:1")
    (problem,) = [one for one in found.findings if one.is_error]
    assert "cannot be used: GET /internal/selectors failed: ConnectError" in problem.message


async def test_the_clock_is_compared_with_the_gateways(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = format_datetime(SystemClock().now() + timedelta(hours=2), usegmt=True)
    async with HostileGateway() as gateway:
        monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", gateway.token)
        gateway.play("", traps.status(404, headers={"Date": ahead}))
        found = await examined(here / "none.db", gateway__url=gateway.url)
    (problem,) = found.findings
    assert problem.message in ("the clock is 2 h behind the gateway's", "the clock is 120 min behind the gateway's")


@pytest.mark.parametrize(("seconds", "state"), [(0, ""), (50, ""), (-50, ""), (200, "warning"), (-900, "error")])
def test_how_far_apart_two_clocks_may_be(seconds: int, state: str) -> None:
    now = SystemClock().now()
    found = compare_clocks(now + timedelta(seconds=seconds), now).findings
    assert [one.severity for one in found] == ([state] if state else [])


def test_a_zone_that_is_not_known_is_told(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Atlantis")
    assert "TZ names an unknown time zone" in run("doctor").out


# The browser


def test_a_browser_that_is_missing_matters_where_the_settings_want_one(here: Path, run: Run) -> None:
    ran = run("doctor", "--set", "browser.executable=no-such-browser")
    assert ran.code == 1
    assert "tasks that need a browser cannot run: no such program: no-such-browser" in ran.out


def test_a_browser_that_is_missing_is_no_fault_otherwise(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(here / "none"))
    ran = run("doctor", "--strict")
    assert ran.code == 0, ran.out
    assert "no Chromium was found; no task has needed one yet" in ran.out
