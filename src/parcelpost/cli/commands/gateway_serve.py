"""`parcelpost gateway serve`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import examples, fields, print_lines
from parcelpost.cli.settings_options import ConfigOption, Database, SetOption, load_settings
from parcelpost.settings.secrets import (
    ADMIN_TOKENS_VARIABLE,
    READ_TOKENS_VARIABLE,
    WORKER_TOKENS_VARIABLE,
    without_password,
)

if TYPE_CHECKING:
    import asyncio

    from parcelpost.cli.systemd import Service
    from parcelpost.events import Event
    from parcelpost.settings import Settings


EXAMPLES = examples(
    "parcelpost gateway serve",
    "parcelpost gateway serve --port 9000 --database postgresql://gateway@db.example.org/parcelpost --raw s3://pages/raw",
    "parcelpost gateway serve --host 0.0.0.0 --set server.worker_tokens_file=/etc/parcelpost/worker_tokens \\",
    "    --set server.admin_tokens_file=/etc/parcelpost/admin_tokens",
)

_SWITCH_SECONDS = 0.00001  # for how long the ledger waits for the event loop between two statements: by default 5 ms

_LAST_SECONDS = 5.0  # after a second signal

_PLAIN_HTTP = (
    "other machines can reach this gateway over plain HTTP, which exposes tokens and records to the network. "
    "Put a reverse proxy with TLS in front of it"
)

Text = str | None


def serve(
    host: Annotated[
        Text,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Address to listen on; any other than loopback requires tokens. [default: 127.0.0.1]",
        ),
    ] = None,
    port: Annotated[Text, typer.Option("--port", metavar="PORT", help="Port to listen on. [default: 8700]")] = None,
    database: Database = None,
    raw: Annotated[
        Text, typer.Option("--raw", metavar="WHERE", help="Where to store raw files: a folder or s3://bucket/prefix.")
    ] = None,
    open_read: Annotated[
        bool, typer.Option("--open-read", help="Allow reading without a token, even if workers and admins need one.")
    ] = False,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Run a gateway: it hands out tasks, stores results and raw files, and serves a dashboard.

    By default it listens on this machine only and keeps everything in gateway_data. Ctrl-C or SIGTERM stops it once
    requests in progress are finished, within 30 seconds; a second one stops it immediately. Everything it has
    acknowledged is safe either way.
    """

    from parcelpost.cli.context import needed_packages

    flags = {
        "--host": ("server.host", host),
        "--port": ("server.port", port),
        "--database": ("server.database", database),
        "--raw": ("server.raw", raw),
        "--open-read": ("server.open_read", "true" if open_read else None),
    }
    settings = load_settings(config, set_, flags)
    with needed_packages():
        from parcelpost.files_and_sockets import run_on_fast_loop

        sys.setswitchinterval(_SWITCH_SECONDS)
        run_on_fast_loop(_serve(settings))


async def _serve(settings: Settings) -> None:
    import asyncio

    from parcelpost.cli.context import CLOCK
    from parcelpost.cli.platform_names import KnownPlatforms
    from parcelpost.cli.systemd import Service
    from parcelpost.gateway.maintenance import Maintenance
    from parcelpost.gateway.server import serve
    from parcelpost.log_lines import make_log

    stop, listens = asyncio.Event(), asyncio.Event()
    log = make_log(settings.log.level, settings.log.format, sys.stderr)
    service = Service(os.environ)

    def emit(event: Event) -> None:
        log(event)
        service.emit(event)

    def ready(address: str) -> None:
        _announce(settings, address)
        listens.set()

    def watch(maintenance: Maintenance) -> None:
        service.stuck = lambda: ["maintenance"] if maintenance.is_stuck else []

    async def tell() -> None:
        await listens.wait()
        await service.run(CLOCK)

    platforms = KnownPlatforms(settings, override="?any_platform=true")
    serving = asyncio.ensure_future(
        serve(settings, os.environ, CLOCK, emit, stop=stop, ready=ready, watch=watch, platforms=platforms)
    )
    await _serve_until_stopped(serving, asyncio.ensure_future(tell()), stop, service)


async def _serve_until_stopped(
    serving: asyncio.Future[None], telling: asyncio.Future[None], stop: asyncio.Event, service: Service
) -> None:
    import asyncio
    import contextlib
    import signal

    from parcelpost.gateway.server import GRACE_SECONDS

    loop = asyncio.get_running_loop()
    signals = 0

    def interrupt() -> None:
        if stop.is_set():
            serving.cancel()
        service.leave("stopping: finishing requests in progress", GRACE_SECONDS)
        stop.set()

    def received(*_: object) -> None:
        nonlocal signals
        signals += 1
        _exit_after(GRACE_SECONDS if signals == 1 else _LAST_SECONDS)
        loop.call_soon_threadsafe(interrupt)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, received)  # unlike the loop's own handlers, also while the loop is busy
    try:
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        telling.cancel()
        await asyncio.wait({telling})


def _exit_after(seconds: float) -> None:
    """Ends the process then if it still runs: a thread that does not return would keep it alive."""
    import threading

    def end() -> None:
        print("error: stopped with requests still in progress", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def _announce(settings: Settings, address: str) -> None:
    from parcelpost.private_addresses import is_loopback

    server = settings.server
    kinds = {
        "workers": server.worker_tokens_file or os.environ.get(WORKER_TOKENS_VARIABLE),
        "readers": server.read_tokens_file or os.environ.get(READ_TOKENS_VARIABLE),
        "admins": server.admin_tokens_file or os.environ.get(ADMIN_TOKENS_VARIABLE),
    }
    missing = [kind for kind, given in kinds.items() if not given]
    needed = [] if len(missing) == len(kinds) else [kind for kind in kinds if kind != "readers" or not server.open_read]
    print_lines(
        fields(
            [
                ("gateway", f"{address}   (parcelpost run --gateway {address})"),
                ("dashboard", f"{address}/"),
                ("ledger", without_password(server.database)),
                ("raw files", server.raw),
                (
                    "tokens",
                    f"required for {', '.join(needed)}" if needed else "not required: only this machine can connect",
                ),
            ]
        )
    )
    sys.stdout.flush()
    if kinds["admins"]:
        missing = [kind for kind in missing if kind != "readers"]  # an admin's token reads, too
    for kind in missing:
        if kind in needed:
            print(f"note: no tokens are set for {kind}, so {kind} cannot connect", file=sys.stderr)
    if not is_loopback(server.host):
        print(f"note: {_PLAIN_HTTP}", file=sys.stderr)
