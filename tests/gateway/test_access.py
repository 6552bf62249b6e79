"""Who may ask for what: tokens, and what is open where there are none."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidSettings
from parcelpost.events import AccessDenied, Event, TokensNotRead
from parcelpost.gateway.auth import TokenBook, check_tokens, read_tokens
from parcelpost.private_addresses import is_loopback
from parcelpost.settings.schema import ServerSettings
from tests.gateway.stage import WORKER, a_client, a_result, a_task, add_tasks, kinds, some_context

LONG = "a token of many characters".replace(" ", "-")
WORK = "/internal/work?platforms=echo"


async def test_on_loopback_without_tokens_this_machine_is_served(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context:
        for host in ("127.0.0.1:8700", "localhost:8700", "[::1]:8700"):
            async with a_client(context, host=host) as client:
                assert (await client.get(WORK)).status_code == 200
                assert (await client.get("/metrics")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example:8700"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "[bad"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "203.0.113.9"},
    ],
)
async def test_without_tokens_other_sites_and_proxies_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    async with some_context(tmp_path) as context, a_client(context, headers={**WORKER, **headers}) as client:
        for path in (WORK, "/metrics"):
            assert (await client.get(path)).status_code == 403


async def test_without_tokens_other_machines_are_refused(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context, client="203.0.113.9") as client:
        assert (await client.get(WORK)).status_code == 403


async def test_each_kind_of_token_opens_its_own_door(tmp_path: Path) -> None:
    environment = {
        "PARCELPOST_WORKER_TOKENS": "w-one, w-two",
        "PARCELPOST_READ_TOKENS": "r-one",
        "PARCELPOST_ADMIN_TOKENS": "a-one",
    }

    async def statuses(client: httpx2.AsyncClient, headers: dict[str, str]) -> tuple[int, int]:
        work, metrics = await client.get(WORK, headers=headers), await client.get("/metrics", headers=headers)
        return work.status_code, metrics.status_code

    async with (
        some_context(tmp_path, environment, host="0.0.0.0") as context,
        a_client(context, host="gateway.example", client="203.0.113.9") as client,
    ):
        assert await statuses(client, {}) == (401, 401)
        for token in ("w-one", "w-two"):
            assert await statuses(client, {"X-Worker-Token": token}) == (200, 401)
        for token in ("r-one", "a-one"):
            assert await statuses(client, {"Authorization": f"Bearer {token}"}) == (401, 200)
        for token, role in {"r-one": "reader", "a-one": "admin"}.items():
            answer = await client.get("/v1/access", headers={"Authorization": f"Bearer {token}"})
            assert answer.json() == {"role": role}
        assert await statuses(client, {"Authorization": "Bearer w-one", "X-Worker-Token": "a-one"}) == (401, 401)
        answer = await client.get("/metrics")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_where_any_token_is_set_every_door_needs_one(tmp_path: Path) -> None:
    for kind in ("WORKER", "READ", "ADMIN"):
        async with some_context(tmp_path, {f"PARCELPOST_{kind}_TOKENS": "one"}) as context, a_client(context) as client:
            answers = [
                await client.get(WORK),
                await client.get("/v1/overview"),
                await client.get("/metrics"),
                await client.post("/v1/tasks", content=b"[]"),
            ]
            assert [answer.status_code for answer in answers] == [401] * 4, kind
            said = answers[0].json()["error"]["message"]
            assert ("this gateway has no worker tokens" in said) is (kind != "WORKER")


async def test_the_api_document_says_where_no_token_is_needed(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context) as client:
        schemes = (await client.get("/openapi.json")).json()["components"]["securitySchemes"]
    told = {name: scheme["description"].partition("; ")[2] for name, scheme in schemes.items()}
    no_tokens = "not needed on a loopback address where no tokens are configured"
    read = f"{no_tokens}, or with server.open_read"
    assert told == {"workerToken": no_tokens, "readToken": read, "adminToken": no_tokens}


async def test_reading_can_be_left_open(tmp_path: Path) -> None:
    tokens = {"PARCELPOST_WORKER_TOKENS": "w-one", "PARCELPOST_ADMIN_TOKENS": "a-one"}
    async with some_context(tmp_path, tokens, open_read=True) as context:
        async with a_client(context) as client:
            assert (await client.get("/v1/overview")).status_code == 200
            assert (await client.get(WORK)).status_code == 401
            assert (await client.post("/v1/tasks", content=b"[]")).status_code == 401
        async with a_client(context, headers={"X-Forwarded-For": "203.0.113.9"}) as client:
            assert (await client.get("/v1/overview")).status_code == 403
    async with (
        some_context(tmp_path, tokens, host="0.0.0.0", open_read=True) as context,
        a_client(context, host="gateway.example", client="203.0.113.9") as client,
    ):
        assert (await client.get("/v1/overview")).status_code == 200
        assert (await client.post("/v1/tasks", content=b"[]")).status_code == 401


# A worker's id belongs to a token

ANN, BOB = {"X-Worker-Token": "token-of-ann"}, {"X-Worker-Token": "token-of-bob"}
NAMED = {"PARCELPOST_WORKER_TOKENS": "ann: token-of-ann, bob: token-of-bob"}


async def test_no_worker_speaks_for_another_tokens_worker(tmp_path: Path) -> None:
    async with some_context(tmp_path, NAMED) as context, a_client(context, headers={"X-Worker-ID": "w-1"}) as client:
        await add_tasks(context, a_task())
        assert len((await client.get(WORK, headers=ANN)).json()["tasks"]) == 1
        for path, body in (
            ("tasks/t1/fail", {"error": "no", "permanent": True}),
            ("tasks/t1/complete", {}),
            ("heartbeat", {"queue": {}}),
            ("results", [a_result()]),
            ("signals", []),
            ("metrics", []),
        ):
            answer = await client.post(f"/internal/{path}", json=body, headers=BOB)
            assert answer.status_code == 403, path
            said = answer.json()["error"]["message"]
            assert "worker ID w-1 belongs to another token; list the new token under the same name" in said
        row = await context.ledger.task("t1")
        assert row is not None and row.state == "leased"
        failed = await client.post("/internal/tasks/t1/fail", headers={**BOB, "X-Worker-ID": "w-2"})
        assert failed.json()["success"] is False
        assert (await client.post("/internal/tasks/t1/fail", headers=ANN)).json()["success"] is True


async def test_workers_that_share_a_token_and_a_new_token_of_the_same_name_are_let_in(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens", ManualClock()
    _write(file, "ann: old-token\nann: new-token\nbob: token-of-bob\n")
    async with (
        some_context(tmp_path, clock=clock, worker_tokens_file=str(file)) as context,
        a_client(context) as client,
    ):
        for token in ("old-token", "new-token"):
            for worker_id in ("w-1", "w-2"):
                headers = {"X-Worker-Token": token, "X-Worker-ID": worker_id}
                assert (await client.get(WORK, headers=headers)).status_code == 200
        assert (await client.get(WORK, headers=BOB)).status_code == 403
        _write(file, "bob: token-of-bob\n")  # ann is gone, and her workers' ids are free
        clock.advance(1)
        assert (await client.get(WORK, headers=BOB)).status_code == 200


async def test_an_admin_frees_a_worker_id_for_the_next_token(tmp_path: Path) -> None:
    tokens = {**NAMED, "PARCELPOST_ADMIN_TOKENS": "ruling"}
    async with some_context(tmp_path, tokens) as context, a_client(context, headers={"X-Worker-ID": "w-1"}) as client:
        assert (await client.get(WORK, headers=ANN)).status_code == 200
        assert "'parcelpost gateway release w-1'" in (await client.get(WORK, headers=BOB)).text
        freed = [
            await client.post(
                "/v1/workers/release", json={"worker_id": worker_id}, headers={"Authorization": "Bearer ruling"}
            )
            for worker_id in ("w-1", "w-1", "w\0")
        ]
        assert [answer.status_code for answer in freed] == [200, 404, 422]
        assert freed[0].json() == {"worker_id": "w-1", "token": "ann"}
        assert (await client.get(WORK, headers=BOB)).status_code == 200
        assert (await client.get(WORK, headers=ANN)).status_code == 403


async def test_tokens_without_names_may_use_each_others_ids_and_no_named_ones(tmp_path: Path) -> None:
    environment = {"PARCELPOST_WORKER_TOKENS": "plain-one, plain-two, ann: token-of-ann"}
    async with some_context(tmp_path, environment) as context, a_client(context) as client:
        for token in ("plain-one", "plain-two"):
            assert (await client.get(WORK, headers={"X-Worker-Token": token})).status_code == 200
        assert (await client.get(WORK, headers=ANN)).status_code == 403
        assert (await client.get(WORK, headers={**ANN, "X-Worker-ID": "w-ann"})).status_code == 200
        headers = {"X-Worker-Token": "plain-one", "X-Worker-ID": "w-ann"}
        assert (await client.get(WORK, headers=headers)).status_code == 403


async def test_a_token_cannot_invent_workers_without_end(tmp_path: Path) -> None:
    async with some_context(tmp_path, NAMED, workers_per_token=3) as context, a_client(context) as client:
        beats = [
            await client.post("/internal/heartbeat", json={}, headers={**ANN, "X-Worker-ID": f"w-{number}"})
            for number in range(5)
        ]
        assert [answer.status_code for answer in beats] == [200, 200, 200, 403, 403]
        assert "server.workers_per_token" in beats[-1].json()["error"]["message"]
        assert (
            await client.post("/internal/heartbeat", json={}, headers=BOB | {"X-Worker-ID": "b"})
        ).status_code == 200
        assert len(await context.ledger.workers()) == 4


@pytest.mark.parametrize("worker_id", ["", "a b", "x" * 201, "tab\there"])
async def test_an_id_that_is_none_is_refused(tmp_path: Path, worker_id: str) -> None:
    async with some_context(tmp_path) as context, a_client(context, headers={"X-Worker-ID": worker_id}) as client:
        assert (await client.get(WORK)).status_code == 400


async def test_a_worker_without_an_id_is_unknown(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context, a_client(context, headers={}) as client:
        await client.post("/internal/heartbeat", json={})
        (worker,) = await context.ledger.workers()
        assert worker.heartbeat.worker_id == "unknown"


async def test_denials_are_told_once_a_second_without_the_token(tmp_path: Path) -> None:
    events: list[Event] = []
    clock = ManualClock()
    async with (
        some_context(tmp_path, {"PARCELPOST_WORKER_TOKENS": "right"}, clock, events) as context,
        a_client(context, headers={"X-Worker-Token": "guess-1234"}) as client,
    ):
        for _ in range(3):
            assert (await client.get(WORK)).status_code == 401
        clock.advance(1)
        await client.get(WORK)
    denied = [event for event in events if isinstance(event, AccessDenied)]
    assert [event.more for event in denied] == [0, 2]
    assert "guess-1234" not in str(events)


# Files of tokens


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file, clock, events = tmp_path / "tokens", ManualClock(), list[Event]()
    _write(file, "# of the fleet\nhartford: secret-1\n\nsecret-2\n")
    book = TokenBook("worker", "", str(file), clock, events.append)
    assert (book.name_of("secret-1"), book.name_of("secret-2"), book.name_of("x")) == ("hartford", "line 4", None)
    _write(file, "hartford: secret-3\n")
    assert book.name_of("secret-1") == "hartford"  # looked at within a second
    clock.advance(1)
    assert (book.name_of("secret-1"), book.name_of("secret-3")) == (None, "hartford")
    assert kinds(events) == ["TokensRead", "TokensRead"]
    assert "secret" not in str(events)


def test_a_name_needs_no_space_before_its_token(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    _write(file, "hartford:secret-1\ntolland: secret-2\n")
    book = TokenBook("worker", "", str(file), ManualClock(), lambda _: None)
    assert [book.name_of(token) for token in ("secret-1", "secret-2")] == ["hartford", "tolland"]
    assert book.name_of("hartford:secret-1") is None


def test_an_emptied_file_revokes_all(tmp_path: Path) -> None:
    file, clock = tmp_path / "tokens", ManualClock()
    _write(file, "secret-1\n")
    book = TokenBook("worker", "", str(file), clock, lambda _: None)
    _write(file, "# nobody\n")
    clock.advance(1)
    assert book.name_of("secret-1") is None
    assert book.configured


def test_a_file_that_cannot_be_understood_any_more_leaves_the_old_tokens_good(tmp_path: Path) -> None:
    file, clock, events = tmp_path / "tokens", ManualClock(), list[Event]()
    _write(file, "secret-1\n")
    book = TokenBook("worker", "", str(file), clock, events.append)
    for text in ("two words here\n", ""):
        if text:
            _write(file, text)
        else:
            file.unlink()
        clock.advance(1)
        assert book.name_of("secret-1") == "line 1"
        clock.advance(1)
        assert book.name_of("secret-1") == "line 1"
        assert isinstance(events[-1], TokensNotRead)
    assert len(events) == 3
    _write(file, "secret-2\n")
    clock.advance(1)
    assert book.name_of("secret-2") == "line 1"


@pytest.mark.parametrize("text", ["two words", "sp\u00e4t", "x" * 9_000, "one:two:three", "name:"])
def test_a_file_without_sense_is_refused_at_the_start_and_not_shown(tmp_path: Path, text: str) -> None:
    _write(tmp_path / "tokens", text)
    with pytest.raises(InvalidSettings) as refused:
        TokenBook("admin", "", str(tmp_path / "tokens"), ManualClock(), lambda _: None)
    assert text not in str(refused.value)


# Where it may listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3", "[::1]"])
def test_loopback_needs_no_tokens(host: str) -> None:
    settings = ServerSettings(host=host)
    check_tokens(settings, read_tokens(settings, {}, ManualClock(), lambda _: None))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "gateway.example"])
def test_elsewhere_tokens_of_workers_and_admins_are_needed(host: str) -> None:
    assert not is_loopback(host)
    settings = ServerSettings(host=host)
    both = {"PARCELPOST_WORKER_TOKENS": LONG, "PARCELPOST_ADMIN_TOKENS": f"{LONG}er"}
    for missing in both:
        some = {name: text for name, text in both.items() if name != missing}
        with pytest.raises(InvalidSettings) as refused:
            check_tokens(settings, read_tokens(settings, some, ManualClock(), lambda _: None))
        assert missing in refused.value.hint
        told = "admins" if "ADMIN" in missing else "workers"
        assert str(refused.value).endswith(f"no tokens are set for {told}")
    check_tokens(settings, read_tokens(settings, both, ManualClock(), lambda _: None))


@pytest.mark.parametrize("kind", ["WORKER", "READ", "ADMIN"])
def test_elsewhere_a_token_that_can_be_guessed_is_refused(kind: str) -> None:
    given = {f"PARCELPOST_{one}_TOKENS": LONG + one for one in ("WORKER", "READ", "ADMIN")}
    given[f"PARCELPOST_{kind}_TOKENS"] += ", abc"
    for host in ("127.0.0.1", "0.0.0.0"):
        settings = ServerSettings(host=host)
        tokens = read_tokens(settings, given, ManualClock(), lambda _: None)
        if is_loopback(host):
            check_tokens(settings, tokens)
            continue
        with pytest.raises(InvalidSettings, match="is too short") as refused:
            check_tokens(settings, tokens)
        assert "parcelpost gateway token" in refused.value.hint
        assert "abc" not in f"{refused.value} {refused.value.hint}"


def test_one_token_for_two_doors_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "admins"
    file.write_text(f"ann: {LONG}\n")
    settings = ServerSettings(admin_tokens_file=str(file))
    tokens = read_tokens(settings, {"PARCELPOST_WORKER_TOKENS": LONG}, ManualClock(), lambda _: None)
    with pytest.raises(InvalidSettings, match="workers and admins share a token") as refused:
        check_tokens(settings, tokens)
    assert LONG not in str(refused.value)
