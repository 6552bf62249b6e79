"""Which Chromium is taken, and what is said where there is none."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parcelpost.clock import SystemClock
from parcelpost.events import BrowsersUnavailable, Event
from parcelpost.scrapers.browser import chromium
from parcelpost.scrapers.browser.browser import BrowserCallFailed, PlaywrightDriver
from parcelpost.scrapers.browser.chromium import ChromiumFound, ChromiumMissing, SandboxCheck
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.fetch.errors import BrowserUnavailable
from parcelpost.settings.schema import BrowserSettings
from parcelpost.storage import LocalPersistenceManager
from tests.scrapers.users import as_nobody, needs_root, open_folder

_NEW_NAMESPACES = 0x70000000


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho 'a warning'\necho 'Chromium 140.0.1.2 '\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(autouse=True)
def _nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path / "own"))


@pytest.mark.skipif(sys.platform == "darwin", reason="applications are looked for in fixed places too")
def test_where_there_is_none_it_is_said_what_to_install() -> None:
    found = chromium.find()
    assert isinstance(found, ChromiumMissing)
    assert found.reason == "no Chromium was found"
    assert "playwright install chromium" in found.hint


def test_the_named_one_goes_first_then_playwrights_newest_then_the_systems(tmp_path: Path) -> None:
    system = program(tmp_path / "bin" / "chromium")
    assert chromium.find() == ChromiumFound(path=system, source="system")
    program(tmp_path / "own" / "chromium-999" / "chrome-linux" / "chrome")
    own = program(tmp_path / "own" / "chromium-1234" / "chrome-linux64" / "chrome")
    assert chromium.find() == ChromiumFound(path=own, source="playwright")
    shell = program(tmp_path / "own" / "chromium_headless_shell-1234" / "chrome-linux" / "headless_shell")
    assert chromium.find() == ChromiumFound(path=shell, source="playwright")
    named = program(tmp_path / "elsewhere" / "mine")
    assert chromium.find(BrowserSettings(executable=named)) == ChromiumFound(path=named, source="settings")
    assert chromium.find(BrowserSettings(executable="chromium")) == ChromiumFound(path=system, source="settings")


@pytest.mark.skipif(sys.platform == "darwin", reason="caches are in another folder")
def test_playwrights_browsers_are_found_in_the_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLAYWRIGHT_BROWSERS_PATH")
    for variable, folder in (("HOME", tmp_path / "home" / ".cache"), ("XDG_CACHE_HOME", tmp_path / "cache")):
        monkeypatch.setenv(variable, str(folder if variable == "XDG_CACHE_HOME" else folder.parent))
        own = program(folder / "ms-playwright" / "chromium-1234" / "chrome-linux" / "chrome")
        if variable == "HOME":
            monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert chromium.find() == ChromiumFound(path=own, source="playwright")


def test_a_name_that_is_no_program_is_told() -> None:
    found = chromium.find(BrowserSettings(executable="/no/such/chromium"))
    assert isinstance(found, ChromiumMissing)
    assert found.reason == "no such program: /no/such/chromium"


def test_the_sandbox_is_as_the_settings_say_and_root_has_none(tmp_path: Path) -> None:
    path = program(tmp_path / "bin" / "chromium")
    assert chromium.sandbox(BrowserSettings(sandbox="on"), path).is_on
    off = chromium.sandbox(BrowserSettings(sandbox="off"), path)
    assert (off.is_on, off.reason) == (False, "browser.sandbox is off")


@needs_root
def test_root_has_no_sandbox_and_others_have_one_if_the_system_allows_namespaces(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    path = program(tmp_path / "bin" / "chromium")
    assert chromium.sandbox(BrowserSettings(), path) == SandboxCheck(
        is_on=False, reason="Chromium's sandbox does not work for root"
    )
    with open_folder() as folder:
        path = program(folder / "chromium")
        allowed = as_nobody(
            lambda: os.access(sys.executable, os.X_OK) and ctypes.CDLL(None).unshare(_NEW_NAMESPACES) == 0
        )
        with subtests.test("without a program of its own"):
            by_itself = as_nobody(lambda: chromium.sandbox(BrowserSettings(), path).is_on)
            assert by_itself is allowed
        helper = Path(program(folder / "chrome-sandbox"))
        helper.chmod(0o4755)
        with subtests.test("with a setuid program"):
            assert as_nobody(lambda: chromium.sandbox(BrowserSettings(), path).is_on) is True
        helper.chmod(0o755)
        with subtests.test("with a program that is not setuid"):
            assert as_nobody(lambda: chromium.sandbox(BrowserSettings(), path).is_on) is allowed


async def test_without_playwright_the_pool_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "playwright", None)
    told: list[Event] = []
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        opened = BrowserPool.open(
            BrowserSettings(), lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=told.append
        )
        async with opened as pool:
            for _ in range(2):
                with pytest.raises(
                    BrowserUnavailable, match=r"Playwright is not installed .*'\.\[browser\]'"
                ) as caught:
                    async with pool.lease("t1"):
                        pass
                assert caught.value.after_seconds > 30
            assert pool.opens_in() > 30
    (event,) = told
    assert isinstance(event, BrowsersUnavailable)


async def test_a_pool_of_none_starts_none(tmp_path: Path) -> None:
    async with LocalPersistenceManager.open(tmp_path / "store.db") as lpm:
        opened = BrowserPool.open(
            BrowserSettings(most=0), lpm.browsers, owner=lpm.owner_id, clock=SystemClock(), emit=lambda _: None
        )
        async with opened as pool:
            with pytest.raises(BrowserUnavailable, match=r"browser\.most is 0"):
                async with pool.lease("t1"):
                    pass


def test_every_module_can_be_imported_without_playwright() -> None:
    code = """
import sys, pkgutil, importlib
sys.modules["playwright"] = None
import parcelpost.scrapers
for one in pkgutil.walk_packages(parcelpost.scrapers.__path__, "parcelpost.scrapers."):
    importlib.import_module(one.name)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="applications are looked for in fixed places too")
async def test_without_a_home_there_is_nothing_in_it_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user of whom the system knows nothing."""
    for name in ("HOME", "XDG_CACHE_HOME", "PLAYWRIGHT_BROWSERS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    assert isinstance(chromium.find(), ChromiumMissing)
    assert [place for place in chromium.search_places() if "Playwright" in place] == []
    with pytest.raises(BrowserCallFailed, match="this user has none") as caught:
        await PlaywrightDriver.start()
    assert caught.value.hint == "set HOME to any folder"
