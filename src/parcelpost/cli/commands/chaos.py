"""`parcelpost chaos`: real processes on this machine, hurt on a schedule and judged against the invariants."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import count, examples, print_json, print_lines, table
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.chaos.runner import Outcome

EXAMPLES = examples(
    "parcelpost chaos run",
    "parcelpost chaos run --profile hostile --minutes 30 --report chaos.html",
    "parcelpost chaos run --seed 7 --minutes 1 --break mark-before-receipt",
    "parcelpost chaos recovery --tasks 100000",
)

app = typer.Typer(
    help="Kill and mislead real processes, and check that nothing is lost.",
    no_args_is_help=True,
    epilog=EXAMPLES,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON; progress goes to stderr.")]
Folder = Annotated[
    Path | None, typer.Option("--dir", metavar="DIR", help="Work in this new folder and keep all files.")
]


@app.command("run", epilog=EXAMPLES)
def run(
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.1, max=10_000, help="For how long to inject faults.")
    ] = 2.0,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed makes the same schedule. [default: a new one]")
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", metavar="NAME", help="laptop, fleet (PostgreSQL), disk or hostile (as root).")
    ] = "laptop",
    break_: Annotated[
        str, typer.Option("--break", metavar="NAME", help="Put a known fault into the workers; 'list' shows all.")
    ] = "",
    attack: Annotated[
        str, typer.Option("--attack", metavar="ID", help="Mostly use the faults that attack this invariant, I1 to I9.")
    ] = "",
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="Write an HTML report to this file, and keep all files."),
    ] = None,
    folder: Folder = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the schedule.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start gateways, workers and a county on this machine, hurt them, and check invariants I1 to I9.

    A broken invariant stops the run, prints the history that shows it, keeps all files and exits with 1. Faults that
    need root or a missing program are skipped by name.
    """
    import asyncio
    import secrets
    import shutil
    import signal
    import tempfile

    from parcelpost.chaos.breaks import BREAKS
    from parcelpost.chaos.faults import attackers
    from parcelpost.chaos.judge import INVARIANTS
    from parcelpost.chaos.report import write_report
    from parcelpost.chaos.runner import Outcome, Runner
    from parcelpost.chaos.schedule import PROFILES, make_schedule
    from parcelpost.cli.context import CLOCK, needed_packages

    if break_ == "list":
        print_lines(table(("name", "breaks", ""), [(name, it.invariant, it.summary) for name, it in BREAKS.items()]))
        return
    if profile not in PROFILES:
        raise InvalidInput(f"there is no profile {profile!r}", hint=f"available: {', '.join(PROFILES)}")
    if break_ and break_ not in BREAKS:
        raise InvalidInput(f"there is no break {break_!r}", hint=f"available: {', '.join(BREAKS)}")
    attack = BREAKS[break_].invariant if break_ else attack
    if attack and attack not in INVARIANTS:
        raise InvalidInput(f"there is no invariant {attack!r}", hint=f"available: {', '.join(INVARIANTS)}")
    seed = secrets.randbelow(10**6) if seed is None else seed
    if dry_run:
        print_lines(map(str, make_schedule(PROFILES[profile], seed, minutes * 60, attackers(attack))))
        return
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty", hint="choose a new folder")
    place = folder or Path(tempfile.mkdtemp(prefix="parcelpost-chaos-"))
    place.mkdir(parents=True, exist_ok=True)

    def say(text: str) -> None:
        print(text, file=sys.stderr if as_json else sys.stdout, flush=True)

    say(f"Profile {profile}: {PROFILES[profile].summary}. Seed {seed}. Files: {place}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process and no mount is left
    with needed_packages():
        outcome = Outcome(
            profile=profile, seed=seed, minutes=minutes, breaks=break_, attack=attack, folder=str(place.resolve())
        )
        asyncio.run(Runner(outcome, CLOCK, say).run())
    if report is not None:
        write_report(outcome, report)
    if as_json:
        print_json(outcome)
    else:
        print_lines(_summary(outcome))
    if outcome.violation is None and folder is None and report is None:
        shutil.rmtree(place, ignore_errors=True)
    if outcome.violation is not None:
        raise typer.Exit(1)


def _summary(outcome: Outcome) -> list[str]:
    from parcelpost.chaos.judge import INVARIANTS, KINDS
    from parcelpost.chaos.runner import slowest

    violation = outcome.violation
    lines: list[str] = []
    for title, parts in (("invariant", INVARIANTS), ("kind of violation", KINDS)):
        rows = [
            (name, text, f"{outcome.compared(name):,}", f"{outcome.attacked(name):,}", outcome.state(name))
            for name, text in parts.items()
        ]
        lines += ["", *table(("", title, "compared", "attacks", ""), rows)]
    lines.append("")
    lines.append(
        f"{outcome.seconds:.0f} s: {count(outcome.kills, 'kill')}, {count(outcome.power_cuts, 'power cut')}, "
        f"{count(outcome.full_disks, 'full disk')}, {count(outcome.network_faults, 'network fault')}; "
        f"{count(outcome.tasks, 'task')}, {count(outcome.saved, 'result')} saved, {outcome.delivered:,} acknowledged, "
        f"{outcome.rejected:,} rejected with a reason."
    )
    lines.append(f"Clocks jump by {outcome.clocks}.")
    lines += [f"Skipped: {name}: {reason}" for name, reason in sorted(outcome.skipped.items())]
    if worst := slowest(outcome.recoveries, 1):
        starts = sorted(one.seconds for one in outcome.recoveries)
        ends = sorted(one.from_end for one in outcome.recoveries)
        lines.append(
            f"A worker scraped again within {starts[len(starts) // 2]:.1f} s of its restart and "
            f"{ends[len(ends) // 2]:.1f} s of the end before it (medians), {worst[0].from_end:.1f} s at worst."
        )
    if violation is None:
        return [*lines, "Nothing was lost."]
    lines.append(f"BROKEN after {outcome.found_after:.0f} s: {violation}")
    if history := outcome.histories.get(violation.task):
        lines += ["", "What happened to the task:", *history]
    return [*lines, "", f"All files are in {outcome.folder}. The same schedule again: {outcome.again}"]


@app.command("recovery", epilog=EXAMPLES)
def recovery(
    tasks: Annotated[int, typer.Option("--tasks", min=100, max=10**7, help="Tasks in the store.")] = 100_000,
    kills: Annotated[int, typer.Option("--kills", min=1, max=1_000, help="How often to kill the worker.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Measure how soon a killed worker scrapes again, from the kill to the next saved result."""
    import asyncio
    import tempfile

    from parcelpost.chaos.recovery import measure
    from parcelpost.cli.context import CLOCK, needed_packages

    with needed_packages(), tempfile.TemporaryDirectory(prefix="parcelpost-chaos-") as folder:
        found = asyncio.run(measure(Path(folder), tasks, kills, CLOCK))
    if as_json:
        print_json(found)
        return
    times = sorted(found.seconds)
    text = f"{found.median:.2f} s (median of {len(times)}; {times[0]:.2f} to {times[-1]:.2f} s)"
    print(f"With {count(found.tasks, 'task')} in its store a killed worker scraped again within {text}.")
