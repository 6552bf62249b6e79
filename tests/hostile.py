"""A gateway in the tests' own process: a real HTTP server that keeps the contract, and breaks it when told to.

    async with HostileGateway() as gateway:
        gateway.offer(a_task("t1"), a_task("t2"))
        gateway.play("results", traps.status(503), times=2)       # tests/traps.py holds the traps
        ...                                                       # a worker at gateway.url with gateway.token
        assert gateway.submissions.keys() == {"t1", "t2"}

Unless told otherwise it does what the public Go gateway does: one task per platform and priority a call, a null instead
of an empty list, a whole batch refused for one entry without a zone, the rest of a batch dropped after ten failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

from parcelpost.files_and_sockets import tcp_server
from tests.hostile_http import Reply, Request, batch_problem, form, read_request

__all__ = [
    "Entry",
    "HostileGateway",
    "Json",
    "Play",
    "Reply",
    "Request",
    "StoredFile",
    "Trap",
    "a_task",
    "batch_problem",
]

Json = Any
Entry = dict[str, Any]
"""A task, a result or another object, as it stands on the wire."""
Key = tuple[str, str, str, str]
"""parcel_id, platform, state, county: what results are upserted on."""

MOST_ERRORS = 10
"""A batch with more failed entries is dropped from there on."""


Play = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Does as it likes with the connection, which is closed after it."""
Trap = Callable[["HostileGateway", Request], Reply | Play | None]
"""What happens instead of the right answer; None: the right answer, this time."""


class StoredFile(NamedTuple):
    name: str
    body: bytes
    metadata: Entry
    sha256: str
    """Of the page, unpacked."""


class _Staged(NamedTuple):
    name: str
    trap: Trap
    left: list[int | None]


class HostileGateway:
    """What came in is in its attributes, which a test may read and change at any time.

    The only waiting is `until`; a test that must wait for something uses that or a small timeout on its own side.
    """

    def __init__(
        self,
        *,
        token: str = "a-token-for-tests",
        base_path: str = "/internal",
        many_at_once: bool = False,
        receipts: bool = False,
        extras: bool = True,
        accepts_gzip: bool = False,
    ) -> None:
        self.token = token
        self.base_path = base_path
        self.many_at_once = many_at_once
        """Up to `capacity` tasks a call, instead of one per platform and priority."""
        self.receipts = receipts
        self.extras = extras
        """Whether it has signals, selectors and metrics; without them they are 404."""
        self.accepts_gzip = accepts_gzip
        """Says so in every answer; otherwise a compressed body is 415."""
        self.nothing_for: float = 30
        """Seconds: when to ask again, it says to who finds the queue empty."""
        self.queue: list[Json] = []
        """Tasks nobody has asked for yet."""
        self.handed_out: list[str] = []
        """Task ids, in order."""
        self.results: dict[Key, Entry] = {}
        """The last one written."""
        self.submissions: dict[str, list[Entry]] = {}
        """Every result that was stored, by task id, in the order it came."""
        self.raw_files: dict[str, StoredFile] = {}
        """By base name, as the Go one keeps them."""
        self.named_too_early: list[str] = []
        """Task ids of results that named a raw file before it was here (I6)."""
        self.completed: list[str] = []
        self.failed: list[tuple[str, Json]] = []
        """Task id and the body sent with it, None without one."""
        self.beats: list[Entry] = []
        self.commands: list[str] = []
        """Given out with the next heartbeat's answer."""
        self.signals: list[Entry] = []
        self.metrics: list[Entry] = []
        self.selectors: list[Json] = []
        self.requests: list[Request] = []
        """Whatever came in, trapped or not."""
        self.port = 0
        self._staged: list[_Staged] = []
        self._news = asyncio.Condition()
        self._serving: contextlib.AsyncExitStack | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_up(self) -> bool:
        return self._serving is not None

    def offer(self, *tasks: Json) -> None:
        """Puts tasks (`a_task`) at the end of the queue, as they will stand on the wire. Absurd ones come by a trap."""
        self.queue.extend(tasks)

    def play(self, name: str, trap: Trap, *, times: int | None = 1) -> None:
        """Plays the trap for the next `times` requests of that name ("*": any); None: until `behave`.

        Traps of one name take their turns in the order they were set. A request a trap lets pass does not count.
        """
        self._staged.append(_Staged(name, trap, [times]))

    def behave(self) -> None:
        """No more traps."""
        self._staged.clear()

    def count(self, name: str) -> int:
        """How many requests of that name came in."""
        return sum(request.name == name for request in self.requests)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Waits until that holds; looks after every request."""
        async with self._news:
            await self._news.wait_for(holds)

    async def start(self) -> None:
        """Opens the port; after `stop` the same one again."""
        stack = contextlib.AsyncExitStack()
        self.port = await stack.enter_async_context(tcp_server(self._serve, "127.0.0.1", self.port))
        self._serving = stack

    async def stop(self) -> None:
        """From now on connections are refused; those open are dropped."""
        if self._serving is not None:
            await self._serving.aclose()
            self._serving = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def answer(self, request: Request) -> Reply:
        """Does what the contract says."""
        if request.headers.get("x-worker-token") != self.token:
            return _error(401, "UNAUTHORIZED", "invalid worker token")
        duty = {
            ("GET", "work"): self._work,
            ("POST", "results"): self._results,
            ("POST", "raw-files"): self._raw_file,
            ("POST", "complete"): self._complete,
            ("POST", "fail"): self._fail,
            ("POST", "heartbeat"): self._heartbeat,
            ("POST", "signals"): self._extra,
            ("POST", "metrics"): self._extra,
            ("GET", "selectors"): self._selectors,
        }.get((request.method, request.name))
        if duty is None or (not self.extras and request.name in {"signals", "metrics", "selectors"}):
            return _error(404, "NOT_FOUND", "no such page")
        if request.headers.get("content-encoding", "identity") != "identity" and not self.accepts_gzip:
            return _error(415, "UNSUPPORTED", "compressed bodies are not understood")
        try:
            return duty(request)
        except (ValueError, KeyError, TypeError, OSError, EOFError) as error:
            return _error(400, "INVALID", f"{type(error).__name__}: {error}")

    def hand_out(self, capacity: int, platforms: Iterable[str]) -> list[Json]:
        """Takes tasks from the queue by the Go one's rule, or as many as fit."""
        wanted, seen = set(platforms), Counter[tuple[str, int]]()
        taken: list[Json] = []
        left: list[Json] = []
        for task in self.queue:
            lane = (task["platform"], task.get("priority", 3))
            if task["platform"] in wanted and len(taken) < capacity and (self.many_at_once or not seen[lane]):
                seen[lane] += 1
                taken.append(task)
            else:
                left.append(task)
        self.queue = left
        self.handed_out += [task["task_id"] for task in taken]
        return taken

    def store(self, entries: Sequence[Entry], fails: Callable[[Entry], bool] = lambda _: False) -> Reply:
        """Stores a batch, but for the entries that fail; after more than ten of them the rest is dropped silently."""
        counts, errors, receipts = Counter[str](), [], []
        for entry in entries:
            if fails(entry):
                errors.append(f"{entry['parcel_id']}: could not be stored")
                receipts.append({"task_id": entry["task_id"], "status": "rejected", "error": "could not be stored"})
                if len(errors) > MOST_ERRORS:
                    break
                continue
            known = self.submissions.get(entry["task_id"], [])
            again = any(before.get("idempotency_key") == entry.get("idempotency_key") for before in known)
            receipts.append({"task_id": entry["task_id"], "status": "duplicate" if again else "stored"})
            counts[self._keep(entry)] += 1
        answer: Entry = {"inserted": counts["inserted"], "updated": counts["updated"], "failed": len(errors)}
        answer["errors"] = errors or None
        return Reply(200, {**answer, "receipts": receipts} if self.receipts else answer)

    def _keep(self, entry: Entry) -> str:
        key = (entry["parcel_id"], entry["platform"], entry["state"], entry["county"])
        done = "updated" if key in self.results else "inserted"
        self.results[key] = entry
        self.submissions.setdefault(entry["task_id"], []).append(entry)
        if "raw_file" in entry and entry["raw_file"] not in self.raw_files:
            self.named_too_early.append(entry["task_id"])
        return done

    def _work(self, request: Request) -> Reply:
        capacity, platforms = request.query.get("capacity", ["0"]), request.query.get("platforms", [])
        if not capacity[0].isdecimal() or not 1 <= int(capacity[0]) <= 100 or not platforms:
            return _error(422, "INVALID", "capacity must be 1 to 100, platforms must be given")
        tasks = self.hand_out(int(capacity[0]), platforms)
        return Reply(200, {"tasks": tasks or None, "retry_after": 5 if tasks else self.nothing_for})

    def _results(self, request: Request) -> Reply:
        problem = batch_problem(entries := request.json())
        return _error(400, "INVALID", problem) if problem else self.store(entries)

    def _raw_file(self, request: Request) -> Reply:
        parts = form(request)
        if "file" not in parts or "metadata" not in parts:
            return _error(422, "INVALID", "file and metadata are required")
        name = parts["file"].filename.replace("\\", "/").rsplit("/", 1)[-1]
        body = parts["file"].body
        page = gzip.decompress(body) if name.endswith(".gz") else body
        metadata = json.loads(parts["metadata"].body)
        self.raw_files[name] = StoredFile(name, body, metadata, hashlib.sha256(page).hexdigest())
        return Reply(200, {"status": "ok", "path": f"raw/{name}"})

    def _complete(self, request: Request) -> Reply:
        self.completed.append(request.task_id)
        return Reply(200, {"success": request.task_id in self.handed_out})

    def _fail(self, request: Request) -> Reply:
        self.failed.append((request.task_id, request.json() if request.body else None))
        return Reply(200, {"status": "reported", "success": request.task_id in self.handed_out})

    def _heartbeat(self, request: Request) -> Reply:
        self.beats.append(request.json())
        commands, self.commands = self.commands, []
        return Reply(200, {"acknowledged": True, "commands": commands or None})

    def _extra(self, request: Request) -> Reply:
        kept = self.signals if request.name == "signals" else self.metrics
        kept += request.json()
        return Reply(200, {"accepted": len(request.json())})

    def _selectors(self, request: Request) -> Reply:
        return Reply(200, {"selectors": self.selectors})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the client has had enough or a trap ends it."""
        with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self._exchange(reader, writer):
                pass

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await read_request(reader, self.base_path)
        self.requests.append(request)
        reaction = self._reaction(request)
        async with self._news:
            self._news.notify_all()
        if isinstance(reaction, Reply):
            if self.accepts_gzip:
                reaction = reaction._replace(headers={"Accept-Encoding": "gzip", **reaction.headers})
            writer.write(reaction.encoded())
            await writer.drain()
            return True
        await reaction(reader, writer)
        return False

    def _reaction(self, request: Request) -> Reply | Play:
        for staged in list(self._staged):
            if staged.name in {request.name, "*"} and (reaction := staged.trap(self, request)) is not None:
                if staged.left[0] is not None:
                    staged.left[0] -= 1
                    if staged.left[0] <= 0:
                        self._staged.remove(staged)
                return reaction
        return self.answer(request)


def a_task(
    task_id: str = "t1", *, platform: str = "echo", parcel_id: str = "", priority: int = 3, **more: Json
) -> Entry:
    """A task as the Go one writes it; `target` adds to the target, the rest to the task."""
    target = {"parcel_id": parcel_id or f"parcel-{task_id}", "state": "CT", "county": "hartford"}
    target |= more.pop("target", {})
    created = "2026-01-01T00:00:00Z"
    task = {"task_id": task_id, "type": "scrape", "platform": platform, "target": target, "priority": priority}
    return {**task, "created_at": created, **more}


def _error(status: int, code: str, message: str) -> Reply:
    return Reply(status, {"error": {"code": code, "message": message}, "request_id": "r-1"})
