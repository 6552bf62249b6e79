"""`parcelpost simulate county`: what it prints and writes, how it ends, and what it refuses."""

from __future__ import annotations

import csv
import signal
import socket
import subprocess
import tomllib
from pathlib import Path
from urllib.request import urlopen

import pytest

from parcelpost.simulator.sites import SITES
from tests.cli.support import COMMAND, Run

PATIENCE_SECONDS = 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_its_sites_are_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    counties, tasks = tmp_path / "counties.toml", tmp_path / "tasks.csv"
    files = ["--counties-file", str(counties), "--tasks-file", str(tasks)]
    command = [COMMAND, "simulate", "county", "--port", "0", "--parcels", "30", *files]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline() for _ in range(len(SITES) + 5)]
            places = {line.split()[0]: line.split()[1] for line in lines[1:-4]}
            assert lines[-4] == "To scrape these sites:\n"
            assert "--set fetch.allow_private=127.0.0.1" in lines[-2]
            assert places.keys() == SITES.keys()
            assert (
                lines[-1] == f"Faults: {places['vgsi'].removesuffix('/vgsi')}/_control/faults. Press Ctrl-C to stop.\n"
            )
            with urlopen(f"{places['vgsi']}/inventednh/Parcel.aspx?Pid=7", timeout=PATIENCE_SECONDS) as answer:
                assert answer.status == 200
                process.send_signal(number)  # while a connection is open
                out, err = process.communicate(timeout=PATIENCE_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (0, "", "")
    entries = tomllib.loads(counties.read_text())["county"]
    assert {
        entry["platform"]: entry["site"].startswith(places[entry["platform"]]) for entry in entries
    } == dict.fromkeys(SITES, True)
    with tasks.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["platform"] == "vgsi" for row in rows) == 30
    assert [row["url"] for row in rows if row["platform"] == "govease"] == [
        f"{places['govease']}/fl/flinvented/1348/?page={page}" for page in (1, 2)
    ]


@pytest.mark.parametrize(
    ("arguments", "problem", "hint"),
    [
        (["--platform", "cadastre"], "no simulator for platform 'cadastre'", "available: arcgis, beacon,"),
        (["--fault", "lightning=0.1"], "unknown fault 'lightning'", "known faults: slow, 500,"),
        (["--fault", "500=often"], "not a valid fault: '500=often'", "such as 500=0.05"),
        (["--fault", "500"], "not a valid fault: '500'", "such as 500=0.05"),
        (["--fault", "500=1.5"], "the rate of 500 is 1.5", "it must be between 0 and 1"),
        (["--fault", "500=nan"], "the rate of 500 is nan", "it must be between 0 and 1"),
        (["--port", "0", "--tasks-file", "no/such/folder/tasks.csv"], "no/such/folder/tasks.csv", "another file"),
    ],
)
def test_what_cannot_be_served_is_refused_with_what_to_do(
    run: Run, arguments: list[str], problem: str, hint: str
) -> None:
    ran = run("simulate", "county", *arguments)
    assert (ran.code, ran.out) == (1, "")
    error, advice = ran.err.splitlines()
    assert problem in error
    assert hint in advice


def test_a_port_that_is_taken_is_said(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = run("simulate", "county", "--port", port)
    assert ran.code == 1
    assert f"cannot serve on port {port}" in ran.err
    assert "choose another port with --port" in ran.err
