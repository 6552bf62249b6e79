"""`parcelpost gateway serve` as an operator uses it: a real process, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}


def parcelpost(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "parcelpost", *arguments]
    subprocess.run(command, cwd=folder, env=clean_environment(), check=True, stdout=subprocess.DEVNULL, timeout=120)


@contextmanager
def serving(folder: Path, *arguments: str, path: str = "") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "parcelpost", "gateway", "serve", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment() | ({"PYTHONPATH": path} if path else {}),
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def announced(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(5)]
    return {line[:11].strip(): line[11:].strip() for line in lines}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_serves_and_ends_when_told(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--port", "0") as process:
        said = announced(process)
        assert said["ledger"] == "gateway_data/gateway.db"
        assert said["raw files"] == "gateway_data/raw"
        assert said["tokens"] == "not needed: it serves this machine only"
        with urlopen(f"{said['dashboard']}health") as answer:
            assert answer.status == 200
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "GatewayStopped" in err
    assert "Traceback" not in err


def test_a_worker_of_this_machine_needs_no_token(tmp_path: Path) -> None:
    (tmp_path / "parcels.csv").write_text("parcel_id\n1\n2\n")
    with serving(tmp_path, "--port", "0") as process:
        address = announced(process)["dashboard"].rstrip("/")
        place = ("--platform", "echo", "--state", "CT", "--county", "hartford")
        parcelpost(tmp_path, "gateway", "add", "parcels.csv", *place)
        parcelpost(tmp_path, "run", "--gateway", address, "--until-empty")
        with urlopen(f"{address}/v1/parcels?platform=echo") as answer:
            found = json.load(answer)["parcels"]
    assert [parcel["parcel_id"] for parcel in found] == ["1", "2"]
    assert all(parcel["raw"] for parcel in found)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as process:
        (port,) = re.findall(r":(\d+)/", announced(process)["dashboard"])
        with socket.create_connection(("127.0.0.1", int(port))) as slow:
            head = (
                "POST /internal/results HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Worker-ID: w\r\nContent-Length: 100\r\n\r\n["
            )
            slow.sendall(head.encode())
            with urlopen(f"http://127.0.0.1:{port}/health"):
                pass  # it has seen the one before by now
            process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):  # two signals that come together would be one: it has seen the first when
                while True:  # it takes nobody in any more
                    socket.create_connection(("127.0.0.1", int(port))).close()
                    time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode == 0


def test_a_port_that_is_taken_and_a_door_without_lock_are_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with serving(tmp_path, "--port", str(taken.getsockname()[1])) as process:
            _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cannot be used" in err
    assert "hint: " in err
    with serving(tmp_path, "--host", "0.0.0.0", "--port", "0") as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no tokens are set" in err


def test_what_other_machines_reach_over_plain_http_is_told(tmp_path: Path) -> None:
    files = []
    for kind in ("worker", "admin"):
        (tmp_path / kind).write_text(f"{kind}-token-of-many-characters\n")
        files += ["--set", f"server.{kind}_tokens_file={tmp_path / kind}"]
    with serving(tmp_path, "--host", "0.0.0.0", "--port", "0", *files) as process:
        assert announced(process)["tokens"] == "needed by workers, readers, admins"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert "note: other machines reach it over plain http" in err


def test_missing_packages_are_named_with_how_to_get_them(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "fastapi.py").write_text("raise ModuleNotFoundError(\"No module named 'fastapi'\", name='fastapi')\n")
    with serving(tmp_path, "--port", "0", path=str(hidden)) as process:
        _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines() == [
        "error: the gateway needs the package fastapi, which is not installed",
        "hint: in the project's clone: pip install '.[gateway]'",
    ]
