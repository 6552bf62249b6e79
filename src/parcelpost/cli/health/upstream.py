"""Checks of the upstream: does it respond, accept our credentials, and is it the one the store knows."""

from __future__ import annotations

import asyncio
import os

from msgspec.structs import replace

from parcelpost.cli.components import NO_TOKEN, open_upstream
from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.health.clock import compare_clocks
from parcelpost.cli.health.settings import check_firestore, running_and_ended
from parcelpost.cli.output import printable
from parcelpost.errors import AnotherGateway, InvalidSettings, StoreError, Unavailable, UpstreamError
from parcelpost.health_checks import Finding
from parcelpost.private_addresses import is_local_url
from parcelpost.settings.schema import GatewaySettings
from parcelpost.settings.secrets import read_token
from parcelpost.settings.validation import url_problem
from parcelpost.storage.worker_state import WorkerState
from parcelpost.upstream.gateway import ProbeResult, probe
from parcelpost.upstream.http import another_gateway, base_url
from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId

_PATIENCE_SECONDS = 10.0
_FIRESTORE_ID = "doctor"


async def check_upstream(case: CheckContext) -> list[CheckResult]:
    if case.settings.worker.upstream == "firestore":
        return [await _check_firestore(case)]
    if case.settings.gateway.url:
        return await _probe_gateway(case, case.settings.gateway)
    running, _ = await running_and_ended(case)
    worker = next((status for status in running if status.upstream), None)
    if worker is None:
        return [_skipped("no gateway is set: results stay in the local store")]
    if not worker.gateway_url:
        return [_skipped(f"no gateway is set; a worker delivers to {worker.upstream}")]
    return await _probe_gateway(case, replace(case.settings.gateway, url=worker.gateway_url))


def _skipped(text: str) -> CheckResult:
    return CheckResult("upstream", printable(text), skipped=True)


async def _probe_gateway(case: CheckContext, settings: GatewaySettings) -> list[CheckResult]:
    try:
        secret = read_token(settings, os.environ).secret
    except InvalidSettings:
        return [_skipped("not checked: the token cannot be used")]
    if url_problem(settings.url):  # it may hold a password
        return [_skipped("not checked: gateway.url cannot be used")]
    if secret is None and not is_local_url(settings.url):
        return [_skipped(f"the gateway {settings.url} was not checked: no token is set here")]
    gateway = replace(settings, timeout_seconds=min(settings.timeout_seconds, _PATIENCE_SECONDS))
    address = base_url(settings)
    worker_id, met = await _known_identity(case, address)
    began = CLOCK.monotonic()
    response = await probe(gateway, secret.reveal() if secret else NO_TOKEN, worker_id, CLOCK.now)
    seconds = CLOCK.monotonic() - began
    result = _gateway_result(settings.url, response, seconds, has_token=secret is not None)
    if response.ledger_id is not None and met is not None and met.ledger_id != response.ledger_id:
        message = another_gateway(address, response.ledger_id, met.ledger_id)
        result = CheckResult("upstream", "", [Finding.of("upstream.replaced", message, AnotherGateway.hint)])
    return [result, *([compare_clocks(response.date, CLOCK.now())] if response.date else [])]


async def _known_identity(case: CheckContext, address: str) -> tuple[str, MetGateway | None]:
    """The store's worker id, and the gateway it knows at that address. An id of our own would belong to one token."""
    try:
        async with open_for_reading(case.store) as database:
            state = WorkerState(database, CLOCK)
            stored = await state.get(WORKER_ID_STATE, WorkerId)
            met = await state.get(f"{GATEWAY_STATE}{address}", MetGateway)
    except (StoreError, OSError):  # reported by another check
        return case.settings.worker.id, None
    return case.settings.worker.id or (stored.worker_id if stored else ""), met


def _gateway_result(url: str, response: ProbeResult, seconds: float, *, has_token: bool) -> CheckResult:
    if response.error is None:
        protocol = "the protocol with its extensions" if response.extended else "the plain protocol, without extensions"
        version = f", version {response.version}" if response.version else ""
        token = "accepts our token" if has_token else "requires no token"
        text = f"{url} responds ({seconds * 1_000:,.0f} ms), {token}, and supports {protocol}{version}"
        return CheckResult("upstream", printable(text))
    if not isinstance(response.error, Unavailable):
        message = f"the gateway at {url} rejected our credentials: {response.error}"
        return CheckResult("upstream", "", [Finding.of("upstream.unauthorized", message, response.error.hint)])
    # No command that starts one: it would be another gateway in the place of this one, and take its results.
    here = ", with the same database as before" if is_local_url(url) else ""
    fix = f"start that gateway again{here}, or correct gateway.url; results are kept in the store until it is back"
    message = f"the gateway at {url} cannot be used: {response.error}"
    return CheckResult("upstream", "", [Finding.of("upstream.unreachable", message, fix)])


async def _check_firestore(case: CheckContext) -> CheckResult:
    """Costs one read, of selectors that do not exist."""
    try:
        check_firestore(case.settings, os.environ)
        async with (
            asyncio.timeout(_PATIENCE_SECONDS),
            open_upstream(case.settings, os.environ, _FIRESTORE_ID, CLOCK) as upstream,
        ):
            await upstream.get_selectors("parcelpost-doctor")
    except InvalidSettings:
        return _skipped("Firestore was not checked: its settings cannot be used")
    except TimeoutError:
        message = f"Firestore did not respond within {_PATIENCE_SECONDS:g} s"
        return CheckResult("upstream", "", [Finding.of("upstream.unreachable", message, Unavailable.hint)])
    except UpstreamError as error:
        check = "upstream.unreachable" if isinstance(error, Unavailable) else "upstream.unauthorized"
        return CheckResult("upstream", "", [Finding.of(check, f"Firestore cannot be used: {error}", error.hint)])
    return CheckResult("upstream", "Firestore responds and accepts our credentials")
