"""Builds platforms, county sites, the upstream, fetch and browser options from the settings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from parcelpost import __version__
from parcelpost.clock import Clock
from parcelpost.scrapers.counties import load_counties
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.fetch.exchange import FetchOptions
from parcelpost.scrapers.records.field_maps import FieldMap, FieldMaps, build_field_map, load_field_maps
from parcelpost.settings import Settings
from parcelpost.settings.secrets import PROXY_LOGIN_VARIABLE, read_token
from parcelpost.upstream.base import Upstream
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.upstream.http import base_url
from parcelpost.upstream.null import NullUpstream

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager


def known_sites(settings: Settings) -> CountySites:
    """Loads the counties and field maps, without sessions to fetch with. Raises InvalidSettings."""
    counties = load_counties(settings.fetch.counties_file)
    return CountySites(counties=counties, field_maps=FieldMaps(_own_maps(settings), counties))


def _own_maps(settings: Settings) -> list[FieldMap]:
    """The operator's field maps. Raises InvalidSettings."""
    folder = settings.fetch.field_maps_folder
    written = [
        build_field_map(name, field_map.given, field_map.origin) for name, field_map in settings.field_maps.items()
    ]
    return [*written, *(load_field_maps(Path(folder)) if folder else ())]


def scraper_factory(settings: Settings, sites: CountySites) -> ScraperFactory:
    """Registers the configured platforms without importing them."""
    factory = ScraperFactory(sites.clock, sites=sites)
    for name, platform in settings.platforms.items():
        factory.configure(name, **structs.asdict(platform))
    return factory


def fetch_options(settings: Settings, environment: Mapping[str, str]) -> FetchOptions:
    fetch = settings.fetch
    contact = f" (+{fetch.contact})" if fetch.contact else ""
    return FetchOptions(
        user_agent=fetch.user_agent or f"parcelpost/{__version__}{contact}",
        pace_seconds=fetch.pace_seconds,
        concurrency_per_host=fetch.concurrency_per_host,
        processes=settings.worker.processes,
        timeout_seconds=fetch.timeout_seconds,
        max_page_bytes=min(fetch.max_page_bytes, settings.storage.max_page_bytes),
        proxy=fetch.proxy,
        proxy_login=environment.get(PROXY_LOGIN_VARIABLE, ""),
        allow_private=fetch.allow_private,
        obey_robots=fetch.obey_robots,
    )


NO_TOKEN = "none"  # noqa: S105 - sent to a gateway on this machine that needs no token


@asynccontextmanager
async def open_upstream(
    settings: Settings,
    environment: Mapping[str, str],
    worker_id: str,
    clock: Clock,
    lpm: LocalPersistenceManager | None = None,
) -> AsyncIterator[Upstream]:
    """Opens the configured upstream. With `lpm`, accepts only the gateway that store knows. Raises InvalidSettings."""
    if settings.worker.upstream == "firestore":
        keep_grpc_quiet()
        from parcelpost.upstream.firestore.client import open_firestore

        async with open_firestore(settings.firestore, environment, worker_id, clock) as firestore:
            yield firestore
    elif settings.gateway.url:
        secret = read_token(settings.gateway, environment).secret
        token = secret.reveal() if secret else NO_TOKEN
        from parcelpost.worker.identity import KnownGateway

        known = KnownGateway(lpm, base_url(settings.gateway), clock) if lpm else None
        async with GatewayClient.open(settings.gateway, token, worker_id, clock.now, known) as gateway:
            yield gateway
    else:
        yield NullUpstream()


def keep_grpc_quiet() -> None:
    """Call before importing grpc: it would write into our log output."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
