"""Builds a worker from the settings: the composition root of `parcelpost run`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from parcelpost.cli.components import fetch_options, known_sites, open_upstream, scraper_factory
from parcelpost.cli.context import store_options
from parcelpost.cli.health.settings import check_ready, secret_warnings
from parcelpost.cli.processes import health_socket, share_of
from parcelpost.cli.settings_options import profiles_folder
from parcelpost.cli.systemd import Service
from parcelpost.clock import SystemClock
from parcelpost.events import Emit, Event
from parcelpost.health_checks import Finding
from parcelpost.log_lines import make_log
from parcelpost.model import Target
from parcelpost.scrapers.browser.pool import BrowserPool
from parcelpost.scrapers.browser.renderer import RenderContext
from parcelpost.scrapers.fetch.client import PageFetcher
from parcelpost.settings import Settings
from parcelpost.settings.schema import ScheduleSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker import health_pages
from parcelpost.worker.context import Context
from parcelpost.worker.control import Control
from parcelpost.worker.identity import process_name, settle_worker_id
from parcelpost.worker.schedules import schedule_site
from parcelpost.worker.worker import Tools, Worker

if TYPE_CHECKING:
    from parcelpost.telemetry import Telemetry


@asynccontextmanager
async def open_worker(
    settings: Settings,
    environment: Mapping[str, str],
    control: Control,
    *,
    progress_seconds: float,
    process: int = 0,
) -> AsyncIterator[Worker]:
    """Opens everything that a worker needs, and closes it at the end. Raises InvalidSettings and StoreError.

    `process`: the number of this one among those of `--processes`, which another starts and watches; 0: there is one.
    """
    if settings.worker.mode == "legacy":  # one task at a time
        settings = replace(settings, executor=replace(settings.executor, slots=1))
    clock = SystemClock()
    listener = health_socket() if process else None
    check_ready(settings, environment)
    if process:
        settings = share_of(settings, process)
    telemetry = _telemetry(settings, is_watched=listener is not None)
    service = Service(environment)
    log = make_log(settings.log.level, settings.log.format, sys.stderr)
    emit = _broadcast(log, service.emit, *([telemetry.emit] if telemetry else []))
    for warning in secret_warnings(settings, environment):
        print(f"note: {warning}", file=sys.stderr)
    known = replace(known_sites(settings), clock=clock)
    async with AsyncExitStack() as stack:
        lpm = await stack.enter_async_context(
            LocalPersistenceManager.open(
                Path(settings.storage.path),
                options=store_options(settings),
                clock=clock,
                emit=emit,
                worker="worker",
                waits=True,
            )
        )
        pool = await stack.enter_async_context(
            BrowserPool.open(settings.browser, lpm.browsers, owner=lpm.owner_id, clock=clock, emit=emit)
        )
        browsing = RenderContext(
            pool=pool, settings=settings.browser, profiles=profiles_folder(lpm.path), artifacts=lpm.artifacts
        )
        fetching = fetch_options(settings, environment)
        fetcher = await stack.enter_async_context(
            PageFetcher.open(fetching, cache=lpm.cache, clock=clock, emit=emit, browsing=browsing)
        )
        worker_id = await settle_worker_id(lpm, settings.worker.id, emit)
        name = process_name(lpm, worker_id)
        upstream = await stack.enter_async_context(open_upstream(settings, environment, worker_id, clock, lpm))
        context = Context(
            lpm,
            upstream,
            scraper_factory(settings, replace(known, sessions=fetcher.session)),
            settings,
            control=control,
            clock=clock,
            emit=emit,
            worker_id=worker_id,
            name=name,
        )
        tools = Tools(
            progress_seconds=progress_seconds,
            ranking=known.ranking,
            availability=fetcher.availability,
            browsers=pool,
            most_browsers=settings.browser.most,
            emulator=environment.get("FIRESTORE_EMULATOR_HOST", ""),
            observe=telemetry.observe if telemetry else None,
            read_targets=read_targets,
        )
        worker = Worker(context, tools)
        if service.is_watched:
            service.stuck = worker.stuck
            service.problems = lambda: [finding.message for finding in worker.findings() if finding.blocks_work]
            worker.supervisor.add("service", service.step)
        if telemetry:
            pages = _pages(worker, telemetry)
            await stack.enter_async_context(health_pages.served(settings.http, pages, emit, listener))
        if process:
            worker.janitor.parent_pid = os.getppid()
        yield worker


def read_targets(schedule: ScheduleSettings) -> Sequence[Target]:
    """Reads a schedule's file. Raises InvalidInput and OSError."""
    from parcelpost.cli.importer import importer

    site = schedule_site(schedule)
    return importer.read_targets(schedule.file, [], (site.platform, site.state, site.county), None)


def _telemetry(settings: Settings, *, is_watched: bool) -> Telemetry | None:
    """Returns None if there is nothing to serve it on."""
    if not (settings.http.port or is_watched):
        return None
    from parcelpost.telemetry import Telemetry

    return Telemetry()


def _pages(worker: Worker, telemetry: Telemetry) -> dict[str, health_pages.Page]:
    from parcelpost.telemetry import CONTENT_TYPE

    def metrics() -> health_pages.Response:
        return health_pages.Response(200, telemetry.page(), CONTENT_TYPE)

    return {
        "/healthz": lambda: health_pages.state(
            [Finding.of("worker.stuck", f"the {name} loop is stuck", "restart the worker") for name in worker.stuck()]
        ),
        "/readyz": lambda: health_pages.state(worker.findings()),
        "/metrics": metrics,
    }


def _broadcast(*listeners: Emit) -> Emit:
    def emit(event: Event) -> None:
        for listener in listeners:
            listener(event)

    return emit
