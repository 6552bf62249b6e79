"""`parcelpost browser doctor`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import fields, print_json, print_lines, printable, size

if TYPE_CHECKING:
    from parcelpost.cli.browser_trial import Diagnosis

EXAMPLES = """
Examples:

\b
  parcelpost browser doctor
  parcelpost browser doctor --set browser.executable=/opt/chromium/chrome
  parcelpost browser doctor --json | jq .memory_bytes
"""


def doctor(store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Find Chromium, start it, load a page in it, and say what is missing.

    Exits with 1 if tasks that need a browser would not run here. The store is not changed, and need not be there.
    """
    import asyncio

    from parcelpost.cli import browser_trial

    found = asyncio.run(browser_trial.diagnose(store))
    print_json(found) if as_json else print_lines(_lines(found))
    if not found.well:
        raise typer.Exit(1)


def _lines(found: Diagnosis) -> Iterator[str]:
    from parcelpost.cli.browser_status import room_text

    if found.well:
        yield "All is well: a page was loaded in a browser."
    for problem in found.problems:
        yield printable(f"Attention: {problem.what}. What to do: {problem.remedy}.")
    yield ""
    yield from fields(
        (
            ("chromium", f"{found.executable} (from {found.source})" if found.executable else "none was found"),
            ("version", found.version or None),
            ("sandbox", _sandbox(found) if found.executable else None),
            ("page", f"loaded {found.seconds:.1f} s after the start" if found.seconds is not None else None),
            ("memory", f"{size(found.memory_bytes)} for one browser" if found.memory_bytes else None),
            ("safe here" if found.executable else "would be safe", room_text(found.room)),
        )
    )
    if not found.executable:
        yield ""
        yield "Looked for it here:"
        yield from (f"  {printable(place)}" for place in found.looked_in)


def _sandbox(found: Diagnosis) -> str:
    if found.sandbox:
        return "on" if found.seconds is not None else "wanted"
    return f"off: {found.no_sandbox}"
