"""Changes that are sent to receivers: signed, again after failures, once by two gateways, never into our network."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime, tzinfo
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks.webhooks

from parcelpost.changes import checked_field
from parcelpost.clock import ManualClock, SystemClock
from parcelpost.errors import InvalidInput
from parcelpost.events import Event
from parcelpost.gateway.context import Context
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.models import ChangeFilter, Webhook
from parcelpost.gateway.webhooks import (
    Sender,
    Webhooks,
    check_webhook,
    new_secret,
    read_secrets,
    send_test,
    webhook_findings,
)
from parcelpost.private_addresses import Guard
from parcelpost.settings.secrets import WEBHOOK_SECRET_VARIABLE
from tests.gateway.factories import arrival
from tests.gateway.receiver import SECRET, Receiver, receiving
from tests.gateway.stage import kinds, some_context

ENVIRONMENT = {WEBHOOK_SECRET_VARIABLE: SECRET}
ALLOWED = Guard(["127.0.0.1"])


class Stage:
    """A gateway that delivers, on a clock of its own."""

    def __init__(self, context: Context, clock: ManualClock, events: list[Event], guard: Guard = ALLOWED) -> None:
        self.context, self.clock, self.events, self.ledger = context, clock, events, context.ledger
        self.environment = dict(ENVIRONMENT)
        self.sender = Sender(guard, "1")
        self.webhooks = Webhooks(context, self.environment, self.sender)
        self._scrapes = 0

    async def add(self, receiver: Receiver, name: str = "crm", **wanted: Any) -> None:
        now = self.clock.now()
        args = (name, receiver.url, WEBHOOK_SECRET_VARIABLE, ChangeFilter(**wanted), 0, now)
        assert await self.ledger.add_webhook(*args)

    async def change(self, owner: str = "ANN", parcels: int = 1, county: str = "union") -> None:
        """Makes as many changes."""
        self._scrapes += 1
        now = self.clock.now()
        batch = [
            arrival(f"{owner}{n}-{self._scrapes}", f"P-{county}-{n}", now, owner_names=[owner]) for n in range(parcels)
        ]
        await self.ledger.store(batch, "w1", now)
        assert await self.ledger.find_changes(now, 10_000) == parcels

    async def deliver(self, seconds: float = 0.0, step: float = 10.0) -> None:
        """What is due now, and what gets due in these seconds."""
        while True:
            await self.webhooks.step()
            await self.webhooks.idle()
            if seconds <= 0:
                return
            self.clock.advance(step)
            seconds -= step

    async def findings(self) -> list[str]:
        return [finding.id for finding in webhook_findings(await self.ledger.webhooks(), self.clock.now())]

    async def webhook(self, name: str = "crm") -> Webhook:
        found = await self.ledger.webhook(name)
        assert found is not None
        return found


@asynccontextmanager
async def staged(folder: Path, database: str, clock: ManualClock, **more: Any) -> AsyncIterator[Stage]:
    events: list[Event] = []
    async with some_context(folder, database=database, clock=clock, events=events) as context:
        stage = Stage(context, clock, events, **more)
        yield stage
        await stage.sender.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """The verifier refuses messages that are older than five minutes: it reads the same clock."""
    clock = ManualClock()

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Now:
            return cls.fromtimestamp(clock.now().timestamp(), tz)

    monkeypatch.setattr(standardwebhooks.webhooks, "datetime", Now)
    return clock


@pytest.fixture
async def stage(database: str, tmp_path: Path, clock: ManualClock) -> AsyncIterator[Stage]:
    async with staged(tmp_path, database, clock) as made:
        yield made


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


one_ledger = pytest.mark.parametrize("database", ["sqlite"], indirect=True)


async def test_a_receiver_that_was_down_for_an_hour_gets_every_event_once(stage: Stage, receiver: Receiver) -> None:
    await stage.add(receiver)
    await stage.change("A", 3)
    await stage.deliver()
    assert [event["type"] for event in receiver.events] == ["parcel.new"] * 3
    first = receiver.events[0]
    assert first["data"]["parcel_id"] == "P-union-0"
    assert first["data"]["after"] == {"owner": ["A"]}
    receiver.stop()
    for minute in range(0, 60, 5):
        await stage.change(f"B{minute}", 3)
        await stage.deliver(300)
    state = await stage.webhook()
    assert (len(receiver.events), state.delivered) == (3, 3)
    assert 5 < state.failures < 25, "it rests more and more: it is not flooded"
    assert await stage.findings() == ["webhook.failing"]
    assert "refused" in state.error or "connect" in state.error
    receiver.start()
    await stage.deliver(900)
    ids = [event["id"] for event in receiver.events]
    assert (len(ids), len(set(ids)), receiver.rejected) == (39, 39, [])
    numbers = [event["data"]["number"] for event in receiver.events]
    assert sorted(numbers) == list(range(1, 40))
    state = await stage.webhook()
    assert (state.cursor, state.retries, state.failing_since, state.error) == (39, 0, None, "")
    assert kinds(stage.events) == ["WebhookFailing", "WebhookRecovered"]
    assert stage.context.counters.webhooks["crm", "delivered"] == 39


async def test_two_gateways_deliver_each_change_once(
    database: str, tmp_path: Path, clock: ManualClock, receiver: Receiver
) -> None:
    async with AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(staged(tmp_path, database, clock)) for _ in range(2)]
        await stages[0].add(receiver)
        await stages[0].change("A", 150)
        for _ in range(6):
            await asyncio.gather(*(stage.deliver() for stage in stages))
    assert len(receiver.events) == 150
    assert [event["data"]["number"] for event in receiver.events] == list(range(1, 151)), "and in order"


async def test_a_change_that_is_never_taken_is_given_up_after_a_day_and_can_be_replayed(
    stage: Stage, receiver: Receiver
) -> None:
    poison = True
    receiver._answer = lambda _, event: 422 if poison and event["data"]["number"] == 2 else 200
    await stage.add(receiver)
    await stage.change("A", 5)
    await stage.deliver(60)
    assert [event["data"]["number"] for event in receiver.events] == [1, 3, 4, 5], "it holds up no other"
    await stage.deliver(23 * 3_600, step=300)
    assert (await stage.webhook()).retries == 1
    await stage.deliver(2 * 3_600, step=300)
    state = await stage.webhook()
    (dead,) = await stage.ledger.webhook_retries(state.webhook_no, 0, 10)
    assert (state.retries, state.dead, dead.change_no, dead.dead_at is not None) == (0, 1, 2, True)
    assert "422" in dead.error
    assert 100 < dead.attempts < 300
    assert "WebhookGaveUp" in kinds(stage.events)
    assert await stage.findings() == ["webhook.gave_up"]
    poison = False
    assert await stage.ledger.replay_webhook(state.webhook_no, 1, stage.clock.now())
    assert not await stage.ledger.replay_webhook(state.webhook_no, 6, stage.clock.now()), "there is no such change"
    await stage.deliver()
    assert [event["data"]["number"] for event in receiver.events] == [1, 3, 4, 5, 2, 3, 4, 5]
    assert receiver.events[1]["id"] == receiver.events[5]["id"], "by which the receiver knows it"
    assert (await stage.webhook()).dead == 0


@one_ledger
async def test_refused_changes_delay_only_themselves_unless_all_are_refused(stage: Stage, receiver: Receiver) -> None:
    refused: Any = range(0, 1_000, 20)
    receiver._answer = lambda _, event: 401 if event["data"]["number"] in refused else 200
    await stage.add(receiver)
    await stage.change("A", 200)
    await stage.deliver()
    state = await stage.webhook()
    assert (len(receiver.events), state.cursor, state.retries) == (190, 200, 10), "no rest, and none is lost"
    await stage.change("B", 1)
    await stage.deliver(30)
    state = await stage.webhook()
    assert (len(receiver.events), state.retries, state.failures) == (191, 10, 0), "refused retries delay no new change"
    refused = range(1_000)
    requests = receiver.requests
    await stage.change("C", 200)
    await stage.deliver()
    state = await stage.webhook()
    assert (state.failures, await stage.findings()) == (101, ["webhook.failing"])
    assert receiver.requests - requests <= 120, "each new one once, then the receiver rests"
    requests = receiver.requests
    await stage.deliver(600)
    assert receiver.requests - requests < 15, "it is not flooded"
    refused = ()
    await stage.deliver(900)
    state = await stage.webhook()
    assert (state.cursor, state.retries, len(receiver.events)) == (401, 0, 401)


@one_ledger
async def test_each_gets_what_it_wants_and_a_paused_one_later(stage: Stage) -> None:
    with receiving() as every, receiving() as owners, receiving() as elsewhere:
        await stage.add(every, "every")
        await stage.add(owners, "owners", kinds=("owner.changed",), county="union", field="owner")
        await stage.add(elsewhere, "elsewhere", county="columbia")
        paused = await stage.webhook("every")
        await stage.ledger.pause_webhook(paused.webhook_no, "maintenance")
        await stage.change("A", 2)
        await stage.change("B", 1)
        await stage.deliver()
        assert [event["type"] for event in owners.events] == ["owner.changed"]
        assert (every.events, elsewhere.events) == ([], [])
        assert (await stage.webhook("elsewhere")).cursor == 3, "what it does not want is passed over"
        await stage.ledger.resume_webhook(paused.webhook_no, stage.clock.now())
        await stage.deliver()
        assert [event["type"] for event in every.events] == ["parcel.new", "parcel.new", "owner.changed"]
        assert not await stage.ledger.add_webhook("every", "u", "s", ChangeFilter(), 0, stage.clock.now())
        await stage.ledger.delete_webhook(paused.webhook_no)
        assert [one.name for one in await stage.ledger.webhooks()] == ["elsewhere", "owners"]


@one_ledger
async def test_a_slow_receiver_delays_nobody_else(stage: Stage, receiver: Receiver) -> None:
    def hang(handler: BaseHTTPRequestHandler, _: object) -> int:
        time.sleep(3)
        return 200

    with receiving(hang) as slow:
        await stage.add(slow, "slow")
        await stage.add(receiver, "quick")
        await stage.change("A", 20)
        started = time.monotonic()
        await stage.webhooks.step()
        while len(receiver.events) < 20:
            await asyncio.sleep(0.01)
        assert len(slow.events) == 0, f"after {time.monotonic() - started} s"
        stage.context.stopping.set()
        await stage.webhooks.run(stage.context.stopping)
        assert time.monotonic() - started < 30


@one_ledger
async def test_what_a_receiver_answers_is_bounded_and_never_followed(stage: Stage, receiver: Receiver) -> None:
    def redirect(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.send_response(302)
        handler.send_header("Location", receiver.url)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    def endless(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.send_response(500)
        handler.end_headers()
        while True:
            try:
                handler.wfile.write(b"x" * 65_536)
            except OSError:
                handler.close_connection = True
                return

    def busy(handler: BaseHTTPRequestHandler, _: object) -> None:
        handler.send_response(429)
        handler.send_header("Retry-After", "1800")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    cases: list[tuple[Any, str]] = [
        (redirect, "redirects are not followed"),
        (endless, "returned 500"),
        (busy, "returned 429"),
        (lambda *_: 410, "no longer accepts changes"),
    ]
    for number, (answer, expected) in enumerate(cases):
        with receiving(answer) as other:
            await stage.add(other, f"w{number}")
            await stage.change(f"N{number}")
            await stage.deliver()
            state = await stage.webhook(f"w{number}")
            assert expected in state.error
            assert (state.is_paused, other.requests) == (expected == "no longer accepts changes", 1)
            rests = (state.next_at - stage.clock.now()).total_seconds()
            assert rests == 1_800 if answer is busy else 0 < rests <= 5
            await stage.ledger.delete_webhook(state.webhook_no)
    assert receiver.requests == 0


@one_ledger
async def test_nothing_is_sent_without_its_secret_or_into_our_network(
    database: str, tmp_path: Path, clock: ManualClock, receiver: Receiver
) -> None:
    async with staged(tmp_path, database, clock, guard=Guard()) as stage:
        await stage.add(receiver)
        await stage.change()
        await stage.deliver()
        assert "private address; add it to server.allow_private" in (await stage.webhook()).error
    async with staged(tmp_path, database, clock) as stage:
        stage.environment.clear()
        clock.advance(60)
        await stage.deliver(600)
        state = await stage.webhook()
        assert (receiver.requests, state.cursor, state.retries, state.failures) == (0, 1, 1, 1)
        assert "PARCELPOST_WEBHOOK_SECRET is not set" in state.error
        stage.environment[WEBHOOK_SECRET_VARIABLE] = f"{new_secret()} {SECRET}"
        await stage.deliver(600)
        assert len(receiver.events) == 1, "of two secrets one suffices: it is being replaced"
        (key,) = read_secrets(WEBHOOK_SECRET_VARIABLE, ENVIRONMENT)
        sender = Sender(ALLOWED, "1")
        assert (await send_test(sender, state, [key], clock.now())).error == ""
        assert "not a valid host name" in (await sender.post("https://a..b/", {}, b"")).error
        await sender.close()
        assert receiver.events[-1]["type"] == "webhook.test"


def test_a_webhook_is_checked_before_it_is_stored() -> None:
    check_webhook("crm", "https://example.org/hook?x=1", f"{WEBHOOK_SECRET_VARIABLE}_CRM", Guard())
    check_webhook("crm", "http://127.0.0.1:9000/", WEBHOOK_SECRET_VARIABLE, ALLOWED)
    check_webhook("crm", "http://localhost:9000/", WEBHOOK_SECRET_VARIABLE, ALLOWED)
    check_webhook("crm", "http://crm.example.org:9000/", WEBHOOK_SECRET_VARIABLE, Guard(["crm.example.org"]))
    check_webhook("crm", "http://crm.example.org:9000/", WEBHOOK_SECRET_VARIABLE, ALLOWED)  # it may be that address
    with pytest.raises(InvalidInput, match="nosuchfield"):
        checked_field("nosuchfield")
    bad = [
        ("crm", "http://127.0.0.1:9000/", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://[::ffff:10.0.0.1]/", WEBHOOK_SECRET_VARIABLE),
        ("crm", "file:///etc/passwd", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://user:pw@example.org/", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://example.org/" + "x" * 3_000, WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://a..b/", WEBHOOK_SECRET_VARIABLE),
        ("crm", f"https://{'a' * 64}.org/", WEBHOOK_SECRET_VARIABLE),
        ("crm", "http://localhost/x", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://api.localhost./x", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://example.org:22/", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://example.org:99999/", WEBHOOK_SECRET_VARIABLE),
        ("", "https://example.org/", WEBHOOK_SECRET_VARIABLE),
        ("a/b", "https://example.org/", WEBHOOK_SECRET_VARIABLE),
        ("crm", "https://example.org/", "PARCELPOST_ADMIN_TOKENS"),
    ]
    for name, url, variable in bad:
        with pytest.raises(InvalidInput):
            check_webhook(name, url, variable, Guard())
    for text in ("", "secret", "whsec_", "whsec_QUJD", f"whsec_{'A' * 400}", "whsec_%%%"):
        with pytest.raises(InvalidInput) as caught:
            read_secrets("PARCELPOST_WEBHOOK_SECRET", {"PARCELPOST_WEBHOOK_SECRET": text})
        assert len(text) < 7 or text not in str(caught.value)


async def test_a_gateway_that_is_killed_loses_no_change_and_one_that_is_stopped_ends_at_once(tmp_path: Path) -> None:
    """Real processes: killed between two deliveries, and stopped while a receiver does not answer."""
    database, clock = str(tmp_path / "gateway.db"), SystemClock()
    hangs = threading.Event()

    def slowly(_: BaseHTTPRequestHandler, event: dict[str, Any]) -> int:
        time.sleep(30 if hangs.is_set() else 0.02)
        return 200

    @contextmanager
    def gateway() -> Iterator[subprocess.Popen[bytes]]:
        options = {"database": database, "raw": tmp_path / "raw", "port": 0, "allow_private": "127.0.0.1"}
        given = [part for name, value in options.items() for part in ("--set", f"server.{name}={value}")]
        with subprocess.Popen(
            [sys.executable, "-m", "parcelpost", "gateway", "serve", *given],
            env={**os.environ, **ENVIRONMENT},
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    async def store(ledger: Ledger, name: str) -> None:
        now = clock.now()
        await ledger.store([arrival(f"{name}{n}", f"P-{n}", now, owner_names=[name]) for n in range(60)], "w1", now)

    with receiving(slowly) as receiver:
        async with open_ledger(database, 3, clock) as ledger:
            args = ("crm", receiver.url, WEBHOOK_SECRET_VARIABLE, ChangeFilter(), 0, clock.now())
            assert await ledger.add_webhook(*args)
            await store(ledger, "ANN")
            with gateway():
                while len(receiver.events) < 10:
                    await asyncio.sleep(0.01)
            webhook = await ledger.webhook("crm")
            assert webhook is not None and webhook.leased_by is not None, "it was killed while it delivered"
            await ledger.release_webhook(webhook.webhook_no, webhook.leased_by)  # another would wait for a minute
            with gateway() as process:
                while len({event["id"] for event in receiver.events}) < 60:
                    await asyncio.sleep(0.01)
                hangs.set()
                requests = receiver.requests
                await store(ledger, "BO")
                while receiver.requests == requests:
                    await asyncio.sleep(0.01)
                process.send_signal(signal.SIGTERM)
                stopped = time.monotonic()
                assert await asyncio.to_thread(process.wait, 60) == 0
                assert time.monotonic() - stopped < 15
            webhook = await ledger.webhook("crm")
            assert webhook is not None
            assert (webhook.leased_by, webhook.cursor, webhook.last) == (None, 60, 120), "what hung is sent again"
