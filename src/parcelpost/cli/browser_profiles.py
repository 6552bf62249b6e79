"""`parcelpost browser profiles` and `parcelpost browser forget`, and where sessions are kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath, Yes
from parcelpost.cli.output import confirm, moment, print_json, print_lines, table
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.scrapers.browsers.profiles import State

PROFILES_EXAMPLES = """
Examples:

\b
  parcelpost browser profiles
  parcelpost browser profiles --json | jq -r '.profiles[].name'
"""

FORGET_EXAMPLES = """
Examples:

\b
  parcelpost browser forget lee
  parcelpost browser forget lee --yes
"""

Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]


def profiles(store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """List the sessions that 'parcelpost browser open' has saved. What they hold is never shown."""
    found = saved(store)
    if as_json:
        print_json({"profiles": found})
    elif not found:
        print("No profiles. Make one with 'parcelpost browser open --profile NAME URL'.")
    else:
        print_lines(_lines(found))


def forget(name: Name, yes: Yes = False, store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Remove a saved session. Tasks that ask for it wait until there is one again."""
    path = existing(store, name)
    if not yes:
        confirm(f"Remove the browser profile {name}?")
    path.unlink(missing_ok=True)
    print_json({"forgotten": name}) if as_json else print(f"The browser profile {name} is removed.")


def _lines(found: list[dict[str, Any]]) -> Iterator[str]:
    problems = any(one["problem"] for one in found)
    rows = [
        (one["name"], one["cookies"], ", ".join(one["sites"]) or None, moment(one["saved_at"]), one["problem"] or None)
        for one in found
    ]
    headers = ("profile", "cookies", "sites", "saved", "problem")
    yield from table(headers, rows) if problems else table(headers[:-1], [row[:-1] for row in rows])


def folder_of(store: Path) -> Path:
    return store.parent / "browser_profiles"


def path_of(store: Path, name: str) -> Path:
    """Raises InvalidInput for what can be no profile's name."""
    from parcelpost.scrapers.browsers import profiles

    if not profiles.is_name(name):
        raise InvalidInput(
            f"{name!a:.80} can be no profile's name",
            hint="letters, digits, '_' and '-', at most 64, the first a letter or a digit",
        )
    return profiles.path_of(folder_of(store), name)


def existing(store: Path, name: str) -> Path:
    """Raises InvalidInput."""
    path = path_of(store, name)
    if not path.is_file():
        raise InvalidInput(f"there is no browser profile {name}", hint="list them with 'parcelpost browser profiles'")
    return path


def load(store: Path, name: str) -> State | None:
    """What is saved under that name; None: nothing yet. Raises InvalidInput for what cannot be read."""
    from parcelpost.scrapers.browsers import profiles
    from parcelpost.scrapers.fetch_errors import NoBrowser

    if not path_of(store, name).exists():
        return None
    try:
        return profiles.saved(folder_of(store), name)
    except NoBrowser as error:
        raise InvalidInput(str(error), hint=f"remove it with 'parcelpost browser forget {name}'") from None


def saved(store: Path) -> list[dict[str, Any]]:
    """By name."""
    from parcelpost.scrapers.browsers.profiles import is_name

    files = sorted(folder_of(store).glob("*.json"))
    return [_described(store, path) for path in files if is_name(path.stem)]


def _described(store: Path, path: Path) -> dict[str, Any]:
    problem, state = "", None
    try:
        state = load(store, path.stem)
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
