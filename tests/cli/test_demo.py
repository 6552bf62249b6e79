"""`parcelpost demo`: the story, the proof, the spreadsheets, and that nothing is left behind."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import psutil
import pytest

from parcelpost.places import county_slug, parcel_norm
from tests.cli.support import COMMAND, Run

pytestmark = pytest.mark.slow

PARCELS = "50"
MANY = "300"
"""More than are scraped before the test has seen what it waits for."""
TASKS = 3 * 50 + 1
PLATFORMS = {"grizzly_gis", "lien_register", "mygov_due", "vgsi"}


@contextmanager
def demo(temporary: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [COMMAND, "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=temporary,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """What it printed until then. The test's own time limit is the end."""
    assert process.stdout is not None
    read = ""
    while wanted not in read:
        line = process.stdout.readline()
        assert line, read
        read += line
    return read


class Told(NamedTuple):
    """A whole demonstration that stayed up until Ctrl-C."""

    folder: Path
    out: str
    err: str
    code: int
    statuses: list[int]
    """Of the dashboard's pages, while it was up."""
    overview: dict[str, Any]
    """Of the fleet and its records, while it was up."""
    schedules: list[dict[str, Any]]
    """Once the first run of one of them had ended."""
    map: dict[str, Any]
    children: list[psutil.Process]
    """While it was up."""


def asked(address: str, path: str) -> Any:
    with urlopen(f"{address}{path}") as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    temporary = tmp_path_factory.mktemp("demo")
    (temporary / "parcelpost.toml").write_text('[worker]\nmode = "standalone"\n')  # for real work: not for this
    with demo(temporary, "--parcels", PARCELS, "--stay", "--keep") as process:
        read = read_until(process, "Press Ctrl-C")
        (address,) = re.findall(r"The dashboard is at (\S+/)\.", read)
        statuses = []
        for path in ("health", "", "v1/liens"):
            with urlopen(f"{address}{path}") as answer:
                statuses.append(answer.status)
        schedules: list[dict[str, Any]] = []
        while not any(schedule["last_run"] for schedule in schedules):
            time.sleep(0.2)
            schedules = asked(address, "v1/schedules")["schedules"]
        overview, shown = asked(address, "v1/overview"), asked(address, "v1/search/parcels/map")
        shown["outline"] = asked(address, "v1/map/outline")["lines"]
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate()
    (folder,) = (one for one in temporary.iterdir() if one.is_dir())
    return Told(folder, read + rest, err, process.returncode, statuses, overview, schedules, shown, children)


@pytest.mark.xdist_group("demo")
def test_nothing_is_missing_after_both_were_killed(told: Told) -> None:
    out = told.out
    assert told.code == 0, out + told.err
    assert re.search(r"Killed the gateway \(SIGKILL\)\. It has the results of \d+ tasks; the worker", out)
    assert re.search(r"Killed the worker \(SIGKILL\)\. The results of \d+ tasks? exist only in its store", out)
    assert re.search(r"server error; \d+ tasks? w(as|ere) retried", out)
    assert re.search(rf"tasks queued, tasks finished +{TASKS} +{TASKS} +same\n", out)
    assert re.search(r"records, each exactly once +(\d+) +\1 +same\n", out)
    assert re.search(r"records with the same content +(\d+) +\1 +same\n", out)
    assert re.search(r"records with the same raw page +(\d+) +\1 +same\n", out)
    assert "Nothing was lost." in out
    assert re.search(rf"scraped by the worker: \d+ of {TASKS}; stored at the gateway: \d+\n", told.err)
    assert str(told.folder / "gateway" / "gateway.db") in out
    _check_spreadsheets(told.folder, out)


@pytest.mark.xdist_group("demo")
def test_what_is_kept_is_whole_and_no_other_demo_goes_there(told: Told, run: Run) -> None:
    assert run("store", "check", "--deep", "--store", told.folder / "worker" / "parcelpost.db").code == 0
    assert [file for file in told.folder.rglob("*") if file.stat().st_mode & 0o077] == []
    again = run("demo", "--dir", told.folder)
    assert (again.code, again.err.splitlines()[0]) == (1, f"error: {told.folder} already contains a demo")


@pytest.mark.xdist_group("demo")
def test_the_dashboard_stays_up_until_ctrl_c(told: Told) -> None:
    assert told.statuses == [200, 200, 200]
    assert len(told.children) == 3  # websites, gateway and a worker that waits for tasks
    assert not any(child.is_running() for child in told.children)


@pytest.mark.xdist_group("demo")
def test_the_dashboard_shows_nothing_red(told: Told) -> None:
    """The worker that was killed came back, and what a site does not show of a parcel is no failure."""
    fleet, platforms = told.overview["fleet"], told.overview["platforms"]
    assert fleet["offline"] == 0
    assert {row["platform"] for row in platforms} >= PLATFORMS
    assert [row["failing_selectors"] for row in platforms] == [[]] * len(platforms)
    assert (told.overview["ok"], told.overview["findings"]) == (True, [])


@pytest.mark.xdist_group("demo")
def test_schedules_keep_all_counties_fresh_and_the_map_has_an_outline(told: Told) -> None:
    assert {schedule["platform"] for schedule in told.schedules} == PLATFORMS
    known = [schedule for schedule in told.schedules if schedule["scope"] != "list"]
    assert [schedule["fresh_share"] for schedule in known] == [1.0] * 3
    runs = [schedule["last_run"] for schedule in told.schedules if schedule["last_run"]]
    assert [(run["done"], run["failed"]) for run in runs] == [(1, 0)] * len(runs)
    longitudes, latitudes = zip(*(point for line in told.map["outline"] for point in line), strict=True)
    assert told.map["clusters"]
    for cluster in told.map["clusters"]:
        assert min(longitudes) < cluster["lon"] < max(longitudes)
        assert min(latitudes) < cluster["lat"] < max(latitudes)


@pytest.mark.xdist_group("demo")
def test_what_two_platforms_show_of_a_parcel_is_counted_once(told: Told) -> None:
    parcels, liens = (_rows(told.folder / name) for name in ("parcels.csv", "liens.csv"))
    keys = {_parcel(row) for row in parcels}
    certificates = {(*_parcel(row), row["certificate_number"], row["certificate_year"]) for row in liens}
    counts = told.overview["counts"]
    assert (counts["parcels"], counts["liens"]) == (len(keys), len(certificates))
    assert len(keys) == len(parcels) - int(PARCELS), "grizzly_gis and mygov_due have the same parcels"


def _parcel(row: dict[str, str]) -> tuple[str, str, str]:
    return row["state"], county_slug(row["county"]), parcel_norm(row["parcel_id"])


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("file", "{} is not a folder"),
        ("file/below", "cannot use {}: Not a directory"),
        ("used", "{} is not empty"),
    ],
)
def test_a_folder_that_cannot_be_used_is_left_as_it_is(run: Run, tmp_path: Path, place: str, what: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "parcels.csv").write_text("mine")
    ran = run("demo", "--dir", tmp_path / place)
    assert ran.code == 1
    first, second = ran.err.splitlines()
    assert first == f"error: {what.format(tmp_path / place)}"
    assert second == "hint: choose another folder with --dir"
    assert {path.name for path in tmp_path.rglob("*")} == {"file", "used", "parcels.csv"}


def _check_spreadsheets(folder: Path, out: str) -> None:
    assert f"{folder / 'parcels.csv'}, {folder / 'liens.csv'}" in out
    parcels, liens = (_rows(folder / name) for name in ("parcels.csv", "liens.csv"))
    assert f"parcels.csv: {len(parcels)} parcels." in out
    assert f"liens.csv: {len(liens)} liens." in out
    assert {row["platform"] for row in parcels} == PLATFORMS
    assert {row["platform"] for row in liens} == {"lien_register", "mygov_due"}
    assert len(liens) == sum(int(row["lien_count"]) for row in parcels)
    assert all(Decimal(row["market_value"]) >= 0 for row in parcels if row["platform"] != "lien_register")
    assert any(Decimal(row["tax_due"]) > 0 for row in parcels if row["platform"] == "mygov_due")
    assert all(Decimal(row["face_amount"]) > 0 and date.fromisoformat(row["sale_date"]) for row in liens)


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with demo(tmp_path, "--parcels", MANY) as process:
        read_until(process, "Started a worker")
        children = psutil.Process(process.pid).children()
        assert len(children) == 3
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert not any(child.is_running() for child in children)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_demo_takes_its_processes_with_it_and_its_files_are_where_they_were_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "wanted"
    with demo(tmp_path, "--parcels", MANY, "--dir", str(folder)) as process:
        read_until(process, "Started a worker")
        children = psutil.Process(process.pid).children()
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []
    assert (folder / "worker" / "parcelpost.db").is_file()


@pytest.mark.long
def test_a_terminal_sees_bars_and_only_the_spreadsheets_stay(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    command = [COMMAND, "demo", "--parcels", PARCELS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # how Linux says that the other side is closed
            os.close(ours)
    assert process.returncode == 0
    assert b"scraped by the worker" in seen
    assert b"stored at the gateway" in seen
    assert "━".encode() in seen
    (folder,) = tmp_path.iterdir()
    assert {file.name for file in folder.iterdir()} == {"parcels.csv", "liens.csv"}
