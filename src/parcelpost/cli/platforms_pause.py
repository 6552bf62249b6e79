"""`parcelpost platforms pause` and `parcelpost platforms resume`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import print_json, printable
from parcelpost.errors import InvalidInput

EXAMPLES = """
Examples:

\b
  parcelpost platforms pause qpublic --reason "the county asked us to wait"
  parcelpost platforms pause vgsi --hours 12
  parcelpost platforms resume qpublic
"""

Name = Annotated[str, typer.Argument(help="The platform.", metavar="PLATFORM")]


def pause(
    name: Name,
    hours: Annotated[
        float | None, typer.Option("--hours", metavar="N", min=0.01, max=8_760, help="For so long; else until resumed.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who look.")] = "by hand",
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Let no worker on this store take tasks of a platform. What runs is ended as usual."""
    from parcelpost.cli import running
    from parcelpost.cli.given import settled
    from parcelpost.cli.platform_names import names, unknown

    if name not in (known := names(settled())):
        raise InvalidInput(unknown(name, known), hint=f"known are {', '.join(sorted(known))}")
    until = running.run(store, _pause(store, name, hours, reason))
    if as_json:
        print_json({"platform": name, "until": until, "reason": reason})
    else:
        print(printable(f"{name} is paused {f'until {until}' if until else 'until somebody resumes it'}: {reason}"))


def resume(name: Name, store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Let workers take tasks of a platform again that was paused, by hand or because its site blocked us."""
    from parcelpost.cli import running

    paused = running.run(store, _resume(store, name))
    if name not in paused:
        others = f"paused are {', '.join(sorted(paused))}" if paused else "no platform of this store is"
        raise InvalidInput(f"{name!r:.60} is not paused", hint=others)
    print_json({"platform": name, "resumed": True}) if as_json else print(f"{name} goes on.")


async def _pause(store: Path, name: str, hours: float | None, reason: str) -> str | None:
    from parcelpost.cli.running import CLOCK, changing

    async with changing(store) as lpm:
        await lpm.pause_platform(name, CLOCK.now() + timedelta(hours=hours) if hours is not None else None, reason)
        return (await lpm.paused_platforms())[name][0]


async def _resume(store: Path, name: str) -> frozenset[str]:
    """Those that were paused before."""
    from parcelpost.cli.running import changing

    async with changing(store) as lpm:
        paused = frozenset(await lpm.paused_platforms())
        await lpm.resume_platform(name)
        return paused
