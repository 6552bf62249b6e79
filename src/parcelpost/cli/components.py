"""Builds platforms, county sites and the upstream from the settings."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from parcelpost.clock import Clock
from parcelpost.errors import InvalidSettings, extra_hint
from parcelpost.scrapers.counties import load_counties
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.factory import ScraperFactory
from parcelpost.scrapers.records.field_maps import FieldMap, FieldMaps, build_field_map, load_field_maps
from parcelpost.settings import Settings
from parcelpost.settings.secrets import read_token
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


_NO_TOKEN = "none"  # noqa: S105 - sent to a gateway on this machine that needs no token
_KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_NEEDED = {"google.cloud.firestore_v1": "google-cloud-firestore", "obstore": "obstore"}


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
        _keep_grpc_quiet()
        from parcelpost.upstream.firestore.client import open_firestore

        async with open_firestore(settings.firestore, environment, worker_id, clock) as firestore:
            yield firestore
    elif settings.gateway.url:
        secret = read_token(settings.gateway, environment).secret
        token = secret.reveal() if secret else _NO_TOKEN
        from parcelpost.worker.identity import KnownGateway

        known = KnownGateway(lpm, base_url(settings.gateway), clock) if lpm else None
        async with GatewayClient.open(settings.gateway, token, worker_id, clock.now, known) as gateway:
            yield gateway
    else:
        yield NullUpstream()


def secret_warnings(settings: Settings, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Warnings about secret files that other users can read or write."""
    if settings.worker.upstream == "gateway":
        return read_token(settings.gateway, environment).warnings
    name, file = "firestore.credentials_file", settings.firestore.credentials_file
    if not file:
        name, file = _KEY_VARIABLE, environment.get(_KEY_VARIABLE, "")
    key = Path(file)
    if not file or not key.is_file() or not key.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
        return ()
    return (f"{name} {key} is readable or writable by every user of this machine: run 'chmod 600' on it",)


def check_firestore(settings: Settings, environment: Mapping[str, str]) -> None:
    """Checks what can be checked without connecting. Raises InvalidSettings."""
    if settings.worker.upstream != "firestore":
        return
    if missing := [package for module, package in _NEEDED.items() if not _is_installed(module)]:
        are = "are" if len(missing) > 1 else "is"
        raise InvalidSettings(
            f"worker.upstream is firestore, but {' and '.join(missing)} {are} not installed",
            hint=extra_hint("firestore"),
        )
    _keep_grpc_quiet()
    from parcelpost.upstream.firestore.client import EMULATOR_VARIABLE, read_named

    if settings.firestore.credentials_file or not environment.get(EMULATOR_VARIABLE):
        read_named(settings.firestore.credentials_file, environment)


def _keep_grpc_quiet() -> None:
    """Call before importing grpc: it would write into our log output."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
