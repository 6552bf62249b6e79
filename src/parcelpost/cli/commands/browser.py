"""The `parcelpost browser` commands: status, doctor, and sessions that an operator saves for tasks."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parcelpost.cli.output import (
    Cell,
    age,
    confirm,
    count,
    examples,
    fields,
    finding_line,
    finding_lines,
    moment,
    print_json,
    print_lines,
    printable,
    size,
    table,
)
from parcelpost.cli.settings_options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    Yes,
    profiles_folder,
    store_context,
)
from parcelpost.errors import InvalidInput, ParcelpostError

if TYPE_CHECKING:
    import asyncio

    from parcelpost.cli.health.browsers import BrowserCapacity, BrowserDiagnosis, BrowserReport
    from parcelpost.cli.health.overview import WorkerBrowser
    from parcelpost.scrapers.browser.profiles import StorageState
    from parcelpost.scrapers.browser.window import BrowserWindow, WindowOptions


STATUS_EXAMPLES = examples("parcelpost browser status", "parcelpost browser status --json | jq '.browsers[].memory_mb'")

_HEADERS = ("browser", "state", "task", "tasks done", "launches", "memory", "age", "worker")


def status(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Show the browsers of running workers, and how many this machine has memory for.

    Starts with the problems found and their fixes, or `No problems found.` Read-only.
    """
    from parcelpost.cli import context
    from parcelpost.cli.health import browsers

    store = store_context(store_path, config, set_)
    report = context.run_async(store, browsers.gather_browsers(store))
    print_json(report) if as_json else print_lines(_status_lines(report, context.CLOCK.now()))


def _status_lines(report: BrowserReport, now: datetime) -> Iterator[str]:
    yield from finding_lines(report.findings)
    yield ""
    yield from fields((("chromium", report.chromium or "not found"), ("capacity", room_text(report.room))))
    yield ""
    if report.browsers:
        yield from table(_HEADERS, [_browser_row(browser, now) for browser in report.browsers])
    else:
        yield "No browser is running: one starts when a task needs it."


def room_text(room: BrowserCapacity) -> str:
    each = (
        f"{size(room.bytes_per_browser)} each, {'measured' if room.measured else 'an estimate until one is measured'}"
    )
    memory = f"{size(room.memory_used_bytes)} of {size(room.memory_limit_bytes)} memory used"
    return f"{count(room.safe, 'browser')} of at most {room.most:,} ({each}; {memory})"


def _browser_row(browser: WorkerBrowser, now: datetime) -> tuple[Cell, ...]:
    return (
        browser.browser_id,
        browser.status,
        browser.current_task_id,
        browser.tasks_completed,
        browser.launches,
        f"{browser.memory_mb:,} MiB" if browser.memory_mb else None,
        age((now - (browser.restarted_at or browser.created_at)).total_seconds()),
        f"{browser.owner or 'unknown'} ({'running' if browser.owner_lives else 'crashed'})",
    )


DOCTOR_EXAMPLES = examples(
    "parcelpost browser doctor",
    "parcelpost browser doctor --set browser.executable=/opt/chromium/chrome",
    "parcelpost browser doctor --json | jq .memory_bytes",
)


def doctor(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Find Chromium, start it, load a page, and print a fix for each problem found.

    Exits with 1 if tasks that need a browser cannot run here. Needs no store. Read-only.
    """
    import asyncio

    from parcelpost.cli.health import browsers

    store = store_context(store_path, config, set_)
    diagnosis = asyncio.run(browsers.diagnose_browser(store))
    print_json(diagnosis) if as_json else print_lines(_diagnosis_lines(diagnosis))
    if not diagnosis.ok:
        raise typer.Exit(1)


def _diagnosis_lines(diagnosis: BrowserDiagnosis) -> Iterator[str]:
    if diagnosis.ok:
        yield "No problems found: the browser started and loaded a page."
    yield from map(finding_line, diagnosis.findings)
    yield ""
    yield from fields(
        (
            ("chromium", f"{diagnosis.executable} (from {diagnosis.source})" if diagnosis.executable else "not found"),
            ("version", diagnosis.version or None),
            ("sandbox", _sandbox_text(diagnosis) if diagnosis.executable else None),
            ("page", f"loaded {diagnosis.seconds:.1f} s after start" if diagnosis.seconds is not None else None),
            ("memory", f"{size(diagnosis.memory_bytes)} for one browser" if diagnosis.memory_bytes else None),
            ("capacity", room_text(diagnosis.room)),
        )
    )
    if not diagnosis.executable:
        yield ""
        yield "Searched in:"
        yield from (f"  {printable(path)}" for path in diagnosis.looked_in)


def _sandbox_text(diagnosis: BrowserDiagnosis) -> str:
    if diagnosis.sandbox:
        return "on" if diagnosis.seconds is not None else "requested"
    return f"off: {diagnosis.no_sandbox}"


PROFILES_EXAMPLES = examples(
    "parcelpost browser profiles", "parcelpost browser profiles --json | jq -r '.profiles[].name'"
)

DELETE_PROFILE_EXAMPLES = examples("parcelpost browser delete lee", "parcelpost browser delete lee --yes")

ProfileName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


def profiles(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List the sessions saved by 'parcelpost browser open'. Their contents are never shown."""
    store = store_context(store_path, config, set_)
    saved = saved_profiles(store)
    if as_json:
        print_json({"profiles": saved})
    elif not saved:
        print("No profiles. Create one with 'parcelpost browser open --profile NAME URL'.")
    else:
        print_lines(_profile_lines(saved))


def delete_profile(
    name: ProfileName,
    yes: Yes = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete a saved session. Tasks that need it wait until it is saved again."""
    store = store_context(store_path, config, set_)
    path = existing_profile(store, name)
    if not yes:
        confirm(f"Delete the browser profile {name}?")
    path.unlink(missing_ok=True)
    print_json({"deleted": name}) if as_json else print(f"Deleted the browser profile {name}.")


def _profile_lines(saved: list[dict[str, Any]]) -> Iterator[str]:
    problems = any(profile["problem"] for profile in saved)
    rows = [
        (
            profile["name"],
            profile["cookies"],
            ", ".join(profile["sites"]) or None,
            moment(profile["saved_at"]),
            profile["problem"] or None,
        )
        for profile in saved
    ]
    headers = ("profile", "cookies", "sites", "saved", "problem")
    yield from table(headers, rows) if problems else table(headers[:-1], [row[:-1] for row in rows])


def profile_path(store: StoreContext, name: str) -> Path:
    """Raises InvalidInput for an invalid profile name."""
    from parcelpost.scrapers.browser import profiles

    if not profiles.is_profile_name(name):
        raise InvalidInput(
            f"not a valid profile name: {name!a:.80}",
            hint="use up to 64 letters, digits, '_' and '-', starting with a letter or digit",
        )
    return profiles.profile_path(profiles_folder(store.path), name)


def existing_profile(store: StoreContext, name: str) -> Path:
    """The file of a saved profile. Raises InvalidInput if there is none."""
    path = profile_path(store, name)
    if not path.is_file():
        raise InvalidInput(f"there is no browser profile {name}", hint="list them with 'parcelpost browser profiles'")
    return path


def load_profile(store: StoreContext, name: str) -> StorageState | None:
    """Returns the saved session, or None if there is none. Raises InvalidInput if it cannot be read."""
    from parcelpost.scrapers.browser import profiles
    from parcelpost.scrapers.fetch.errors import BrowserUnavailable

    if not profile_path(store, name).exists():
        return None
    try:
        return profiles.load_profile(profiles_folder(store.path), name)
    except BrowserUnavailable as error:
        raise InvalidInput(str(error), hint=f"delete it with 'parcelpost browser delete {name}'") from None


def saved_profiles(store: StoreContext) -> list[dict[str, Any]]:
    """All saved profiles, sorted by name."""
    from parcelpost.scrapers.browser.profiles import is_profile_name

    files = sorted(profiles_folder(store.path).glob("*.json"))
    return [_describe_profile(store, path) for path in files if is_profile_name(path.stem)]


def _describe_profile(store: StoreContext, path: Path) -> dict[str, Any]:
    problem, state = "", None
    try:
        state = load_profile(store, path.stem)
    except InvalidInput as error:
        problem = str(error)
    cookies = state["cookies"] if state else []
    origins = {urlsplit(str(origin.get("origin", ""))).hostname or "" for origin in (state["origins"] if state else [])}
    return {
        "name": path.stem,
        "cookies": len(cookies),
        "sites": sorted({str(cookie.get("domain", "")).lstrip(".") for cookie in cookies} | origins),
        "saved_at": datetime.fromtimestamp(path.stat().st_mtime, UTC),
        "problem": problem,
    }


# Opening a page for an operator

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
    raise InvalidInput(f"port {wanted} on 127.0.0.1 is not available", hint="choose another port, or omit --port")


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


OPEN_EXAMPLES = examples(
    "parcelpost browser open --profile dixie https://qpublic.schneidercorp.com",
    "parcelpost browser open --profile dixie --port 9222 https://qpublic.schneidercorp.com",
    "parcelpost browser profiles",
)

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
            help="Use remote debugging on this port instead of opening a window. "
            "[default without a display: 9222 or a free port]",
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
    from parcelpost.cli.components import fetch_options
    from parcelpost.scrapers.browser import chromium
    from parcelpost.scrapers.browser.window import WindowOptions

    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise InvalidInput(f"not a valid URL: {url!a:.80}", hint="use a full URL, such as https://www.example.org")
    path = profile_path(store, profile)
    settings = store.settings
    options = settings.browser
    browser = chromium.find(options, with_window=True)
    if isinstance(browser, chromium.ChromiumMissing):
        raise ParcelpostError(browser.reason, hint=browser.hint)
    fetching = fetch_options(settings, os.environ)
    opening = WindowOptions(
        url=url,
        executable=browser.path,
        sandbox=chromium.sandbox(options, browser.path).is_on,
        port=None if has_screen() and port is None else free_port(port),
        state=load_profile(store, profile),
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


def _explain(window: BrowserWindow, profile: str) -> None:
    import getpass

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    if window.problem:
        note(f"note: {printable(window.problem)}")
    if window.port is not None:
        names = {"user": getpass.getuser(), "host": socket.gethostname()}
        note(_REMOTE_HELP.format(port=window.port, address=window.address, **names))
    note(f"\nThe session is saved as the profile {profile} as you go. Press Enter or Ctrl-C when you are done.")


async def _save(window: BrowserWindow, path: Path) -> tuple[int, int] | None:
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


app = typer.Typer(
    help="Inspect browsers and save sessions for them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "parcelpost browser doctor",
        "parcelpost browser status",
        "parcelpost browser open --profile dixie https://qpublic.schneidercorp.com",
    ),
)
app.command("status", epilog=STATUS_EXAMPLES)(status)
app.command("doctor", epilog=DOCTOR_EXAMPLES)(doctor)
app.command("open", epilog=OPEN_EXAMPLES)(open_)
app.command("profiles", epilog=PROFILES_EXAMPLES)(profiles)
app.command("delete", epilog=DELETE_PROFILE_EXAMPLES)(delete_profile)
