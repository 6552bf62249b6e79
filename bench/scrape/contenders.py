"""The contenders of `bench scrape`: how each is prepared, started and counted."""

from __future__ import annotations

import csv
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.gateway.client import gateway
from bench.scrape.peers.fields import CONCURRENCY
from bench.scrape.site import HOST, PATH

_PROJECT = Path(__file__).parents[2]
LEASE_SECONDS = 20
"""Tasks whose answer was lost by a kill are handed out again after that; a killed contender is started again then."""
_STATE, _COUNTY = "NH", "invented"


@dataclass(frozen=True, slots=True)
class Job:
    """Pages of one site or several, scraped in a folder of its own."""

    folder: Path
    ports: Sequence[int]
    pages: int
    """Of each site."""

    @property
    def total(self) -> int:
        return self.pages * len(self.ports)

    def urls(self) -> Iterator[str]:
        """The sites take turns."""
        return (f"http://{HOST}:{port}{PATH}{page}" for page in range(1, self.pages + 1) for port in self.ports)


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    commands: Callable[[Job], Sequence[Sequence[str]]]
    """Run one after the other; the last one scrapes."""
    stored: Callable[[Job], int]
    """How many pages have a stored result."""
    beside: Callable[[Job], AbstractContextManager[None]] = lambda _: nullcontext()
    """What must run beside it, which is not measured."""


def environment() -> Mapping[str, str]:
    """The programs start in folders of their own."""
    return {**os.environ, "PYTHONPATH": str(_PROJECT)}


def _count(query: str, file: str, job: Job) -> int:
    with sqlite3.connect(f"file:{job.folder / file}?mode=ro", uri=True) as db:
        return int(db.execute(query).fetchone()[0])


def _peer(module: str, job: Job) -> Sequence[Sequence[str]]:
    urls = job.folder / "urls.txt"
    urls.write_text("\n".join(job.urls()), "utf-8")
    return [[sys.executable, "-m", f"bench.scrape.peers.{module}", str(urls)]]


_OURS = [sys.executable, "-m", "parcelpost"]
_STORED = "SELECT count(*) FROM results"


def _settings(job: Job) -> list[str]:
    """The pace is the peers': no pause between requests."""
    counties = "\n".join(
        f'[[county]]\nplatform = "vgsi"\nstate = "{_STATE}"\ncounty = "{_county(number)}"\n'
        f'site = "http://{HOST}:{port}"\nurl = "http://{HOST}:{port}{PATH}{{parcel}}"\n'
        for number, port in enumerate(job.ports)
    )
    (job.folder / "counties.toml").write_text(counties, "utf-8")
    (job.folder / "parcelpost.toml").write_text(
        f"""[executor]
slots = {CONCURRENCY}

[fetch]
counties_file = "{job.folder / "counties.toml"}"
allow_private = ["{HOST}"]
pace_seconds = 0
concurrency_per_host = {CONCURRENCY}
""",
        "utf-8",
    )
    return ["--config", str(job.folder / "parcelpost.toml")]


def _county(number: int) -> str:
    return f"{_COUNTY}{number}"


def _tasks(job: Job) -> Path:
    file = job.folder / "tasks.csv"
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(("platform", "state", "county", "parcel_id"))
        writer.writerows(
            ("vgsi", _STATE, _county(number), page)
            for page in range(1, job.pages + 1)
            for number in range(len(job.ports))
        )
    return file


def standalone_commands(job: Job, *options: str) -> Sequence[Sequence[str]]:
    settings = _settings(job)
    return [
        [*_OURS, "import", str(_tasks(job)), "--store", "store.db", *settings],
        [*_OURS, "run", "--mode", "standalone", "--store", "store.db", "--until-empty", *settings, *options],
    ]


def _ondemand_commands(job: Job) -> Sequence[Sequence[str]]:
    url = (job.folder / "gateway.url").read_text("utf-8")
    return [[*_OURS, "run", "--gateway", url, "--store", "store.db", "--until-empty", *_settings(job)]]


@contextmanager
def _gateway(job: Job) -> Iterator[None]:
    folder = job.folder / "gateway"
    folder.mkdir()
    database = str(folder / "gateway.db")
    with gateway(database, folder, "--set", f"server.lease_seconds={LEASE_SECONDS}") as url:
        add = [*_OURS, "gateway", "add", str(_tasks(job)), "--database", database, *_settings(job)]
        subprocess.run(add, cwd=job.folder, env=environment(), check=True, stdout=subprocess.DEVNULL)
        (job.folder / "gateway.url").write_text(url, "utf-8")
        yield


STANDALONE = Contender("Parcelpost, standalone", standalone_commands, partial(_count, _STORED, "store.db"))
TWO_PROCESSES = Contender(
    "Parcelpost, two processes",
    lambda job: standalone_commands(job, "--processes", "2"),
    partial(_count, _STORED, "store.db"),
)
ONDEMAND = Contender(
    "Parcelpost, ondemand", _ondemand_commands, partial(_count, _STORED, "gateway/gateway.db"), _gateway
)
SCRAPY = Contender("Scrapy", partial(_peer, "scrapy_peer"), partial(_count, _STORED, "results.db"))
CRAWLEE = Contender(
    "Crawlee",
    partial(_peer, "crawlee_peer"),
    partial(_count, "SELECT count(DISTINCT json_extract(data, '$.url')) FROM dataset_records", "results.db"),
)
PLAIN_LOOP = Contender("asyncio loop", partial(_peer, "asyncio_peer"), partial(_count, _STORED, "results.db"))
CONTENDERS = (STANDALONE, ONDEMAND, SCRAPY, CRAWLEE, PLAIN_LOOP)
