"""The client against every trap: each ends in the error that the contract's table names, in time and in few words."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from parcelpost.errors import Refused, TooLarge, Unauthorized, Unavailable, UpstreamError
from parcelpost.protocol.payloads import MetricsSample
from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.gateway import GatewayClient
from tests import traps
from tests.hostile import HostileGateway, Trap, a_task
from tests.upstream.factories import NOW, PAGE, a_beat, an_end, an_entry

Call = Callable[[GatewayClient, Path], Awaitable[object]]

CALLS: dict[str, Call] = {
    "work": lambda client, _: client.get_work(10, ["echo"]),
    "results": lambda client, _: client.submit_results([an_entry("t1"), an_entry("t2")]),
    "raw-files": lambda client, path: client.upload_raw_file(an_entry(page=True), path),
    "fail": lambda client, _: client.report_end(an_end("t1")),
    "heartbeat": lambda client, _: client.heartbeat(a_beat()),
    "metrics": lambda client, _: client.submit_metrics([MetricsSample(at=NOW, values={})]),
    "selectors": lambda client, _: client.get_selectors("echo"),
}
REQUIRED = ["work", "results", "raw-files", "fail", "heartbeat"]
OPTIONAL = ["metrics", "selectors"]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "p.html.gz"
    path.write_bytes(gzip.compress(PAGE))
    return path


async def fails(gateway: HostileGateway, client: GatewayClient, page: Path, name: str, trap: Trap) -> UpstreamError:
    """The error of a call that meets the trap. The next call meets none, and works."""
    gateway.play(name, trap)
    with pytest.raises(UpstreamError) as caught:
        await CALLS[name](client, page)
    await CALLS[name](client, page)
    text = str(caught.value)
    assert text.isprintable()
    assert 10 < len(text) < 700
    assert gateway.token not in text
    return caught.value


def impatient(gateway: HostileGateway, **changes: float) -> GatewaySettings:
    return GatewaySettings(url=gateway.url, **{"timeout_seconds": 1.0, **changes})  # type: ignore[arg-type]


NOT_NOW: dict[str, Trap] = {
    "408": traps.status(408),
    "425": traps.status(425),
    "429": traps.status(429),
    "500": traps.status(500),
    "503": traps.status(503),
    "599": traps.status(599),
    "cut": traps.cut(),
    "reset": traps.reset(),
    "html": traps.html(),
    "html error": traps.html(502),
    "empty": traps.answer(b""),
    "null": traps.answer(None),
    "list": traps.answer([]),
    "number": traps.answer(7),
    "half": traps.answer(b'{"tasks": [{"task_id"'),
    "not text": traps.answer(b"\xff\xfe\x00"),
    "other encoding": traps.answer(b"abc", headers={"Content-Encoding": "br"}),
    "broken gzip": traps.answer(b"abc", headers={"Content-Encoding": "gzip"}),
}


async def test_not_now(subtests: pytest.Subtests, gateway: HostileGateway, client: GatewayClient, page: Path) -> None:
    for name in CALLS:
        for kind, trap in NOT_NOW.items():
            with subtests.test(name=name, kind=kind):
                error = await fails(gateway, client, page, name, trap)
                assert type(error) is Unavailable
                assert error.retry_after == 0.0
                assert error.responded == ("returned" in str(error))


async def test_a_status_that_an_operator_must_act_on(
    subtests: pytest.Subtests, gateway: HostileGateway, client: GatewayClient, page: Path
) -> None:
    for name in CALLS:
        for code in [401, 403, 402, 407, 409, 418, 451]:
            with subtests.test(name=name, code=code):
                assert type(await fails(gateway, client, page, name, traps.status(code))) is Unauthorized


async def test_a_required_path_that_is_missing(
    subtests: pytest.Subtests, gateway: HostileGateway, client: GatewayClient, page: Path
) -> None:
    for name in REQUIRED:
        for code in [404, 405]:
            with subtests.test(name=name, code=code):
                assert type(await fails(gateway, client, page, name, traps.status(code))) is Unauthorized


async def test_a_redirect_is_not_followed(
    subtests: pytest.Subtests, gateway: HostileGateway, client: GatewayClient, page: Path
) -> None:
    for name in CALLS:
        for to in ["http://elsewhere.invalid/x", "https://[bad", "", "javascript:alert(1)", "/internal/x"]:
            with subtests.test(name=name, to=to):
                before = len(gateway.requests)
                error = await fails(gateway, client, page, name, traps.redirect(to))
                assert type(error) is Unauthorized
                assert to in str(error)
                assert len(gateway.requests) == before + 2


@pytest.mark.parametrize("code", [400, 422])
async def test_a_refused_batch(gateway: HostileGateway, client: GatewayClient, page: Path, code: int) -> None:
    for name in ("results", "raw-files", "fail", "metrics"):
        assert type(await fails(gateway, client, page, name, traps.status(code))) is Refused
    for name in ("work", "heartbeat", "selectors"):
        assert type(await fails(gateway, client, page, name, traps.status(code))) is Unauthorized


async def test_a_batch_that_is_too_large(gateway: HostileGateway, client: GatewayClient, page: Path) -> None:
    for name in ("results", "raw-files", "metrics"):
        assert type(await fails(gateway, client, page, name, traps.too_large(10))) is TooLarge
    assert type(await fails(gateway, client, page, "fail", traps.too_large(10))) is Refused


async def test_one_bad_entry_spoils_only_its_own_batch(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.play("results", traps.refusing(lambda entry: entry["task_id"] == "bad"), times=None)
    with pytest.raises(Refused, match="invalid request body"):
        await client.submit_results([an_entry("good"), an_entry("bad")])
    assert (await client.submit_results([an_entry("good")])).stored == 1


async def test_partial_answers_are_told_as_they_are(gateway: HostileGateway, client: GatewayClient) -> None:
    entries = [an_entry(f"t{number}") for number in range(30)]
    gateway.play("results", traps.failing())
    nothing = await client.submit_results(entries)
    assert (nothing.stored, nothing.failed, len(nothing.errors)) == (0, 11, 11)
    gateway.play("results", traps.failing(lambda entry: int(entry["task_id"][1:]) >= 10))
    some = await client.submit_results(entries)
    assert (some.stored, some.failed, len(gateway.submissions)) == (10, 11, 10), "nine were dropped without a word"


async def test_how_long_it_wants_to_be_left_alone(
    subtests: pytest.Subtests, gateway: HostileGateway, client: GatewayClient, page: Path
) -> None:
    for code in [429, 503]:
        for wish, seconds in [
            ({"seconds": 120}, 120.0),
            ({"date_in": timedelta(seconds=90), "now": NOW - timedelta(days=3)}, 90.0),
            ({"reset": 60}, 60.0),
            ({"reset": int(NOW.timestamp()) + 60}, 60.0),
            ({"body_seconds": 45.5}, 45.5),
            ({"seconds": 10, "body_seconds": 45.5, "reset": 50}, 50.0),
            ({"seconds": 10**9}, 3600.0),
        ]:
            with subtests.test(code=code, wish=wish, seconds=seconds):
                trap = traps.slow_down(**wish, code=code)  # type: ignore[arg-type]
                error = await fails(gateway, client, page, "results", trap)
                assert isinstance(error, Unavailable)
                assert error.retry_after == seconds


async def test_the_whole_call_has_one_deadline(subtests: pytest.Subtests, gateway: HostileGateway, page: Path) -> None:
    settings = impatient(gateway, timeout_seconds=0.1)
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        for name, call in CALLS.items():
            for kind, trap in {"silence": traps.silence(), "drip": traps.drip()}.items():
                with subtests.test(name=name, kind=kind):
                    gateway.behave()
                    gateway.play(name, trap, times=None)  # also for what an earlier call sent and did not wait for
                    with pytest.raises(Unavailable, match=r"no complete response within 0\.1 s"):
                        await call(client, page)


async def test_a_call_that_took_too_long_harms_no_other(gateway: HostileGateway, page: Path) -> None:
    async with GatewayClient.open(impatient(gateway), gateway.token, "w-1", lambda: NOW) as client:
        await fails(gateway, client, page, "results", traps.silence())


async def test_a_call_may_be_cancelled(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.play("work", traps.silence(), times=3)
    calls = [asyncio.create_task(client.get_work(1, ["echo"])) for _ in range(3)]
    await gateway.until(lambda: gateway.count("work") == 3)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert all(call.cancelled() for call in calls)
    assert (await client.get_work(1, ["echo"])).retry_after == 30.0


async def test_many_calls_at_a_time(gateway: HostileGateway, client: GatewayClient, page: Path) -> None:
    entries = [an_entry(f"t{number}", page=True) for number in range(30)]
    await asyncio.gather(*(client.upload_raw_file(entry, page) for entry in entries))
    await asyncio.gather(*(client.submit_results([entry]) for entry in entries))
    assert (len(gateway.raw_files), len(gateway.submissions), gateway.named_too_early) == (30, 30, [])


async def test_a_gigabyte_is_cut_early(gateway: HostileGateway, page: Path) -> None:
    sent: list[int] = []
    settings = impatient(gateway, timeout_seconds=30.0, max_response_bytes=100_000)
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        error = await fails(gateway, client, page, "work", traps.endless(sent=sent))
        assert "longer than 100,000 bytes" in str(error)
        await fails(gateway, client, page, "work", traps.endless(code=500, sent=sent))
    await gateway.stop()
    assert len(sent) == 2
    assert max(sent) < 64 * 1024**2, "what the sockets buffer"


async def test_what_an_answer_unpacks_to_counts(gateway: HostileGateway, page: Path) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = packer.compress(b'{"tasks": [' + b" " * 10_000_000) + packer.flush()
    trap = traps.answer(bomb, headers={"Content-Encoding": "gzip"})
    settings = impatient(gateway, timeout_seconds=30.0, max_response_bytes=100_000)
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        error = await fails(gateway, client, page, "work", trap)
        assert "longer than 100,000 bytes" in str(error)


async def test_what_follows_the_end_of_a_packed_answer_is_not_kept(gateway: HostileGateway, page: Path) -> None:
    trap = traps.answer(gzip.compress(b"{}") + b"x" * 10_000_000, headers={"Content-Encoding": "gzip"})
    settings = impatient(gateway, timeout_seconds=60.0, max_response_bytes=100_000)
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        error = await fails(gateway, client, page, "work", trap)
        assert "longer than 100,000 bytes" in str(error)


async def test_a_response_with_too_many_values_is_not_read(gateway: HostileGateway, page: Path) -> None:
    """Each of these would take hundreds of megabytes."""
    settings = impatient(gateway, timeout_seconds=60.0, max_response_bytes=2**24)
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        for name, start, piece, end in (
            ("work", b'{"tasks":[', b"0,", b"0]}"),
            ("results", b'{"inserted":1,"updated":0,"failed":0,"errors":[', b"[],", b"[]]}"),
            ("heartbeat", b'{"acknowledged":true,"commands":[', b'"",', b'""]}'),
        ):
            body = start + piece * ((2**24 - 100) // len(piece)) + end
            tracemalloc.start()
            try:
                error = await fails(gateway, client, page, name, traps.answer(body))
                _, most = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert "a response with too many values" in str(error)
            assert most < 8 * 2**24, "the gateway's own copies, too"


async def test_an_answer_packed_unasked_is_read(gateway: HostileGateway, client: GatewayClient) -> None:
    body = gzip.compress(b'{"tasks": null, "retry_after": 7}')
    gateway.play("work", traps.answer(body, headers={"Content-Encoding": "gzip"}))
    assert (await client.get_work(1, ["echo"])).retry_after == 7.0


@pytest.mark.parametrize("make", [traps.cut, traps.reset, traps.drip])
async def test_a_refusal_counts_even_where_its_words_are_cut_off(
    gateway: HostileGateway, page: Path, make: Callable[..., Trap]
) -> None:
    async with GatewayClient.open(impatient(gateway), gateway.token, "w-1", lambda: NOW) as client:
        assert type(await fails(gateway, client, page, "results", make(code=401))) is Unauthorized


async def test_a_gateway_that_is_away_and_comes_back(gateway: HostileGateway, client: GatewayClient) -> None:
    await client.get_work(1, ["echo"])
    await gateway.stop()
    with pytest.raises(Unavailable, match="ConnectError"):
        await client.get_work(1, ["echo"])
    await gateway.start()
    assert (await client.get_work(1, ["echo"])).retry_after == 30.0


async def test_a_lost_answer_does_not_undo_the_work(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.play("results", traps.done_first(traps.reset()))
    with pytest.raises(Unavailable):
        await client.submit_results([an_entry("t1")])
    await client.submit_results([an_entry("t1")])
    assert len(gateway.submissions["t1"]) == 2
    assert len(gateway.results) == 1


async def test_a_raw_file_may_be_refused_with_a_200(gateway: HostileGateway, client: GatewayClient, page: Path) -> None:
    error = await fails(gateway, client, page, "raw-files", traps.raw_error("the disk is full"))
    assert type(error) is Unavailable
    assert "the disk is full" in str(error)


async def test_bad_tasks_are_told_apart_from_good_ones(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.offer(a_task("t1"))
    gateway.play("work", traps.absurd_tasks())
    work = await client.get_work(10, ["echo"])
    assert [task.task_id for task in work.tasks] == ["t1"]
    assert len(work.bad) == len(traps.ABSURD_TASKS)


async def test_a_task_may_come_twice(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.offer(a_task("t1"))
    gateway.play("work", traps.doubled_tasks())
    assert [task.task_id for task in (await client.get_work(10, ["echo"])).tasks] == ["t1", "t1"]


@pytest.mark.parametrize("code", [200, 401, 503])
async def test_a_token_that_the_gateway_repeats_is_not_told_on(
    gateway: HostileGateway, client: GatewayClient, page: Path, code: int
) -> None:
    text = f"{'x' * 280} your token {gateway.token} is bad {gateway.token}"
    error = await fails(gateway, client, page, "work", traps.status(code, text))
    assert "a-token" not in str(error)


async def test_long_and_odd_words_are_shortened_to_one_line(
    gateway: HostileGateway, client: GatewayClient, page: Path
) -> None:
    error = await fails(gateway, client, page, "work", traps.answer(b"a\r\n\x1b[2J" + b"b" * 100_000, code=503))
    assert str(error).startswith("GET /internal/work returned 503: a ?[2Jbbb")


async def test_cookies_are_not_kept(gateway: HostileGateway, client: GatewayClient) -> None:
    gateway.play("heartbeat", traps.answer({"acknowledged": True}, headers={"Set-Cookie": "a=b"}))
    await client.heartbeat(a_beat())
    await client.heartbeat(a_beat())
    assert "cookie" not in gateway.requests[-1].headers


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("raw-files", {"status": "ok", "path": "x", "sha256": "0" * 64}),
        ("fail", {"status": "reported", "success": True, "task_id": "t2"}),
    ],
)
async def test_an_answer_to_another_request_confirms_nothing(
    gateway: HostileGateway, client: GatewayClient, page: Path, name: str, content: dict[str, object]
) -> None:
    """As a proxy that doubles answers gives: the second one is there when the next request is sent."""
    error = await fails(gateway, client, page, name, traps.answer(content))
    assert isinstance(error, Unavailable)
    assert "it answers another request" in str(error)
