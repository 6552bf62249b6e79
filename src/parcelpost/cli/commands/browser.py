"""The `parcelpost browser` commands: status, doctor and saved profiles. `open` is in `browser_open`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parcelpost.cli.commands import browser_open
from parcelpost.cli.health.summary import finding_line, finding_lines
from parcelpost.cli.options import (
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    Yes,
    profiles_folder,
    store_context,
)
from parcelpost.cli.output import (
    Cell,
    age,
    confirm,
    count,
    fields,
    moment,
    print_json,
    print_lines,
    printable,
    size,
    table,
)
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.health.browsers import BrowserCapacity, BrowserDiagnosis, BrowserReport
    from parcelpost.cli.health.overview import WorkerBrowser
    from parcelpost.scrapers.browser.profiles import StorageState


STATUS_EXAMPLES = """
Examples:

\b
  parcelpost browser status
  parcelpost browser status --json | jq '.browsers[].memory_mb'
"""

_HEADERS = ("browser", "state", "task", "tasks done", "launches", "memory", "age", "worker")


def status(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Show the browsers of running workers, and how many fit on this machine.

    Starts with the problems found and their fixes, or `No problems found.` Read-only.
    """
    from parcelpost.cli import context
    from parcelpost.cli.health import browsers

    store = store_context(store_path, config, set_)
    found = context.run_async(store, browsers.gather_browsers(store))
    if as_json:
        print_json(found)
    else:
        print_lines(_status_lines(found, context.CLOCK.now()))


def _status_lines(found: BrowserReport, now: datetime) -> Iterator[str]:
    yield from finding_lines(found.findings)
    yield ""
    safe = "safe here" if found.chromium else "would be safe"
    yield from fields((("chromium", found.chromium or "not found"), (safe, room_text(found.room))))
    yield ""
    if found.browsers:
        yield from table(_HEADERS, [_browser_row(browser, now) for browser in found.browsers])
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


DOCTOR_EXAMPLES = """
Examples:

\b
  parcelpost browser doctor
  parcelpost browser doctor --set browser.executable=/opt/chromium/chrome
  parcelpost browser doctor --json | jq .memory_bytes
"""


def doctor(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """Find Chromium, start it, load a page, and print a fix for each problem found.

    Exits with 1 if tasks that need a browser cannot run here. Needs no store. Read-only.
    """
    import asyncio

    from parcelpost.cli.health import browsers

    store = store_context(store_path, config, set_)
    found = asyncio.run(browsers.diagnose_browser(store))
    print_json(found) if as_json else print_lines(_diagnosis_lines(found))
    if not found.ok:
        raise typer.Exit(1)


def _diagnosis_lines(found: BrowserDiagnosis) -> Iterator[str]:
    if found.ok:
        yield "No problems found: the browser started and loaded a page."
    yield from map(finding_line, found.findings)
    yield ""
    yield from fields(
        (
            ("chromium", f"{found.executable} (from {found.source})" if found.executable else "not found"),
            ("version", found.version or None),
            ("sandbox", _sandbox_text(found) if found.executable else None),
            ("page", f"loaded {found.seconds:.1f} s after start" if found.seconds is not None else None),
            ("memory", f"{size(found.memory_bytes)} for one browser" if found.memory_bytes else None),
            ("safe here" if found.executable else "would be safe", room_text(found.room)),
        )
    )
    if not found.executable:
        yield ""
        yield "Searched in:"
        yield from (f"  {printable(path)}" for path in found.looked_in)


def _sandbox_text(found: BrowserDiagnosis) -> str:
    if found.sandbox:
        return "on" if found.seconds is not None else "requested"
    return f"off: {found.no_sandbox}"


PROFILES_EXAMPLES = """
Examples:

\b
  parcelpost browser profiles
  parcelpost browser profiles --json | jq -r '.profiles[].name'
"""

DELETE_PROFILE_EXAMPLES = """
Examples:

\b
  parcelpost browser delete lee
  parcelpost browser delete lee --yes
"""

ProfileName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


def profiles(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List the sessions saved by 'parcelpost browser open'. Their contents are never shown."""
    store = store_context(store_path, config, set_)
    found = saved_profiles(store)
    if as_json:
        print_json({"profiles": found})
    elif not found:
        print("No profiles. Create one with 'parcelpost browser open --profile NAME URL'.")
    else:
        print_lines(_profile_lines(found))


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


def _profile_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    problems = any(profile["problem"] for profile in found)
    rows = [
        (
            profile["name"],
            profile["cookies"],
            ", ".join(profile["sites"]) or None,
            moment(profile["saved_at"]),
            profile["problem"] or None,
        )
        for profile in found
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


app = typer.Typer(
    help="Inspect browsers and save sessions for them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost browser doctor
      parcelpost browser status
      parcelpost browser open --profile dixie https://qpublic.schneidercorp.com
    """,
)
app.command("status", epilog=STATUS_EXAMPLES)(status)
app.command("doctor", epilog=DOCTOR_EXAMPLES)(doctor)
app.command("open", epilog=browser_open.EXAMPLES)(browser_open.open_)
app.command("profiles", epilog=PROFILES_EXAMPLES)(profiles)
app.command("delete", epilog=DELETE_PROFILE_EXAMPLES)(delete_profile)
