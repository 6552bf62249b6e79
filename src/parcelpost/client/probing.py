"""A look at a gateway that changes nothing there: no task is taken, and no worker is announced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from functools import partial
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from parcelpost import wire
from parcelpost.client.http import Exchange, PlainClient, open_client
from parcelpost.errors import NotAllowed, NotNow, UpstreamError
from parcelpost.settings.keys import GatewaySettings
from parcelpost.wire.reading import member, members

_NOBODYS = "parcelpost-doctor"
"""A platform that nobody has tasks of."""
_MOST_VERSION_CHARS = 40


class Probed(Struct, frozen=True, kw_only=True):
    error: UpstreamError | None = None
    """Why it cannot be used; None: it knows our token and speaks the contract."""
    extended: bool = False
    """It has the optional parts of the contract, as our own gateway does."""
    version: str = ""
    """As our own gateway says; '' of others."""
    date: datetime | None = None
    """Its clock; None where it says nothing."""
    ledger_id: str | None = None
    """Which ledger it has, '' where it does not say; None where it could not be asked."""


async def probe(settings: GatewaySettings, token: str, worker_id: str, now: Callable[[], datetime]) -> Probed:
    """`worker_id`: '' for none. Raises InvalidSettings for an address, token or id that cannot be used."""
    async with open_client(token, worker_id) as client:
        (version, date), spoken = await asyncio.gather(
            _front(client, settings, token, now), _contract(Exchange(client, settings, token, now))
        )
    if isinstance(spoken, UpstreamError):
        return Probed(error=spoken, version=version, date=date)
    extended, ledger_id = spoken
    return Probed(extended=extended, version=version, date=date, ledger_id=ledger_id)


async def _front(
    client: PlainClient, settings: GatewaySettings, token: str, now: Callable[[], datetime]
) -> tuple[str, datetime | None]:
    """What it says to everybody: its version, if it is ours, and its clock."""
    try:
        answer = await Exchange(client, replace(settings, base_path=""), token, now).ask("GET", "/health")
    except (NotNow, NotAllowed):
        return "", None
    try:
        version = member(members(answer.body), "version")
    except NotNow:
        version = ""
    return str(version or "")[:_MOST_VERSION_CHARS], wire.http_date(answer.headers.get("date", ""))


async def _contract(exchange: Exchange) -> tuple[bool, str] | UpstreamError:
    """Whether it has the optional parts, and which ledger; or why it does not let us in, or is no gateway."""
    try:
        return await _has_extensions(exchange)
    except UpstreamError as error:
        return error


async def _has_extensions(exchange: Exchange) -> tuple[bool, str]:
    selectors = await exchange.ask("GET", f"/selectors?{urlencode({'platform': _NOBODYS})}")
    if selectors.is_good:
        await exchange.read(selectors, partial(wire.read_selectors, platform=_NOBODYS))
        return True, wire.read_ledger_id(selectors.headers)
    if selectors.status not in {404, 405}:
        raise exchange.error(selectors)
    # Of a platform that nobody has tasks of, none is taken.
    work = await exchange.call("GET", f"/work?{urlencode({'capacity': 1, 'platforms': _NOBODYS})}")
    await exchange.read(work, wire.read_work)
    return False, wire.read_ledger_id(work.headers)
