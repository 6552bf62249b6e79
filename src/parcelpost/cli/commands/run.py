"""`parcelpost run`: a worker, in one of three modes."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import examples, printable
from parcelpost.cli.settings_options import ConfigOption, SetOption, StoreContext, command_line, load_settings
from parcelpost.errors import UpstreamLost

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from parcelpost.settings import Settings
    from parcelpost.storage.lpm import LocalPersistenceManager


EXAMPLES = examples(
    "parcelpost run --gateway https://gateway.example.org",
    "parcelpost run --mode standalone --until-empty",
    "parcelpost run --mode standalone --processes 2 --slots 32",
    "parcelpost run --slots 8 --platforms qpublic,vgsi --set sync.batch_size=100",
    "parcelpost run --upstream firestore --set firestore.raw=gs://my-bucket/raw",
    "parcelpost run --config /etc/parcelpost.toml --set http.port=9100",
)

_PROGRESS_SECONDS = 60.0
_TERMINAL_PROGRESS_SECONDS = 3.0

Text = str | None


def run(
    mode: Annotated[
        Text,
        typer.Option(
            "--mode",
            metavar="MODE",
            help="ondemand: get tasks from an upstream; standalone: use local tasks; legacy: run one task at a time.",
        ),
    ] = None,
    upstream: Annotated[
        Text, typer.Option("--upstream", metavar="KIND", help="Where tasks come from: gateway or firestore.")
    ] = None,
    gateway: Annotated[
        Text,
        typer.Option("--gateway", metavar="URL", help="Gateway URL. The token comes from the environment or a file."),
    ] = None,
    store: Annotated[
        Text, typer.Option("--store", metavar="PATH", help="Store file, created if it does not exist.")
    ] = None,
    platforms: Annotated[
        Text, typer.Option("--platforms", metavar="A,B", help="Only take tasks for these platforms.")
    ] = None,
    slots: Annotated[Text, typer.Option("--slots", metavar="N", help="Number of tasks to run at a time.")] = None,
    processes: Annotated[
        Text,
        typer.Option(
            "--processes",
            metavar="N",
            help="Number of processes to use. They share the store, the slots and each site's pace.",
        ),
    ] = None,
    until_empty: Annotated[
        bool,
        typer.Option(
            "--until-empty", help="Exit when no tasks are left, here or upstream, and everything is delivered."
        ),
    ] = False,
    give_up_after: Annotated[
        Text,
        typer.Option(
            "--give-up-after",
            metavar="SECONDS",
            help="With --until-empty: exit with code 3 after the upstream was unavailable this long. [default: 300]",
        ),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    process: Annotated[int, typer.Option("--process", hidden=True)] = 0,
) -> None:
    """Fetch tasks, scrape them, save every result in the store, and deliver it in the background.

    Ctrl-C or SIGTERM drains: running tasks get a grace period, the others go back to the queue. A second one stops
    immediately. Nothing is lost either way.
    """
    import asyncio

    from parcelpost.files_and_sockets import run_on_fast_loop
    from parcelpost.settings.validation import check_runnable

    flags = {
        "--mode": ("worker.mode", mode),
        "--upstream": ("worker.upstream", upstream),
        "--gateway": ("gateway.url", gateway),
        "--store": ("storage.path", store),
        "--platforms": ("worker.platforms", platforms),
        "--slots": ("executor.slots", slots),
        "--processes": ("worker.processes", processes),
        "--give-up-after": ("worker.give_up_seconds", give_up_after),
    }
    settings = load_settings(config, set_, flags)
    check_runnable(settings)
    if settings.worker.processes > 1 and not process:
        given = [part for name, (_, value) in flags.items() if value is not None for part in (name, value)]
        given += [part for value in set_ or () for part in ("--set", value)]
        given += ["--config", str(config)] if config else []
        given += ["--until-empty"] if until_empty else []
        raise typer.Exit(asyncio.run(_run_processes(settings, config, given, until_empty=until_empty)))
    run_on_fast_loop(_run(settings, config, until_empty=until_empty, process=process))


async def _run_processes(settings: Settings, config: Path | None, given: list[str], *, until_empty: bool) -> int:
    import asyncio
    from pathlib import Path

    from parcelpost.cli.context import store_options
    from parcelpost.cli.processes import WorkerProcesses
    from parcelpost.clock import SystemClock
    from parcelpost.log_lines import make_log
    from parcelpost.storage.lpm import LocalPersistenceManager

    clock = SystemClock()
    emit = make_log(settings.log.level, settings.log.format, sys.stderr)
    processes = WorkerProcesses(given, settings, clock, emit)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, processes.interrupt)
    started_at = clock.now()
    code = await processes.run(os.environ)
    if until_empty and not code:
        async with LocalPersistenceManager.open(
            Path(settings.storage.path), options=store_options(settings), emit=emit, worker="worker", waits=True
        ) as lpm:
            await _print_summary(lpm, settings, config, started_at)
    return code


async def _run(settings: Settings, config: Path | None, *, until_empty: bool, process: int) -> None:
    import asyncio
    import gc

    from parcelpost.cli.worker_setup import open_worker
    from parcelpost.worker.control import Control
    from parcelpost.worker.runner import OndemandRunner, StandaloneRunner, WorkerRunner

    control = Control()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, control.interrupt, signal.Signals(number).name)
    is_interactive = until_empty and sys.stderr.isatty()
    progress_seconds = _TERMINAL_PROGRESS_SECONDS if is_interactive else _PROGRESS_SECONDS
    opened = open_worker(settings, os.environ, control, progress_seconds=progress_seconds, process=process)
    async with opened as worker:
        runner: OndemandRunner | WorkerRunner | StandaloneRunner
        match settings.worker.mode:
            case "ondemand":
                runner = OndemandRunner(worker, until_empty=until_empty)
            case "legacy":
                runner = WorkerRunner(worker, until_empty=until_empty)
            case "standalone":
                runner = StandaloneRunner(worker, until_empty=until_empty)
        started_at = worker.context.clock.now()
        gc.freeze()  # modules and classes never become garbage: do not visit them again and again
        await runner.run()
        worker.context.lpm.check_files()
        if until_empty and not process:
            await _print_summary(worker.context.lpm, settings, config, started_at)
        if runner.until_empty is not None and (offline := runner.until_empty.gave_up):
            seconds = settings.worker.give_up_seconds
            text = f"gave up: the upstream has been unavailable for {seconds:g} s and there is nothing else to do"
            raise UpstreamLost(f"{text}: {offline.reason}", hint=offline.remedy)


async def _print_summary(
    lpm: LocalPersistenceManager, settings: Settings, config: Path | None, started_at: datetime
) -> None:
    from parcelpost.worker.findings import failures_text

    ended = await lpm.ended_since(started_at)
    depth = await lpm.queue_depth()
    statuses = ("completed", *(["not_found"] if ended.get("not_found") else []), "failed", "expired")
    counts = ", ".join(f"{ended.get(status, 0):,} {status.replace('_', ' ')}" for status in statuses)
    print(f"{counts} in this run; {depth.unsynced:,} to deliver, {depth.rejected:,} rejected in the store")
    failures = await lpm.failures_since(started_at)
    if failures.failed:
        store = StoreContext(lpm.path, settings, config)
        see, retry = (command_line(f"tasks {verb} --status failed", store) for verb in ("list", "retry"))
        text = failures_text(failures, "since this run started")
        print(printable(f"{text}; list them with '{see}', retry them with '{retry}'."))
