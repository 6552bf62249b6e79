"""Every command of README, docs and --help is understood by the command line, and run if it can be run here."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from bench.__main__ import BENCHMARKS
from parcelpost.errors import InvalidSettings
from parcelpost.files_and_sockets import free_port
from parcelpost.simulator.parcels import World
from tests.doc_commands import HELP, ROOT, commands_in, inline, leaf, typed, understood
from tests.doc_running import Reader, differences, reader
from tests.simulator.asking import parcel_page

NOT_RUN = {
    r"make (demo|test|setup|lint|docs).*": "tests/cli/test_demo.py runs the demo, and this is the test",
    r"python -m bench .*": "takes minutes; test_every_benchmark_is_there",
    r"(pip|sudo|createdb|gcloud|podman|docker|kubectl|systemctl|git) .*": "installs, or needs what is not here",
    r".*/etc/.*": "is for a machine's own folders",
    r"export \w+=.*": "is for the shell it is typed in",
    r"umask 077|mkdir -p deploy/.*|cd .*|echo \"(workers|database|ann): .*|.* > (gateway_token|database_password)": (
        "makes secrets for containers; tests/deploy has its own"
    ),
    r".* && firebase deploy .*": "deploys to Google; tests/cli/test_firestore.py has what it shows",
    r"curl -s .*": "tests/gateway/test_read_api_docs.py",
    r".*(gateway|db)\.example\.org.*": "names a machine that is not there",
    r".*--upstream firestore.*": "tests/acceptance/test_crash_firestore.py",
    r"parcelpost scrape .*": "asks a county's own site; tests/cli/test_scrape.py",
    r"parcelpost platforms map https://.*": "asks a county's own site; tests/scrapers/test_layers.py",
    r"parcelpost browser (open|doctor).*": "needs a Chromium and a person; tests/cli/test_browser.py",
    r"parcelpost (demo|top|init)( --.*)?": "tests/cli has a file for each",
    r"parcelpost chaos .*": "takes minutes; tests/chaos/test_chaos.py",
}
"""What is only read by the command line, and why."""

UNTIL_TOLD = {
    r"parcelpost gateway serve": "tokens",
    r"parcelpost run --gateway \S+": "WorkerStarted",
    r"parcelpost run --slots 8 --platforms .*": "WorkerStarted",
    r"parcelpost log --follow": "ok",
    r"parcelpost simulate county .*": "Press Ctrl-C to stop.",
}
"""What runs until Ctrl-C, and what it says when it is ready."""

ASK = (
    r"parcelpost (gateway (requeue|(schedule|webhook) delete)|store restore|(tasks|results) (retry|reject|delete)|"
    r"config|export -).*"
)
MAY_FAIL = {
    r"parcelpost (doctor|config check).*": "may find that no worker is running",
    r"parcelpost gateway (command pause --worker|release) hartford-1": "there is no such worker",
    r"parcelpost gateway webhook \w+ crm.*": "there is no such webhook: its address is of an example",
    r"parcelpost browser delete lee": "there is no such profile",
    r"parcelpost (tasks|results) (show|retry|reject|delete) 7f3a9c.*": "there is no such task",
    r"parcelpost store restore --latest": "a worker has the store open; tests/cli/test_store_backup.py",
    r"parcelpost export handover/ .*--state FL": "no parcel of the pages' files is there",
    r"parcelpost export map\..*": "what echo gives has no coordinates",
}


def first_of(known: dict[str, str], line: str) -> str | None:
    return next((known[pattern] for pattern in known if re.fullmatch(pattern, line, flags=re.DOTALL)), None)


@pytest.mark.slow
def test_the_quickstart_and_every_other_command_that_can_be_run_here_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for setting in ("MIN", "MAX"):  # for parcels whose sites are not there
        monkeypatch.setenv(f"PARCELPOST_EXECUTOR_RETRY_{setting}_SECONDS", "0.1")
    (tmp_path / "page.html").write_bytes(parcel_page("grizzly_gis", World(seed=1, county="columbia", size=9), 3).body)
    ports = {"8700": str(free_port()), "8090": str(free_port())}
    lines = [one for one in typed() if first_of(NOT_RUN, one.line) is None]
    lines = [one for one in lines if one.is_first or one.page != HELP]  # one example of each command
    quick = [one for one in lines if one.page == "quickstart.md"]
    with reader(tmp_path, capsys, ports) as somebody:
        for one in quick:
            printed = somebody_types(somebody, one.line)
            give_up_at = time.monotonic() + 60
            while differences(one.shown, in_the_pages_words(printed, ports)) and time.monotonic() < give_up_at:
                if one.line != "parcelpost gateway status":  # its counts of what happened are written every two seconds
                    break
                time.sleep(0.2)
                printed = somebody_types(somebody, one.line)
            assert differences(one.shown, in_the_pages_words(printed, ports)) == [], one.line
        assert set(somebody.interrupts_all()) == {0}
        known = {one.line for one in quick if not first_of(UNTIL_TOLD, one.line)}
        for line in dict.fromkeys(one.line for one in lines if one.page != "quickstart.md"):
            if line not in known:
                somebody_types(somebody, line)
        assert set(somebody.interrupts_all()) <= {0}


def somebody_types(somebody: Reader, line: str) -> str:
    if ready := first_of(UNTIL_TOLD, line):
        return somebody.leaves_running(line, ready)
    if line.startswith(("mv ", "parcelpost store salvage")):  # when the store's workers have ended
        assert set(somebody.interrupts_all()) <= {0}
    ran = somebody.types(line, is_asked=bool(re.fullmatch(ASK, line)))
    assert ran.code == 0 or first_of(MAY_FAIL, line), f"{line}: {ran.code}\n{ran.out}{ran.err}"
    assert "Traceback" not in ran.err
    return ran.out


def in_the_pages_words(printed: str, ports: dict[str, str]) -> str:
    lines = [line for line in printed.splitlines() if not line.startswith('{"time"')]  # a log that is no terminal's
    text = "\n".join(lines)
    for port, free in ports.items():
        text = text.replace(f":{free}", f":{port}")
    return text


def test_nothing_is_left_out_without_need() -> None:
    lines = {one.line for one in typed()}
    unused = [one for one in (*NOT_RUN, *UNTIL_TOLD, *MAY_FAIL) if not any(re.fullmatch(one, line) for line in lines)]
    assert unused == []


def test_what_the_quickstart_installs_writes_its_spreadsheet() -> None:
    """The tests have every package; a reader of that page has what it installs."""
    lines = [one.line for one in typed() if one.page == "quickstart.md"]
    assert any(line.startswith("parcelpost export") and line.endswith(".xlsx") for line in lines)
    (installs,) = [line for line in lines if line.startswith("pip install")]
    assert re.search(r"\[[a-z,]*\bexport\b", installs)


def test_every_benchmark_is_there() -> None:
    rows = re.findall(
        r"^\| (\w+) \|", (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert rows[:1] == ["benchmark"]
    assert {benchmark.NAME for benchmark in BENCHMARKS} == {name for name in rows if name not in ("benchmark", "goal")}


def test_the_command_line_understands_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.chdir(tmp_path)
    for line in sorted({one.line for one in typed() if "parcelpost" in one.line}):
        with subtests.test(line):
            for words in commands_in(line):
                try:
                    understood(words)
                except InvalidSettings:
                    assert "--config" in words, "only a settings file may be missing here"


def test_the_text_names_commands_and_options_that_are_there(subtests: pytest.Subtests) -> None:
    for words in sorted({words for _, words in inline()}):
        with subtests.test(words=words):
            command, _, _ = leaf(words.split()[1:])
            options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            assert set(re.findall(r"(?<=\s)--[a-z-]+", words)) <= options | {"--help"}
