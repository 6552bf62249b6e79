"""The gateway or Firestore: whether it is there, lets us in, and speaks our language."""

from __future__ import annotations

import asyncio
import os

from msgspec.structs import replace

from parcelpost.cli.doctor import started
from parcelpost.cli.doctor.of_clock import against_gateway
from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.output import printable
from parcelpost.cli.readiness import is_own_machine
from parcelpost.cli.running import CLOCK, looking
from parcelpost.cli.status_report import Problem
from parcelpost.cli.upstreams import check_firestore, upstream_of
from parcelpost.errors import AnotherGateway, InvalidSettings, StoreError, Unavailable, UpstreamError
from parcelpost.settings.schema import GatewaySettings
from parcelpost.settings.secrets import read_token
from parcelpost.settings.validation import url_problem
from parcelpost.storage.state import WorkerState
from parcelpost.upstream.gateway import ProbeResult, probe
from parcelpost.upstream.http import another_gateway, base_url
from parcelpost.worker.identity import GATEWAY_STATE, WORKER_ID_STATE, MetGateway, WorkerId

_PATIENCE_SECONDS = 10.0
_FIRESTORE_ID = "doctor"
_NO_TOKEN = "none"  # noqa: S105 - what is sent to a gateway on this machine that asks for none


async def look(case: Case) -> list[Answer]:
    if case.settings.worker.upstream == "firestore":
        return [await _firestore(case)]
    url = case.settings.gateway.url
    if not url:
        return await _of_the_worker(case)
    return await _asked(case, case.settings.gateway)


async def _of_the_worker(case: Case) -> list[Answer]:
    """The settings name none. A worker that runs may have been given one, and its token with it."""
    alive, _ = await started.workers(case)
    given = next((one for one in alive if one.upstream), None)
    if given is None:
        return [Answer("gateway", "none is set: results stay here", skipped=True)]
    if not given.gateway_url:
        return [Answer("gateway", printable(f"none is set; a worker delivers to {given.upstream}"), skipped=True)]
    if read_token(case.settings.gateway, os.environ).secret is None and not is_own_machine(given.gateway_url):
        said = f"{given.gateway_url} of the worker is not asked: there is no token for it here"
        return [Answer("gateway", printable(said), skipped=True)]
    return await _asked(case, replace(case.settings.gateway, url=given.gateway_url))


async def _asked(case: Case, settings: GatewaySettings) -> list[Answer]:
    url = settings.url
    try:
        secret = read_token(settings, os.environ).secret
    except InvalidSettings:
        return [Answer("gateway", "not asked: the token cannot be used", skipped=True)]
    if url_problem(url):  # it may hold a password
        return [Answer("gateway", "not asked: gateway.url cannot be used", skipped=True)]
    gateway = replace(settings, timeout_seconds=min(settings.timeout_seconds, _PATIENCE_SECONDS))
    worker_id = case.settings.worker.id or await _id_of(case)
    began = CLOCK.monotonic()
    found = await probe(gateway, secret.reveal() if secret else _NO_TOKEN, worker_id, CLOCK.now)
    seconds = CLOCK.monotonic() - began
    clock = [against_gateway(found.date, CLOCK.now())] if found.date else []
    answer = _gateway(url, found, seconds, has_token=secret is not None)
    if found.ledger_id is not None and (problem := await _another(case, base_url(settings), found.ledger_id)):
        answer = Answer("gateway", "", [problem])
    return [answer, *clock]


async def _id_of(case: Case) -> str:
    """The store's worker id; '' while it has none. An id of the doctor's own would belong to one token."""
    try:
        async with looking(case.store) as database:
            kept = await WorkerState(database, CLOCK).get(WORKER_ID_STATE, WorkerId)
    except (StoreError, OSError):  # another check says so
        return ""
    return kept.worker_id if kept else ""


async def _another(case: Case, address: str, ledger_id: str) -> Problem | None:
    """If the store works with another gateway than the one that answers there."""
    try:
        async with looking(case.store) as database:
            met = await WorkerState(database, CLOCK).get(f"{GATEWAY_STATE}{address}", MetGateway)
    except (StoreError, OSError):  # another check says so
        return None
    if met is None or met.ledger_id == ledger_id:
        return None
    return Problem(another_gateway(address, ledger_id, met.ledger_id), AnotherGateway.hint, "gateway")


def _gateway(url: str, found: ProbeResult, seconds: float, *, has_token: bool) -> Answer:
    if found.error is not None:
        return Answer("gateway", "", [_problem(url, found.error)])
    language = "the contract with its extensions" if found.extended else "the plain contract, without extensions"
    version = f", version {found.version}" if found.version else ""
    token = "takes our token" if has_token else "asks for no token"
    said = f"{url} answers ({seconds * 1_000:,.0f} ms), {token}, and speaks {language}{version}"
    return Answer("gateway", printable(said))


def _problem(url: str, error: UpstreamError) -> Problem:
    if not isinstance(error, Unavailable):
        return Problem(f"the gateway at {url} does not let us in: {error}", error.hint, "gateway")
    # No command that starts one: it would be another gateway in the place of this one, and take its results.
    here = ", with the database that it had before" if is_own_machine(url) else ""
    remedy = f"start that gateway again{here}, or correct gateway.url. Everything is kept here until it is back"
    return Problem(f"the gateway at {url} cannot be used: {error}", remedy, "gateway")


async def _firestore(case: Case) -> Answer:
    """One read, of selectors that nobody has."""
    try:
        check_firestore(case.settings, os.environ)
        async with (
            asyncio.timeout(_PATIENCE_SECONDS),
            upstream_of(case.settings, os.environ, _FIRESTORE_ID, CLOCK) as upstream,
        ):
            await upstream.get_selectors("parcelpost-doctor")
    except InvalidSettings:
        return Answer("firestore", "not asked: its settings cannot be used", skipped=True)
    except TimeoutError:
        what = f"Firestore does not answer within {_PATIENCE_SECONDS:g} s"
        return Answer("firestore", "", [Problem(what, Unavailable.hint, "firestore")])
    except UpstreamError as error:
        return Answer("firestore", "", [Problem(f"Firestore cannot be used: {error}", error.hint, "firestore")])
    return Answer("firestore", "answers, and lets us in")
