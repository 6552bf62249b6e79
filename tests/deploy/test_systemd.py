"""The units, as systemd itself sees them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parcelpost.settings import Settings
from tests.deploy.files import DEPLOY, UNITS, unit_lines

ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze here")
MOST_EXPOSED = 2.5
"""By systemd's own count, from 0 (none) to 10."""


def installed(unit: Path, folder: Path) -> Path:
    """With its drop-ins, and a program that is there."""
    folder.mkdir(exist_ok=True)
    text = unit.read_text(encoding="utf-8").replace("/opt/parcelpost/bin/parcelpost", sys.executable)
    (folder / unit.name).write_text(re.sub(r"(?m)^(User|Group)=.*$", r"\1=root", text))
    return folder / unit.name


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(ANALYZE), *arguments], capture_output=True, text=True, check=False)


@needs_systemd
@pytest.mark.parametrize("with_drop_ins", [False, True])
def test_systemd_finds_no_fault_in_the_units(tmp_path: Path, with_drop_ins: bool) -> None:
    made = [installed(unit, tmp_path) for unit in UNITS]
    if with_drop_ins:
        for unit in UNITS:
            shutil.copytree(DEPLOY / "systemd" / f"{unit.name}.d", tmp_path / f"{unit.name}.d")
    done = analyze("verify", "--man=no", *map(str, made))
    about_ours = [line for line in done.stderr.splitlines() if "parcelpost" in line]
    assert (done.returncode, about_ours) == (0, [])


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_units_give_away_little(tmp_path: Path, unit: Path) -> None:
    done = analyze("security", "--offline=true", "--no-pager", str(installed(unit, tmp_path)))
    (level,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert float(level) <= MOST_EXPOSED, done.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_units_are_told_of_life_and_wait_for_a_drain(unit: Path) -> None:
    said = dict(unit_lines(unit))
    assert (said["Type"], said["NotifyAccess"], said["TimeoutStartSec"]) == ("notify", "main", "infinity")
    assert int(said["WatchdogSec"]) >= 30
    assert said["NoNewPrivileges"] == "yes"
    assert said["ProtectSystem"] == "strict"
    assert int(said["TimeoutStopSec"]) >= Settings().worker.drain_seconds + 45


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_mistake_in_the_settings_is_not_started_again(unit: Path, tmp_path: Path) -> None:
    prevented = {int(code) for code in dict(unit_lines(unit))["RestartPreventExitStatus"].split()}
    (tmp_path / "bad.toml").write_text("[executor]\nslots = 'many'\n")
    program = [sys.executable, "-m", "parcelpost", *dict(unit_lines(unit))["ExecStart"].split()[1:-1]]
    for settings in (tmp_path / "bad.toml", tmp_path / "missing.toml"):
        ran = subprocess.run(
            [*program, settings], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )
        assert ran.returncode in prevented, ran.stderr


def test_the_workers_token_is_a_credential() -> None:
    said = unit_lines(DEPLOY / "systemd" / "parcelpost-worker.service")
    assert ("LoadCredential", "gateway_token:/etc/parcelpost/gateway_token") in said
    assert ("Environment", "PARCELPOST_GATEWAY_TOKEN_FILE=%d/gateway_token") in said
