"""`parcelpost browser doctor` and `open`, in real Chromium."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import stat
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from parcelpost.scrapers.browser import chromium
from parcelpost.scrapers.browser.chromium import ChromiumMissing
from tests.cli.support import COMMAND, Run
from tests.website import Asked, Reply, website

pytestmark = pytest.mark.skipif(isinstance(chromium.find(), ChromiumMissing), reason="Chromium is not installed")

TERMS = b"<title>Terms</title><script>localStorage.setItem('seen', (localStorage.getItem('seen') || '') + 'x')</script>"
PATIENCE = 120


def test_the_doctor_loads_a_page(tmp_path: Path, run: Run) -> None:
    ran = run("browser", "doctor", "--json", "--store", tmp_path / "no.db")
    found = ran.document
    assert (ran.code, found["ok"], found["findings"]) == (0, True, [])
    assert re.search(r"\d+\.\d+", found["version"])
    assert found["memory_bytes"] > 30_000_000
    assert found["room"]["safe"] >= 1
    assert found["room"]["measured"]
    assert [one for one in psutil.process_iter(["cmdline"]) if "=doctor-" in " ".join(one.info["cmdline"] or ())] == []


@contextlib.asynccontextmanager
async def opened(store: Path, url: str, *more: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The command, once it has said what a person is to do, and what it said."""
    arguments = ("browser", "open", "--profile", "lee", url, "--store", str(store), "--json", *more)
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        COMMAND, *arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment
    )
    assert process.stderr
    try:
        async with asyncio.timeout(PATIENCE):
            said = (await process.stderr.readuntil(b"when you are done.\n")).decode()
            yield process, said
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_a_session_is_saved_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "browser_profiles" / "lee.json"

    def terms(asked: Asked) -> Reply:
        number = len(re.findall("visit", asked.headers.get("cookie", "")))
        return Reply(TERMS, headers={"Set-Cookie": f"visit{number}=1; Path=/"})

    async with website() as site:
        site.pages["/terms"] = terms
        path.parent.mkdir()
        stored = {"origin": site.url, "localStorage": [{"name": "seen", "value": "x"}]}
        cookie = {"name": "visit0", "value": "1", "domain": "127.0.0.1", "path": "/", "expires": -1}
        rest = {"httpOnly": False, "secure": False, "sameSite": "Lax"}
        path.write_text(json.dumps({"cookies": [cookie | rest], "origins": [stored]}))
        async with opened(tmp_path / "parcelpost.db", f"{site.url}/terms") as (process, said):
            (port, page) = re.findall(r"http://127\.0\.0\.1:(\d+)/devtools/inspector\.html\?ws=\S+/page/(\w+)", said)[0]
            assert f"ssh -L {port}:127.0.0.1:{port} " in said
            assert page in await asyncio.to_thread(asked_of, int(port), "/json/list")
            while len(json.loads(path.read_text())["cookies"]) < 2:
                await asyncio.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    told = json.loads(out)
    assert (told["cookies"], told["origins"]) == (2, 1)
    session = json.loads(path.read_text())
    assert {cookie["name"] for cookie in session["cookies"]} == {"visit0", "visit1"}
    assert session["origins"] == [{"origin": site.url, "localStorage": [{"name": "seen", "value": "xx"}]}]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    running = [" ".join(one.info["cmdline"] or ()) for one in psutil.process_iter(["cmdline"])]
    assert [one for one in running if f"--remote-debugging-port={port}" in one] == []


def asked_of(port: int, path: str) -> str:
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


async def test_a_page_is_opened_through_the_proxy_of_the_settings(tmp_path: Path) -> None:
    url = "http://terms.example.org/accept"
    async with website() as site:
        site.page("/accept", TERMS, Set_Cookie="accepted=yes; Max-Age=3600")
        async with opened(tmp_path / "store.db", url, "--set", f"fetch.proxy={site.url}") as (process, _):
            assert process.stdin
            process.stdin.write(b"\n")
            await process.wait()
    assert url in site.paths, "a proxy is asked for the whole address"
    saved = json.loads((tmp_path / "browser_profiles" / "lee.json").read_bytes())
    assert [(cookie["name"], cookie["domain"]) for cookie in saved["cookies"]] == [("accepted", "terms.example.org")]
