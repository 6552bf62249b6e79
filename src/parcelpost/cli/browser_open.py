"""`parcelpost browser open`: a person uses a browser, and what the site lets them keep is saved for tasks."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import count, print_json, printable
from parcelpost.errors import InvalidInput, ParcelpostError

if TYPE_CHECKING:
    from parcelpost.scrapers.browsers.window import Opening, Window

EXAMPLES = """
Examples:

\b
  parcelpost browser open --profile dixie https://qpublic.schneidercorp.com
  parcelpost browser open --profile dixie --port 9222 https://qpublic.schneidercorp.com
  parcelpost browser profiles
"""

_SAVE_SECONDS = 1.0
_NO_START = "'parcelpost browser doctor' says more"
_NO_WINDOW = "is the screen there that DISPLAY or WAYLAND_DISPLAY names? With --port 9222 none is needed"

_ELSEWHERE = """
There is no screen here, so the browser has no window. From your own machine:

  1. ssh -L {port}:127.0.0.1:{port} {user}@{host}
     (not needed if your Chrome runs on this machine)
  2. in Chrome, open
     {address}
     or chrome://inspect, and there 'inspect' below the page's name

Until this command ends, whoever can reach port {port} of this machine's 127.0.0.1 can use the session."""


def open_(
    url: Annotated[str, typer.Argument(metavar="URL", help="The page to begin with.")],
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="What the session is saved as: letters, digits, _ and -.")
    ],
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65_535,
            help="No window: another Chrome uses it through this port; else 9222, or a free one.",
        ),
    ] = None,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Open a page for a person to accept terms or sign in; cookies and local storage are saved for tasks.

    In a window where there is a screen, else through Chrome's remote debugging on 127.0.0.1. What is saved follows
    every second; closing the window, Enter or Ctrl-C ends it.
    """
    import asyncio

    from parcelpost.scrapers.browsers.bounded import NotDone

    opening, path = _prepared(url, profile, port, store)
    try:
        cookies, origins = asyncio.run(_open(opening, path, profile))
    except NotDone as error:
        raise ParcelpostError(str(error), hint=_NO_WINDOW if opening.port is None else _NO_START) from None
    if as_json:
        print_json({"profile": profile, "path": str(path), "cookies": cookies, "origins": origins})
    else:
        kept = f"{count(cookies, 'cookie')} and the storage of {count(origins, 'site')}"
        print(f"The profile {profile} has {kept}: {path}")


def _prepared(url: str, profile: str, port: int | None, store: Path) -> tuple[Opening, Path]:
    from parcelpost.cli import browser_profiles
    from parcelpost.cli.browser_options import browser_options
    from parcelpost.cli.browser_screen import free_port, has_screen
    from parcelpost.cli.fetch_options import fetch_options
    from parcelpost.cli.given import settled
    from parcelpost.scrapers.browsers import chromium
    from parcelpost.scrapers.browsers.window import Opening

    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidInput(f"{url!a:.80} is no page's address", hint="write it as https://www.example.org")
    path = browser_profiles.path_of(store, profile)
    settings = settled()
    options = browser_options(settings)
    found = chromium.find(options, with_window=True)
    if isinstance(found, chromium.Missing):
        raise ParcelpostError(found.reason, hint=found.hint)
    fetching = fetch_options(settings, os.environ)
    opening = Opening(
        url=url,
        executable=found.path,
        sandbox=chromium.sandbox(options, found.path).is_on,
        port=None if has_screen() and port is None else free_port(port),
        state=browser_profiles.load(store, profile),
        proxy=fetching.proxy,
        proxy_login=fetching.proxy_login,
    )
    return opening, path


async def _open(opening: Opening, path: Path, profile: str) -> tuple[int, int]:
    """How many cookies and origins were saved at last."""
    import asyncio

    from parcelpost.cli.browser_screen import watching_for_the_end
    from parcelpost.cli.running import CLOCK
    from parcelpost.scrapers.browsers.window import opened

    stop = asyncio.Event()
    with watching_for_the_end(stop):
        async with opened(opening) as window:
            _explain(window, profile)
            saved = await _save(window, path)
            while not stop.is_set() and not window.is_closed:
                await CLOCK.wait(stop, _SAVE_SECONDS)
                saved = await _save(window, path) or saved
    return saved or (0, 0)


def _explain(window: Window, profile: str) -> None:
    import getpass
    import socket

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if window.problem:
        tell(f"note: {printable(window.problem)}")
    if window.port is not None:
        names = {"user": getpass.getuser(), "host": socket.gethostname()}
        tell(_ELSEWHERE.format(port=window.port, address=window.address, **names))
    tell(f"\nThe session is saved as the profile {profile} while you use it. Press Enter or Ctrl-C when you are done.")


async def _save(window: Window, path: Path) -> tuple[int, int] | None:
    """How many cookies and origins; None: they cannot be known any more."""
    from parcelpost.storage import durable_files

    state = await window.state()
    if state is None:
        return None
    content = _encoded(state)
    if not path.exists() or path.read_bytes() != content:
        durable_files.replace(path, content)
    return len(state["cookies"]), len(state["origins"])


def _encoded(state: dict[str, Any]) -> bytes:
    """Raises ParcelpostError for more than tasks would read."""
    from msgspec.json import encode

    from parcelpost.scrapers.browsers.profiles import MOST_BYTES

    content = encode(state)
    if len(content) > MOST_BYTES:
        raise ParcelpostError(
            f"the session holds {len(content):,} bytes; at most {MOST_BYTES:,} can be saved",
            hint="'parcelpost browser forget' the profile, and begin with the page that tasks need",
        )
    return content
