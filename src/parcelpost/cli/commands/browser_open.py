"""`parcelpost browser open`: an operator signs in or accepts terms, and the session is saved for tasks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parcelpost.cli.options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    store_context,
)
from parcelpost.cli.output import count, print_json, printable
from parcelpost.errors import InvalidInput, ParcelpostError

if TYPE_CHECKING:
    import asyncio

    from parcelpost.scrapers.browser.window import Window, WindowOptions


_DEFAULT_PORT = 9222


def has_screen() -> bool:
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def free_port(wanted: int | None) -> int:
    """Returns `wanted`, or by default the port that chrome://inspect uses or any free one. Raises InvalidInput."""
    for port in (_DEFAULT_PORT, 0) if wanted is None else (wanted,):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            number: int = probe.getsockname()[1]
            return number
    raise InvalidInput(f"port {wanted} on 127.0.0.1 is not available", hint="give another port, or omit --port")


@contextlib.contextmanager
def stop_on_enter_or_signal(stop: asyncio.Event) -> Iterator[None]:
    """Sets `stop` on Ctrl-C, SIGTERM or Enter."""
    import asyncio

    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    terminal = _watch_for_enter(loop, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
        if terminal is not None:
            loop.remove_reader(terminal)


def _watch_for_enter(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> int | None:
    """Returns the watched file descriptor, or None if stdin cannot be watched."""

    def typed(handle: int) -> None:
        if os.read(handle, 1_024):
            stop.set()
        else:
            loop.remove_reader(handle)

    try:
        handle = sys.stdin.fileno()
        loop.add_reader(handle, typed, handle)
    except (OSError, ValueError, AttributeError):
        return None
    return handle


EXAMPLES = """
Examples:

\b
  parcelpost browser open --profile dixie https://qpublic.schneidercorp.com
  parcelpost browser open --profile dixie --port 9222 https://qpublic.schneidercorp.com
  parcelpost browser profiles
"""

_SAVE_SECONDS = 1.0
_NO_START = "run 'parcelpost browser doctor' for details"
_NO_WINDOW = "check DISPLAY or WAYLAND_DISPLAY, or use --port 9222, which needs no display"

_REMOTE_HELP = """
The browser runs without a window. To use it from your own machine:

  1. ssh -L {port}:127.0.0.1:{port} {user}@{host}
     (not needed if your Chrome runs on this machine)
  2. In Chrome, open
     {address}
     or go to chrome://inspect and click 'inspect' below the name of the page

Until this command ends, anyone who can connect to 127.0.0.1:{port} on this machine can use the session."""


def open_(
    url: Annotated[str, typer.Argument(metavar="URL", help="The page to open.")],
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="Name to save the session under: letters, digits, _ and -.")
    ],
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            min=1,
            max=65_535,
            help="Open no window; use remote debugging on this port. [default without a display: 9222 or a free port]",
        ),
    ] = None,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Open a page to sign in or accept terms, and save its cookies and local storage for tasks.

    Opens a window if there is a display, otherwise uses Chrome's remote debugging on 127.0.0.1. The session is saved
    every second, until you close the window or press Enter or Ctrl-C.
    """
    import asyncio

    from parcelpost.scrapers.browser.browser import BrowserCallFailed

    store = store_context(store_path, config, set_)
    opening, path = _prepare(url, profile, port, store)
    try:
        cookies, origins = asyncio.run(_open(opening, path, profile))
    except BrowserCallFailed as error:
        raise ParcelpostError(str(error), hint=_NO_WINDOW if opening.port is None else _NO_START) from None
    if as_json:
        print_json({"profile": profile, "path": str(path), "cookies": cookies, "origins": origins})
    else:
        contents = f"{count(cookies, 'cookie')} and the local storage of {count(origins, 'site')}"
        print(f"Saved the profile {profile} with {contents}: {path}")


def _prepare(url: str, profile: str, port: int | None, store: StoreContext) -> tuple[WindowOptions, Path]:
    from parcelpost.cli.commands import browser
    from parcelpost.cli.fetch_setup import browser_options, fetch_options
    from parcelpost.scrapers.browser import chromium
    from parcelpost.scrapers.browser.window import WindowOptions

    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidInput(f"not a valid URL: {url!a:.80}", hint="such as https://www.example.org")
    path = browser.profile_path(store, profile)
    settings = store.settings
    options = browser_options(settings)
    found = chromium.find(options, with_window=True)
    if isinstance(found, chromium.ChromiumMissing):
        raise ParcelpostError(found.reason, hint=found.hint)
    fetching = fetch_options(settings, os.environ)
    opening = WindowOptions(
        url=url,
        executable=found.path,
        sandbox=chromium.sandbox(options, found.path).is_on,
        port=None if has_screen() and port is None else free_port(port),
        state=browser.load_profile(store, profile),
        proxy=fetching.proxy,
        proxy_login=fetching.proxy_login,
    )
    return opening, path


async def _open(opening: WindowOptions, path: Path, profile: str) -> tuple[int, int]:
    """Returns how many cookies and origins were last saved."""
    import asyncio

    from parcelpost.cli.context import CLOCK
    from parcelpost.scrapers.browser.window import open_window

    stop = asyncio.Event()
    with stop_on_enter_or_signal(stop):
        async with open_window(opening) as window:
            _explain(window, profile)
            saved = await _save(window, path)
            while not stop.is_set() and not window.is_closed:
                await CLOCK.wait(stop, _SAVE_SECONDS)
                saved = await _save(window, path) or saved
    return saved or (0, 0)


def _explain(window: Window, profile: str) -> None:
    import getpass
    import socket

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if window.problem:
        note(f"note: {printable(window.problem)}")
    if window.port is not None:
        names = {"user": getpass.getuser(), "host": socket.gethostname()}
        note(_REMOTE_HELP.format(port=window.port, address=window.address, **names))
    note(f"\nThe session is saved as the profile {profile} as you go. Press Enter or Ctrl-C when you are done.")


async def _save(window: Window, path: Path) -> tuple[int, int] | None:
    """Returns how many cookies and origins were saved, or None if the window is gone."""
    from parcelpost.storage import durable_files

    state = await window.state()
    if state is None:
        return None
    content = _encode_state(state)
    if not path.exists() or path.read_bytes() != content:
        durable_files.replace(path, content)
    return len(state["cookies"]), len(state["origins"])


def _encode_state(state: dict[str, Any]) -> bytes:
    """Raises ParcelpostError for a session that is too large for tasks to load."""
    from msgspec.json import encode

    from parcelpost.scrapers.browser.profiles import MOST_BYTES

    content = encode(state)
    if len(content) > MOST_BYTES:
        raise ParcelpostError(
            f"the session is too large to save: {len(content):,} bytes, limit {MOST_BYTES:,}",
            hint="delete the profile with 'parcelpost browser delete' and open only the page that tasks need",
        )
    return content
