"""`parcelpost init`: what it writes, what it asks, what it refuses."""

from __future__ import annotations

import os
import pty
import re
import select
import stat
import subprocess
from pathlib import Path

import pytest

from parcelpost.settings import Settings
from parcelpost.settings.schema import KEYS
from parcelpost.settings.sources import load
from parcelpost.settings.toml import settings_file
from tests.cli.support import COMMAND, Run


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PARCELPOST_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(here: Path, text: str | None = None) -> Settings:
    file = here / "parcelpost.toml"
    if text is not None:
        file.write_text(text)
    return load(config=file, environment={}, flags={}).settings


def test_without_a_word_it_is_a_worker_of_its_own(here: Path, run: Run) -> None:
    ran = run("init", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Wrote parcelpost.toml (standalone).\n\nNext:\n  parcelpost import ")
    assert written(here).worker.mode == "standalone"
    assert stat.S_IMODE((here / "parcelpost.toml").stat().st_mode) == 0o600
    assert run("config", "check").out == "No problems found.\n"
    assert [file.name for file in here.iterdir()] == ["parcelpost.toml"]


def test_what_is_given_is_written_and_the_next_commands_follow(here: Path, run: Run) -> None:
    ran = run(
        "init",
        "--gateway",
        "http://10.0.0.5:8700",
        "--slots",
        "8",
        "--platforms",
        "VGSI, echo",
        "--yes",
        "--dir",
        "sub",
    )
    assert ran.code == 0, ran.err
    found = written(here / "sub")
    assert (found.worker.mode, found.gateway.url, found.executor.slots) == ("ondemand", "http://10.0.0.5:8700", 8)
    assert found.worker.platforms == ("vgsi", "echo")
    assert "Note: http:// sends the token and all records unencrypted" in ran.out
    assert "Note: the gateway has a private address" in ran.out
    assert "  cd sub\n  export PARCELPOST_GATEWAY_TOKEN=..." in ran.out
    assert stat.S_IMODE((here / "sub").stat().st_mode) == 0o700


def test_of_a_token_that_is_set_nothing_is_said(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = ("http://127.0.0.1:8700", "https://gateway.example.org")
    assert all("token" in _init(run, url).split("parcelpost doctor")[0] for url in urls)
    monkeypatch.setenv("PARCELPOST_GATEWAY_TOKEN", "s3cret")
    assert not any("token" in _init(run, url).split("parcelpost doctor")[0] for url in urls)


def _init(run: Run, url: str) -> str:
    return run("init", "--yes", "--force", "--gateway", url).out


def test_every_key_is_in_it_and_at_its_default_without_its_comment_sign(here: Path) -> None:
    text = settings_file({})
    assert written(here, text) == Settings()
    uncommented = re.sub(r"^#", "", text, flags=re.MULTILINE)
    assert written(here, uncommented) == Settings()
    loaded = load(config=Path("parcelpost.toml"), environment={}, flags={})
    assert [name for name in KEYS if loaded.origins[name] == "default"] == [], "every one was read from the file"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--mode", "ondemand"), "mode ondemand needs a gateway"),
        (("--mode", "sometimes"), "worker.mode must be one of"),
        (("--gateway", "gateway.example.org"), "gateway.url must begin with http:// or https://"),
        (("--gateway", "https://me:hunter2@example.org"), "gateway.url must not contain a user name or a password"),
        (("--slots", "many"), "executor.slots must be a whole number"),
        (("--platforms", "vgsy"), "unknown platform 'vgsy' (did you mean vgsi?)"),
        (("--dir", "/proc/1/nowhere"), "is not a writable folder"),
    ],
)
def test_what_cannot_be_used_is_refused(here: Path, run: Run, flags: tuple[str, ...], problem: str) -> None:
    ran = run("init", "--yes", *flags)
    assert ran.code == 1
    assert problem in ran.err
    assert "hunter2" not in ran.err
    assert list(here.iterdir()) == []


def test_a_file_that_is_there_stays_without_force(here: Path, run: Run) -> None:
    file = here / "parcelpost.toml"
    file.write_text("[log]\nlevel = 'debug'\n")
    ran = run("init", "--yes")
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: parcelpost.toml already exists")
    assert file.read_text() == "[log]\nlevel = 'debug'\n"
    assert run("init", "--yes", "--force").code == 0
    assert written(here).log.level == "info"
    assert [one.name for one in here.iterdir()] == ["parcelpost.toml"]


def test_json_has_the_next_commands(here: Path, run: Run) -> None:
    found = run("init", "--yes", "--json").document
    assert (found["file"], found["mode"], found["next"][-1]) == ("parcelpost.toml", "standalone", "parcelpost status")


def test_on_a_terminal_it_asks_until_the_answers_can_be_used(here: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([COMMAND, "init"], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        for question, answer in (
            (b"Mode [standalone]: ", b"ondemand"),
            (b"Gateway URL: ", b"nonsense"),
            (b"Gateway URL: ", b"http://localhost:8700"),
            (b"Tasks to run at a time [4]: ", b""),
            (b"Platforms, separated by commas (empty: all): ", b"echo"),
        ):
            seen = _until(ours, question)
            os.write(ours, answer + b"\n")
        seen = _until(ours, b"parcelpost status")
        process.wait(timeout=60)
    os.close(ours)
    assert process.returncode == 0, seen
    found = written(here)
    assert (found.worker.mode, found.gateway.url) == ("ondemand", "http://localhost:8700")
    assert (found.executor.slots, found.worker.platforms) == (4, ("echo",))


def _until(terminal: int, words: bytes) -> bytes:
    seen = b""
    while words not in seen:
        assert select.select([terminal], [], [], 60)[0], seen
        seen += os.read(terminal, 65_536)
    return seen
