"""`parcelpost gateway serve` as an operator uses it: a real process, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.acceptance.forked import Forked, run_forked
from tests.acceptance.processes import PATIENCE_SECONDS, command


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}


def parcelpost(folder: Path, *arguments: str) -> None:
    ran = run_forked(*arguments, folder=folder, environment=clean_environment(), timeout=PATIENCE_SECONDS)
    assert ran.returncode == 0, ran.stderr


class Serving(NamedTuple):
    """A `parcelpost gateway serve`."""

    process: Forked
    output: TextIO
    log: Path

    def announced(self) -> dict[str, str]:
        lines = [self.output.readline() for _ in range(5)]
        return {line[:11].strip(): line[11:].strip() for line in lines}

    def ended(self) -> int:
        return self.process.wait(PATIENCE_SECONDS)

    @property
    def errors(self) -> str:
        return self.log.read_text()


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    log = folder / "gateway.log"
    output, prints = os.pipe()
    with (
        os.fdopen(output) as printed,
        log.open("w") as errors,
        Forked(
            *("gateway", "serve", *arguments),
            folder=folder,
            environment=clean_environment(),
            stdout=prints,
            stderr=errors.fileno(),
        ) as process,
    ):
        os.close(prints)
        yield Serving(process, printed, log)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_serves_and_ends_when_told(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--port", "0") as gateway:
        said = gateway.announced()
        assert said["ledger"] == "gateway_data/gateway.db"
        assert said["raw files"] == "gateway_data/raw"
        assert said["tokens"] == "not required: only this machine can connect"
        with urlopen(f"{said['dashboard']}health") as answer:
            assert answer.status == 200
        gateway.process.send_signal(number)
        assert gateway.ended() == 0
    assert "GatewayStopped" in gateway.errors
    assert "Traceback" not in gateway.errors


def test_tasks_that_no_worker_could_do_are_refused_over_http(tmp_path: Path) -> None:
    def order(platform: str, county: str = "", url: str = "") -> dict[str, object]:
        target = {"parcel_id": "7", "state": "FL", "county": county, "url": url}
        return {"task_id": f"{platform} {county} {url}", "platform": platform, "target": target}

    def post(path: str, *orders: dict[str, object]) -> tuple[int, dict[str, Any]]:
        request = Request(f"{address}{path}", json.dumps(orders).encode(), method="POST")
        try:
            with urlopen(request) as answer:
                return answer.status, json.load(answer)
        except HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    good = [order("LEEPA", "Lee County"), order("leepa", "x", url="https://www.leepa.org/7"), order("echo")]
    bad = [order("leeepa", "lee"), order("leepa", "leee"), order("leepa")]
    with serving(tmp_path, "--port", "0") as gateway:
        address = gateway.announced()["dashboard"].rstrip("/")
        status, answer = post("/v1/tasks", bad[0], good[0], bad[1], *good[1:], bad[2])
        assert (status, answer["new"], [one["position"] for one in answer["bad"]]) == (200, 3, [1, 3, 6])
        problems = [one["problem"] for one in answer["bad"]]
        assert problems[0].startswith("unknown platform 'leeepa' (did you mean leepa?); known platforms: ")
        assert problems[1].startswith("leepa has no known site for leee, FL (did you mean lee, FL?); ")
        assert problems[2].startswith("leepa needs a county")
        assert all("?any_platform=true to accept it anyway" in problem for problem in problems)
        status, answer = post("/v1/tasks", *bad)
        assert (status, answer["error"]["code"]) == (422, "INVALID")
        assert all(problem in answer["error"]["message"] for problem in problems)
        assert post("/v1/tasks", order("ours"))[0] == 422
        heartbeat = Request(f"{address}/internal/heartbeat", b'{"platforms": ["ours"]}', method="POST")
        with urlopen(heartbeat) as answered:
            assert answered.status == 200
        assert post("/v1/tasks", order("ours"))[1]["new"] == 1, "a worker has it"
        assert post("/v1/tasks?any_platform=true", *bad)[1]["new"] == 3
        with urlopen(f"{address}/v1/queue") as answered:
            queued = {row["platform"] for row in json.load(answered)["queue"]}
        assert queued == {"leepa", "echo", "ours", "leeepa"}


def test_a_worker_of_this_machine_needs_no_token(tmp_path: Path) -> None:
    (tmp_path / "parcels.csv").write_text("parcel_id\n1\n2\n")
    with serving(tmp_path, "--port", "0") as gateway:
        address = gateway.announced()["dashboard"].rstrip("/")
        place = ("--platform", "echo", "--state", "CT", "--county", "hartford")
        parcelpost(tmp_path, "gateway", "add", "parcels.csv", *place)
        parcelpost(tmp_path, "run", "--gateway", address, "--until-empty")
        with urlopen(f"{address}/v1/parcels?platform=echo") as answer:
            found = json.load(answer)["parcels"]
    assert [parcel["parcel_id"] for parcel in found] == ["1", "2"]
    assert all(source["raw"] for parcel in found for source in parcel["sources"])


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as gateway:
        (port,) = re.findall(r":(\d+)/", gateway.announced()["dashboard"])
        with socket.create_connection(("127.0.0.1", int(port))) as slow:
            head = (
                "POST /internal/results HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Worker-ID: w\r\nContent-Length: 100\r\n\r\n["
            )
            slow.sendall(head.encode())
            with urlopen(f"http://127.0.0.1:{port}/health"):
                pass  # it has seen the one before by now
            gateway.process.send_signal(signal.SIGTERM)
            with suppress(ConnectionError):  # two signals that come together would be one: it has seen the first when
                while True:  # it takes nobody in any more
                    socket.create_connection(("127.0.0.1", int(port))).close()
                    time.sleep(0.02)
            gateway.process.send_signal(signal.SIGTERM)
            assert gateway.ended() == 0


def test_a_port_that_is_taken_and_a_door_without_lock_are_refused(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with serving(tmp_path, "--port", str(taken.getsockname()[1])) as gateway:
            assert gateway.ended() == 1
    assert "is not available" in gateway.errors
    assert "hint: " in gateway.errors
    with serving(tmp_path, "--host", "0.0.0.0", "--port", "0") as gateway:
        assert gateway.ended() == 2
    assert "no tokens are set" in gateway.errors


def test_what_other_machines_reach_over_plain_http_is_told(tmp_path: Path) -> None:
    files = []
    for kind in ("worker", "admin"):
        (tmp_path / kind).write_text(f"{kind}-token-of-many-characters\n")
        files += ["--set", f"server.{kind}_tokens_file={tmp_path / kind}"]
    with serving(tmp_path, "--host", "0.0.0.0", "--port", "0", *files) as gateway:
        assert gateway.announced()["tokens"] == "required for workers, readers, admins"
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.ended() == 0
    assert "note: other machines can reach this gateway over plain HTTP" in gateway.errors


def test_missing_packages_are_named_with_how_to_get_them(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "starlette.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'starlette'\", name='starlette')\n"
    )
    ran = subprocess.run(
        command("gateway", "serve", "--port", "0", settings={}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env=clean_environment() | {"PYTHONPATH": str(hidden)},
    )
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "error: the gateway needs the package starlette, which is not installed",
        "hint: in a clone of the repository, run: pip install '.[gateway]'",
    ]
