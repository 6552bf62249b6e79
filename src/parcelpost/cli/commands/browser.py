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
    yield from fields((("chromium", found.chromium or "none was found"), (safe, room_text(found.room))))
    yield ""
    if found.browsers:
        yield from table(_HEADERS, [_browser_row(one, now) for one in found.browsers])
    else:
        yield "No browser runs: one is started when a task needs it."


def room_text(room: BrowserCapacity) -> str:
    each = f"{size(room.bytes_per_browser)} each, {'measured' if room.measured else 'as long as none was measured'}"
    memory = f"{size(room.memory_used_bytes)} of {size(room.memory_limit_bytes)} memory are used"
    return f"{count(room.safe, 'browser')} of at most {room.most:,} ({each}; {memory})"


def _browser_row(one: WorkerBrowser, now: datetime) -> tuple[Cell, ...]:
    return (
        one.browser_id,
        one.status,
        one.current_task_id,
        one.tasks_completed,
        one.launches,
        f"{one.memory_mb:,} MiB" if one.memory_mb else None,
        age((now - (one.restarted_at or one.created_at)).total_seconds()),
        f"{one.owner or 'unknown'} ({'alive' if one.owner_lives else 'dead'})",
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
    """Find Chromium, start it, load a page, and print a fix for each problem.

    Exits with 1 if tasks that need a browser cannot run here. Needs no store, and changes nothing.
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
        yield "No problems found: a page was loaded in a browser."
    yield from map(finding_line, found.findings)
    yield ""
    yield from fields(
        (
            ("chromium", f"{found.executable} (from {found.source})" if found.executable else "none was found"),
            ("version", found.version or None),
            ("sandbox", _sandbox_text(found) if found.executable else None),
            ("page", f"loaded {found.seconds:.1f} s after the start" if found.seconds is not None else None),
            ("memory", f"{size(found.memory_bytes)} for one browser" if found.memory_bytes else None),
            ("safe here" if found.executable else "would be safe", room_text(found.room)),
        )
    )
    if not found.executable:
        yield ""
        yield "Looked for it here:"
        yield from (f"  {printable(place)}" for place in found.looked_in)


def _sandbox_text(found: BrowserDiagnosis) -> str:
    if found.sandbox:
        return "on" if found.seconds is not None else "wanted"
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

ProfileName = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]


def profiles(
    store_path: StoreOption = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List the sessions that 'parcelpost browser open' has saved. What they hold is never shown."""
    store = store_context(store_path, config, set_)
    found = saved_profiles(store)
    if as_json:
        print_json({"profiles": found})
    elif not found:
        print("No profiles. Make one with 'parcelpost browser open --profile NAME URL'.")
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
    """Remove a saved session. Tasks that ask for it wait until there is one again."""
    store = store_context(store_path, config, set_)
    path = existing_profile(store, name)
    if not yes:
        confirm(f"Remove the browser profile {name}?")
    path.unlink(missing_ok=True)
    print_json({"deleted": name}) if as_json else print(f"The browser profile {name} was deleted.")


def _profile_lines(found: list[dict[str, Any]]) -> Iterator[str]:
    problems = any(one["problem"] for one in found)
    rows = [
        (one["name"], one["cookies"], ", ".join(one["sites"]) or None, moment(one["saved_at"]), one["problem"] or None)
        for one in found
    ]
    headers = ("profile", "cookies", "sites", "saved", "problem")
    yield from table(headers, rows) if problems else table(headers[:-1], [row[:-1] for row in rows])


def profile_path(store: StoreContext, name: str) -> Path:
    """Raises InvalidInput for what can be no profile's name."""
    from parcelpost.scrapers.browser import profiles

    if not profiles.is_profile_name(name):
        raise InvalidInput(
            f"{name!a:.80} can be no profile's name",
            hint="letters, digits, '_' and '-', at most 64, the first a letter or a digit",
        )
    return profiles.profile_path(profiles_folder(store.path), name)


def existing_profile(store: StoreContext, name: str) -> Path:
    """Raises InvalidInput."""
    path = profile_path(store, name)
    if not path.is_file():
        raise InvalidInput(f"there is no browser profile {name}", hint="list them with 'parcelpost browser profiles'")
    return path


def load_profile(store: StoreContext, name: str) -> StorageState | None:
    """What is saved under that name; None: nothing yet. Raises InvalidInput for what cannot be read."""
    from parcelpost.scrapers.browser import profiles
    from parcelpost.scrapers.fetch.errors import BrowserUnavailable

    if not profile_path(store, name).exists():
        return None
    try:
        return profiles.load_profile(profiles_folder(store.path), name)
    except BrowserUnavailable as error:
        raise InvalidInput(str(error), hint=f"remove it with 'parcelpost browser delete {name}'") from None


def saved_profiles(store: StoreContext) -> list[dict[str, Any]]:
    """By name."""
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
    origins = {urlsplit(str(one.get("origin", ""))).hostname or "" for one in (state["origins"] if state else [])}
    return {
        "name": path.stem,
        "cookies": len(cookies),
        "sites": sorted({str(one.get("domain", "")).lstrip(".") for one in cookies} | origins),
        "saved_at": datetime.fromtimestamp(path.stat().st_mtime, UTC),
        "problem": problem,
    }


app = typer.Typer(
    help="Look at the browsers, and save sessions for them.",
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
