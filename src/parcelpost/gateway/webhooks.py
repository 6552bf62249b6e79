"""Webhooks: which are valid, what operators do with them, how they are doing; and the loop that delivers changes to
receivers, signed according to Standard Webhooks.

Each webhook has a cursor in the ledger's changes, and one gateway at a time delivers to it, in order. A change that was
not accepted is retried for a day. A receiver that fails gets single requests with growing delays, not a flood. Every
change is delivered at least once, always with the same `webhook-id`.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import random
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import urlsplit

import httpcore2
import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from parcelpost.changes import checked_field, checked_kinds
from parcelpost.errors import InvalidInput, LedgerError
from parcelpost.events import LoopFailed, WebhookFailing, WebhookGaveUp, WebhookRecovered
from parcelpost.gateway.history import change_response
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ChangeFilter, ChangeRow, Text, Webhook, WebhookRetry
from parcelpost.health_checks import Finding
from parcelpost.places import county_name, state_code
from parcelpost.private_addresses import AddressRefused, Guard, NoAddress, open_connection_pool
from parcelpost.settings.secrets import WEBHOOK_SECRET_VARIABLE, Secret
from parcelpost.units import age, count

if TYPE_CHECKING:
    from parcelpost.gateway.context import Context

_SECRET_PREFIX = "whsec_"  # noqa: S105 - of every secret
_SECRET_BYTES = 32
_FEWEST_SECRET_BYTES, _MOST_SECRET_BYTES = 24, 64
_VARIABLE = re.compile(rf"{WEBHOOK_SECRET_VARIABLE}(_[A-Z0-9_]{{1,60}})?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", re.ASCII)
_MAX_URL_CHARS = 2_000
_MAX_LISTED_RETRIES = 100

STEP_SECONDS = 1.0
_ATTEMPT_SECONDS = 15.0
_BATCH = 100
_BATCH_SECONDS = 30.0
_LEASE = timedelta(seconds=60)  # longer than a batch and an attempt: after a crash, another gateway goes on
_LAST_SECONDS = 3.0  # for an attempt that is under way when the gateway stops
_FIRST_REST, _LONGEST_REST = 5.0, 600.0
_LONGEST_RETRY_AFTER = 3_600.0
_WITHOUT_SECRET_SECONDS = 60.0
GIVE_UP_AFTER = timedelta(days=1)
_MOST_RETRIES = 10_000
"""Changes that wait to be retried. With more, no further ones are read: they wait behind the cursor."""
_MOST_REFUSED = 100
"""New changes refused in a row before the receiver itself counts as failing: its secret or URL may be wrong."""
_MAX_RESPONSE_BYTES = 64 * 1024
_MAX_ERROR_CHARS = 300
_GONE = 410
_NOT_ABOUT_THE_CHANGE = frozenset({408, _GONE, 425, 429})


class NewWebhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All conditions must match; without any, all changes are sent."""

    url: str
    name: str = ""
    """Defaults to the host of the URL."""
    secret_variable: str = WEBHOOK_SECRET_VARIABLE
    """The variable in the gateway's environment that holds the secret."""
    kinds: list[Text] = []
    """Kinds such as `lien.new`; `lien` selects them all."""
    platform: Text = ""
    state: Text = ""
    county: Text = ""
    field: Text = ""
    since: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Send changes after this number; null: future changes only."""


async def add_webhook(ledger: Ledger, new: NewWebhook, guard: Guard, now: datetime) -> Webhook:
    """Raises InvalidInput."""
    name = new.name or default_name(new.url)
    check_webhook(name, new.url, new.secret_variable, guard)
    wanted = ChangeFilter(
        kinds=checked_kinds(new.kinds),
        platform=new.platform,
        state=state_code(new.state),
        county=county_name(new.county),
        field=checked_field(new.field),
    )
    last = await ledger.last_change()
    if new.since is not None and new.since > last:
        raise InvalidInput(f"the last change is {last:,}", hint="omit 'since' to send only future changes")
    cursor = last if new.since is None else new.since
    if not await ledger.add_webhook(name, new.url, new.secret_variable, wanted, cursor, now):
        raise InvalidInput(f"a webhook named {name!r} already exists", hint="choose another name")
    return await find_webhook(ledger, name)


async def find_webhook(ledger: Ledger, name: str) -> Webhook:
    """Raises InvalidInput."""
    webhook = await ledger.webhook(name)
    if webhook is None:
        raise InvalidInput(f"there is no webhook {name!r:.100}", hint="see 'parcelpost gateway webhook list'")
    return webhook


async def replay_webhook(ledger: Ledger, webhook: Webhook, since: int, now: datetime) -> None:
    """Raises InvalidInput."""
    if not await ledger.replay_webhook(webhook.webhook_no, since, now):
        raise InvalidInput(f"the last change is {webhook.last:,}", hint="see 'parcelpost gateway changes'")


def check_webhook(name: str, url: str, secret_variable: str, guard: Guard) -> None:
    """Raises InvalidInput. The address is checked again, and resolved, at each delivery."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r:.100} is not a valid name", hint="use letters, digits, dots, _ and -")
    if not _VARIABLE.fullmatch(secret_variable):
        raise InvalidInput(
            f"{secret_variable!r:.100} is not the name of a variable for a webhook's secret",
            hint=f"use {WEBHOOK_SECRET_VARIABLE} or a name such as {WEBHOOK_SECRET_VARIABLE}_CRM",
        )
    if len(url) > _MAX_URL_CHARS:
        raise InvalidInput(f"the URL is longer than {_MAX_URL_CHARS:,} characters")
    try:
        guard.url(url)
    except AddressRefused as error:
        raise InvalidInput(str(error), hint="webhooks can only be sent to public http and https addresses") from None


def default_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class WebhookState(Struct, frozen=True, kw_only=True):
    name: str
    receiver: str
    """Scheme and host of its URL."""
    secret_variable: str
    kinds: Sequence[str]
    platform: str
    county: str
    state: str
    field: str
    status: Literal["active", "paused", "failing"]
    since: int
    """Changes up to this number were delivered or are waiting for a retry."""
    behind: int
    """Number of changes after `since` that match. Of those beyond the next 20,000, all count."""
    waiting: int
    """Number of changes waiting for a retry."""
    gave_up: int
    """Changes given up after a day of attempts. Only a replay delivers them."""
    delivered: int
    delivered_at: datetime | None
    failing_since: datetime | None
    error: str
    next_at: datetime
    """No deliveries until then, because the receiver fails."""
    created_at: datetime


class WebhookDetail(Struct, frozen=True):
    webhook: WebhookState
    retries: Sequence[WebhookRetry]
    """The first 100 changes that are waiting or were given up."""


async def webhook_detail(ledger: Ledger, webhook: Webhook) -> WebhookDetail:
    retries = await ledger.webhook_retries(webhook.webhook_no, 0, _MAX_LISTED_RETRIES)
    return WebhookDetail(await webhook_state(ledger, webhook), retries)


async def webhook_state(ledger: Ledger, webhook: Webhook) -> WebhookState:
    wanted = webhook.wanted
    return WebhookState(
        name=webhook.name,
        receiver=receiver_of(webhook.url),
        secret_variable=webhook.secret_variable,
        kinds=wanted.kinds,
        platform=wanted.platform,
        state=wanted.state,
        county=wanted.county,
        field=wanted.field,
        status="paused" if webhook.is_paused else "failing" if webhook.failing_since else "active",
        since=webhook.cursor,
        behind=await ledger.count_changes(wanted, webhook.cursor) if webhook.cursor < webhook.last else 0,
        waiting=webhook.retries,
        gave_up=webhook.dead,
        delivered=webhook.delivered,
        delivered_at=webhook.delivered_at,
        failing_since=webhook.failing_since,
        error=webhook.error,
        next_at=webhook.next_at,
        created_at=webhook.created_at,
    )


def receiver_of(url: str) -> str:
    """Scheme and host: the rest may be secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def webhook_findings(webhooks: Sequence[Webhook], now: datetime) -> Iterator[Finding]:
    for webhook in webhooks:
        name, show = webhook.name, f"parcelpost gateway webhook show {webhook.name}"
        if webhook.is_paused and webhook.error:
            fix = f"check the receiver, then run 'parcelpost gateway webhook resume {name}', or delete it"
            yield Finding.of("webhook.failing", f"webhook {name} was paused: {webhook.error}", fix)
        elif webhook.failing_since and not webhook.is_paused:
            since = age((now - webhook.failing_since).total_seconds())
            message = f"webhook {name} has been failing for {since}: {webhook.error}"
            yield Finding.of(
                "webhook.failing", message, f"check the receiver and its secret; '{show}' lists the waiting changes"
            )
        if webhook.dead:
            message = f"webhook {name}: gave up on {count(webhook.dead, 'change')} after a day"
            replay = f"parcelpost gateway webhook replay {name} --since NUMBER"
            yield Finding.of("webhook.gave_up", message, f"'{show}' lists them; send them again with '{replay}'")


def new_secret() -> str:
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def read_secrets(variable: str, environment: Mapping[str, str]) -> list[Secret]:
    """The secrets that an environment variable holds, separated by spaces: while one is replaced, both sign.

    Raises InvalidInput, whose message never contains any.
    """
    texts = environment.get(variable, "").split()
    hint = f"set {variable} in the gateway's environment; 'parcelpost gateway webhook secret' prints a new one"
    if not texts:
        raise InvalidInput(f"the environment variable {variable} is not set", hint=hint)
    if not all(map(_is_secret, texts)):
        raise InvalidInput(f"{variable} does not hold a secret such as whsec_...", hint=hint)
    return [Secret(text) for text in texts]


def _is_secret(text: str) -> bool:
    try:
        key = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return False
    return text.startswith(_SECRET_PREFIX) and _FEWEST_SECRET_BYTES <= len(key) <= _MOST_SECRET_BYTES


def signed_headers(message_id: str, body: bytes, keys: Sequence[Secret], now: datetime) -> dict[str, str]:
    timestamp = str(int(now.timestamp()))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{_signature(key, signed)}" for key in keys),
    }


def _signature(key: Secret, signed: bytes) -> str:
    text = base64.b64decode(key.reveal().removeprefix(_SECRET_PREFIX))
    return base64.b64encode(hmac.new(text, signed, hashlib.sha256).digest()).decode()


class Attempt(Struct, frozen=True):
    """The outcome of a request."""

    error: str = ""
    """'' if the change was delivered."""
    status: int | None = None
    retry_after: float = 0.0

    @property
    def is_refusal(self) -> bool:
        """Whether the receiver works, but does not accept this change."""
        return self.status is not None and 400 <= self.status < 500 and self.status not in _NOT_ABOUT_THE_CHANGE


class Sender:
    """Posts to receivers. Connects only to addresses that the guard allows, and follows no redirects."""

    def __init__(self, guard: Guard, version: str) -> None:
        self._guard = guard
        self._pool = open_connection_pool(guard)
        self._headers = {"content-type": "application/json", "user-agent": f"parcelpost/{version}"}

    async def close(self) -> None:
        await self._pool.aclose()

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        try:
            target = self._guard.url(url)
            async with asyncio.timeout(_ATTEMPT_SECONDS):
                return await self._post(str(target), {**self._headers, **headers}, body)
        except (AddressRefused, NoAddress) as error:
            return Attempt(str(error)[:_MAX_ERROR_CHARS])
        except (TimeoutError, httpcore2.TimeoutException):
            return Attempt(f"no response within {_ATTEMPT_SECONDS:g} s")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol, OSError) as error:
            return Attempt((str(error) or type(error).__name__)[:_MAX_ERROR_CHARS])

    async def _post(self, url: str, headers: Mapping[str, str], body: bytes) -> Attempt:
        async with self._pool.stream("POST", url, headers=list(headers.items()), content=body) as response:
            left = _MAX_RESPONSE_BYTES
            async for chunk in response.aiter_stream():
                left -= len(chunk)
                if left < 0:
                    break  # the connection is closed
        status = response.status
        if 200 <= status < 300:
            return Attempt(status=status)
        redirected = ", and redirects are not followed" if 300 <= status < 400 else ""
        header = next((value for name, value in response.headers if name.lower() == b"retry-after"), b"")
        after = float(header) if header.isdigit() and len(header) < 7 else 0.0
        return Attempt(f"the receiver returned {status}{redirected}", status, min(after, _LONGEST_RETRY_AFTER))


async def send_test(sender: Sender, webhook: Webhook, keys: Sequence[Secret], now: datetime) -> Attempt:
    """Sends an event of type `webhook.test`."""
    body = msgspec.json.encode({"type": "webhook.test", "timestamp": now, "data": {"webhook": webhook.name}})
    message_id = f"msg_test_{secrets.token_hex(8)}"
    return await sender.post(webhook.url, signed_headers(message_id, body, keys, now), body)


class Webhooks:
    """Delivers changes until stopped: each receiver in a task of its own, so that a slow one delays nobody else."""

    def __init__(self, context: Context, environment: Mapping[str, str], sender: Sender) -> None:
        self._context = context
        self._environment = environment
        self._sender = sender
        self._gateway_id = secrets.token_hex(8)
        self._ledger_id = ""
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        try:
            while not await self._context.clock.wait(stop, STEP_SECONDS):
                await self.step()
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=_LAST_SECONDS)
        finally:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._sender.close)
                tasks = list(self._tasks.values())
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def step(self) -> None:
        """Starts a delivery to each receiver that has changes due. Does nothing while the ledger is unavailable."""
        try:
            webhooks = await self._context.ledger.webhooks()
        except LedgerError:
            return  # reported by the maintenance
        now = self._context.clock.now()
        for webhook in webhooks:
            if webhook.webhook_no not in self._tasks and self._has_work(webhook, now):
                task = asyncio.create_task(self._deliver(webhook.webhook_no))
                self._tasks[webhook.webhook_no] = task
                task.add_done_callback(partial(self._ended, webhook))

    async def idle(self) -> None:
        """Waits until nothing is being delivered."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())

    def _ended(self, webhook: Webhook, task: asyncio.Task[None]) -> None:
        self._tasks.pop(webhook.webhook_no, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, LedgerError):
            message = f"{webhook.name}: {type(error).__name__}: {error}"
            self._context.emit(LoopFailed(loop="webhooks", error=message, in_a_row=1, next_in_seconds=STEP_SECONDS))

    def _has_work(self, webhook: Webhook, now: datetime) -> bool:
        if webhook.is_paused or webhook.next_at > now:
            return False
        if webhook.leased_by not in (None, self._gateway_id) and webhook.leased_until > now:
            return False
        is_due = webhook.next_retry_at is not None and webhook.next_retry_at <= now
        return is_due or (webhook.cursor < webhook.last and webhook.retries < _MOST_RETRIES)

    async def _deliver(self, webhook_no: int) -> None:
        ledger, clock = self._context.ledger, self._context.clock
        self._ledger_id = self._ledger_id or await ledger.ledger_id()
        try:
            while await ledger.lease_webhook(webhook_no, self._gateway_id, now := clock.now(), now + _LEASE):
                webhooks = await ledger.webhooks()
                webhook = next((row for row in webhooks if row.webhook_no == webhook_no), None)
                if webhook is None or not self._has_work(webhook, now) or not await self._deliver_batch(webhook):
                    return
                if self._context.stopping.is_set():
                    return
        finally:
            await ledger.release_webhook(webhook_no, self._gateway_id)

    async def _deliver_batch(self, webhook: Webhook) -> bool:
        """Returns whether to continue with the next batch."""
        batch = _Batch(self._context, webhook, self._gateway_id)
        try:
            keys = read_secrets(webhook.secret_variable, self._environment)
        except InvalidInput as error:
            batch.rest(str(error), _WITHOUT_SECRET_SECONDS)
            await batch.write()
            return False
        ledger, clock = self._context.ledger, self._context.clock
        most = 1 if webhook.failures else _BATCH
        takes_new = webhook.retries < _MOST_RETRIES
        # After a failure, one change tells whether the receiver works: in turn a new one, and one that may be at fault.
        wants_new = takes_new and webhook.failures % 2 == 1 and webhook.cursor < webhook.last
        retries = [] if wants_new else await ledger.due_retries(webhook.webhook_no, clock.now(), most)
        room = most - len(retries) if takes_new else 0
        page = await ledger.changes(webhook.wanted, webhook.cursor, room) if room else None
        rows = page.rows if page else []
        until = clock.monotonic() + _BATCH_SECONDS
        ended_early = False
        try:
            for place, row in enumerate((*retries, *rows)):
                if ended_early := clock.monotonic() > until or self._context.stopping.is_set():
                    break
                attempt = await self._send(webhook, row, keys)
                is_new = place >= len(retries)
                if not attempt.error:
                    batch.succeeded(row, is_new=is_new)
                elif not await batch.failed(row, attempt, is_new=is_new):
                    return False
            if page and not ended_early:
                batch.passed(page.next)
        finally:
            await batch.write()
        return batch.has_lease

    async def _send(self, webhook: Webhook, row: ChangeRow, keys: Sequence[Secret]) -> Attempt:
        body = msgspec.json.encode({"type": row.kind, "timestamp": row.found_at, "data": change_response(row)})
        found_at = int(row.found_at.timestamp())  # a ledger restored from a backup gives numbers again
        message_id = f"msg_{self._ledger_id}_{row.change_no}_{found_at}"
        headers = signed_headers(message_id, body, keys, self._context.clock.now())
        attempt = await self._sender.post(webhook.url, headers, body)
        self._context.counters.webhooks[webhook.name, "failed" if attempt.error else "delivered"] += 1
        return attempt


class _Batch:
    """The outcome of consecutive deliveries to a receiver, and when the next one is due."""

    def __init__(self, context: Context, webhook: Webhook, gateway_id: str) -> None:
        self._context = context
        self._before = self._webhook = webhook
        self._gateway_id = gateway_id
        self._delivered = 0
        self._retried: list[int] = []
        self._gone = False
        self.has_lease = True
        """Whether this gateway still leases the webhook."""

    def succeeded(self, row: ChangeRow, *, is_new: bool) -> None:
        self._delivered += 1
        self._change(failures=0, failing_since=None, error="")
        if is_new:
            self.passed(row.change_no)
        else:
            self._retried.append(row.change_no)

    def passed(self, change_no: int) -> None:
        self._change(cursor=change_no)

    async def failed(self, row: ChangeRow, attempt: Attempt, *, is_new: bool) -> bool:
        """Returns whether to continue. A refusal delays only its change, unless the receiver refuses all of them."""
        ledger, now = self._context.ledger, self._context.clock.now()
        number = self._webhook.webhook_no
        known = None if is_new else await ledger.webhook_retry(number, row.change_no)
        attempts, first_at = (known.attempts + 1, known.first_at) if known else (1, now)
        rest = max(_rest_seconds(attempts), attempt.retry_after)
        retry = WebhookRetry(
            change_no=row.change_no,
            attempts=attempts,
            first_at=first_at,
            next_at=now + timedelta(seconds=rest),
            error=attempt.error,
            dead_at=now if now - first_at >= GIVE_UP_AFTER else None,
        )
        await ledger.put_webhook_retry(number, retry)
        if retry.dead_at:
            name = self._webhook.name
            self._context.counters.webhooks[name, "dead"] += 1
            self._context.emit(WebhookGaveUp(webhook=name, change=row.change_no, error=attempt.error))
        if is_new:
            self.passed(row.change_no)
        self._gone = attempt.status == _GONE
        failures = self._webhook.failures
        if attempt.is_refusal and failures < _MOST_REFUSED:
            if is_new:
                self._change(failures=failures + 1)
                self.rest(attempt.error, 0.0)
            return True
        self._change(failures=failures + 1)
        rest = _rest_seconds(failures + 1 - (_MOST_REFUSED if attempt.is_refusal else 0))
        self.rest(attempt.error, max(rest, attempt.retry_after))
        return False

    def rest(self, error: str, seconds: float) -> None:
        now = self._context.clock.now()
        self._change(
            error=error, failing_since=self._webhook.failing_since or now, next_at=now + timedelta(seconds=seconds)
        )

    async def write(self) -> None:
        webhook, now = self._webhook, self._context.clock.now()
        if webhook == self._before and not self._delivered:
            return
        ledger = self._context.ledger
        self.has_lease = await ledger.advance_webhook(webhook, self._gateway_id, self._retried, self._delivered, now)
        if not self.has_lease:
            return
        if self._gone:
            reason = "the receiver returned 410: it no longer accepts changes"
            await ledger.pause_webhook(webhook.webhook_no, reason)
        since = self._before.failing_since
        if webhook.failing_since and not since:
            self._context.emit(WebhookFailing(webhook=webhook.name, error=webhook.error))
        elif since and not webhook.failing_since:
            self._context.emit(WebhookRecovered(webhook=webhook.name, seconds=(now - since).total_seconds()))

    def _change(self, **fields: Any) -> None:
        self._webhook = replace(self._webhook, **fields)


def _rest_seconds(failures: int) -> float:
    """Doubles with each failure in a row. The jitter keeps apart the retries of receivers that failed together."""
    longest = min(_LONGEST_REST, _FIRST_REST * 2.0 ** min(failures - 1, 20))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
