"""`parcelpost browser status`, `profiles` and `delete`: what is told of browsers and of saved sessions."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path

import pytest

from parcelpost.cli.commands import browser
from parcelpost.cli.commands.browser import PROFILES_EXAMPLES
from parcelpost.clock import SystemClock
from parcelpost.model import BrowserState
from parcelpost.storage import LocalPersistenceManager
from parcelpost.worker.status import BrowserWaits, publish
from tests.cli.support import Run, a_status, holder, run_process, task

SESSION = {
    "cookies": [{"name": "terms", "value": "s3cret", "domain": ".county.example.org", "path": "/"}],
    "origins": [{"origin": "https://map.example.org:8443", "localStorage": [{"name": "a", "value": "hidden"}]}],
}


@pytest.fixture
def program(tmp_path: Path) -> str:
    """Something that can be found as Chromium."""
    path = tmp_path / "chromium"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o700)
    return f"browser.executable={path}"


@pytest.fixture
def profile(store: Path) -> Path:
    path = store.parent / "browser_profiles" / "lee.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SESSION))
    return path


def put(store: Path, **fields: object) -> None:
    async def put() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            now = SystemClock().now()
            facts = {"status": "idle", "last_health_check": now, "created_at": now, **fields}
            await lpm.browsers.add(BrowserState(browser_id=0, **facts))  # type: ignore[arg-type]

    asyncio.run(put())


def test_without_browsers_it_says_how_many_are_safe(store: Path, run: Run, program: str) -> None:
    ran = run("browser", "status", "--store", store, "--set", program, "--set", "browser.most=3")
    assert ran.code == 0
    assert "No problems found.\n" in ran.out
    assert "of at most 3 (350.0 MiB each, an estimate until one is measured; " in ran.out
    assert "No browser is running: one starts when a task needs it.\n" in ran.out


def test_each_browser_is_shown_with_whose_it_is(store: Path, run: Run, program: str) -> None:
    with holder(store) as process:
        owner = next(lock.stem for lock in (store.parent / "parcelpost.db-live").glob("holder-*.lock"))
        put(store, owner=owner, status="busy", current_task_id="t0", memory_mb=220, tasks_completed=7, launches=2)
        put(store, owner="worker-1-0123abcd", status="idle")
        found = run("browser", "status", "--store", store, "--set", program).out
        process.kill()
    rows = [line.split() for line in found.splitlines() if " MiB  " in line or "(crashed)" in line]
    assert rows[0][:7] == ["1", "busy", "t0", "7", "2", "220", "MiB"]
    assert rows[0][-2:] == [owner, "(running)"]
    assert rows[1][:5] == ["2", "idle", "-", "0", "1"]
    assert "Warning: a crashed worker may have left 1 browser behind. Fix: start a worker" in found
    assert "220.0 MiB each, measured" in found


def test_the_first_start_is_no_restart(store: Path, run: Run, program: str) -> None:
    put(store, status="restarting", launches=1)
    put(store, status="restarting", launches=1, pid=4711)
    put(store, status="restarting", launches=2)
    found = run("browser", "status", "--store", store, "--set", program, "--json").document["browsers"]
    assert [one["status"] for one in found] == ["starting", "restarting", "restarting"]


@pytest.mark.parametrize("text", [browser.STATUS_EXAMPLES, browser.DOCTOR_EXAMPLES, PROFILES_EXAMPLES])
def test_what_the_examples_take_from_the_json_is_there(store: Path, run: Run, profile: Path, text: str) -> None:
    put(store, memory_mb=220)
    ((command, wanted),) = re.findall(r"parcelpost (.+) \| jq (?:-r )?'?([^'\n]+)", text)
    found = run(*command.split(), "--store", store, "--set", "browser.executable=/no/chromium").document
    for name in wanted.removeprefix(".").replace("[]", ".0").split("."):
        found = found[int(name) if name.isdigit() else name]
    assert found is not None


def test_what_keeps_tasks_from_a_browser_is_told(store: Path, run: Run) -> None:
    async def wait() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            await lpm.add_task(task("g1", "grizzly_gis"))
            waits = BrowserWaits(SystemClock())
            waits.deferred(task("g1", "grizzly_gis"), "it cannot start")
            await publish(lpm.state, a_status(browser_waits=tuple(waits.current)))

    asyncio.run(wait())
    settings = ("--set", "browser.executable=/no/chromium", "--set", "browser.most=0")
    found = run("browser", "status", "--store", store, *settings, "--json").document
    whats = [problem["message"] for problem in found["findings"]]
    assert whats == [
        "tasks that need a browser cannot run: no such program: /no/chromium",
        "browser.most is 0: no browser is started",
        "tasks of grizzly_gis are waiting for a browser: it cannot start",
    ]
    assert (found["ok"], found["chromium"], found["room"]["safe"]) == (False, "", 0)


def test_where_nothing_is_found_it_is_told_what_to_install_and_where_was_looked(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "none"))
    ran = run("browser", "doctor", "--store", tmp_path / "no.db")
    assert ran.code == 1
    assert ran.out.startswith(
        "Error: tasks that need a browser cannot run: no Chromium was found. Fix: install it with '"
    )
    assert "'playwright install chromium'" in ran.out
    assert re.search(r"^capacity +\d+ browsers? of at most", ran.out, re.MULTILINE)
    assert f"  Playwright's folder {tmp_path / 'none'}\n" in ran.out
    assert not (tmp_path / "no.db").exists()


def test_a_program_that_is_no_chromium_is_told(store: Path, run: Run, program: str) -> None:
    ran = run("browser", "doctor", "--store", store, "--set", program, "--set", "browser.sandbox=off")
    assert ran.code == 1
    assert "chromium cannot be used: starting Chromium failed" in ran.out
    assert "sandbox   off: browser.sandbox is off\n" in ran.out


def test_where_the_sandbox_is_the_reason_that_is_what_to_see_to(store: Path, run: Run, program: str) -> None:
    path = Path(program.partition("=")[2])
    path.write_text("#!/bin/sh\necho 'FATAL: No usable sandbox!' >&2\nexit 1\n")
    ran = run("browser", "doctor", "--store", store, "--set", program, "--set", "browser.sandbox=on")
    assert ran.code == 1
    assert "its sandbox does not work here. Fix: set browser.sandbox to auto or off.\n" in ran.out
    assert "install-deps" not in ran.out
    assert "\nsandbox   requested\n" in ran.out


def test_profiles_are_listed_without_their_secrets(store: Path, run: Run, profile: Path) -> None:
    profile.with_name("bad.json").write_text("no session")
    profile.with_name(".hidden.json").write_text("{}")
    out = run("browser", "profiles", "--store", store).out
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert list(rows) == ["bad", "lee"]
    assert rows["lee"].split()[1:4] == ["1", "county.example.org,", "map.example.org"]
    assert out.splitlines()[0].split() == ["profile", "cookies", "sites", "saved", "problem"]
    assert rows["bad"].split()[1:3] == ["0", "-"]
    assert "cannot be used" in rows["bad"].split("  ")[-1]
    assert "s3cret" not in out
    assert "hidden" not in out


def test_no_profile_is_told(store: Path, run: Run) -> None:
    assert run("browser", "profiles", "--store", store).out.startswith("No profiles. Create one with ")
    assert run("browser", "profiles", "--store", store, "--json").document == {"profiles": []}


def test_a_profile_is_deleted_only_after_a_yes(store: Path, run: Run, profile: Path) -> None:
    assert run_process("browser", "delete", "lee", "--store", store, answer="n\n").code == 1
    assert profile.exists()
    assert run("browser", "delete", "lee", "--yes", "--store", store).out == "Deleted the browser profile lee.\n"
    assert not profile.exists()
    ran = run("browser", "delete", "lee", "--yes", "--store", store)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: there is no browser profile lee")


@pytest.mark.parametrize("name", ["../lee", "", ".x", "x" * 65])
def test_no_name_leads_out_of_the_folder(store: Path, run: Run, name: str) -> None:
    for command in (["delete", "--yes"], ["open", "https://example.org", "--profile"]):
        ran = run("browser", *command, "--store", store, "--", name) if command[0] == "delete" else run(
            "browser", *command, name, "--store", store
        )  # fmt: skip
        assert ran.code == 1
        assert "not a valid profile name" in ran.err


@pytest.mark.parametrize("url", ["file:///etc/passwd", "example.org", "javascript:alert(1)", "https://"])
def test_only_pages_of_sites_are_opened(store: Path, run: Run, url: str) -> None:
    ran = run("browser", "open", "--profile", "lee", url, "--store", store)
    assert ran.code == 1
    assert "not a valid URL" in ran.err


def test_a_profile_that_cannot_be_read_is_not_overwritten(
    store: Path, run: Run, profile: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "DISPLAY", "")
    profile.write_text("no session")
    command = ("browser", "open", "--profile", "lee", "https://example.org", "--store", store, "--set", program)
    ran = run(*command, "--set", "browser.sandbox=off")
    assert ran.code == 1
    assert "'parcelpost browser delete lee'" in ran.err
    assert profile.read_text() == "no session"
