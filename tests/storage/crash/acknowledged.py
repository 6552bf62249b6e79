"""What a writer process said the store had confirmed, and whether it is still there."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, NamedTuple, Self

_ROOT = Path(__file__).parents[3]


class Saved(NamedTuple):
    task_id: str
    result_id: str
    html_path: str
    sha256: str
    confirmed_at: float


@dataclass
class Acknowledged:
    """All that every writer on one store has said."""

    added: set[str] = field(default_factory=set)
    saved: dict[str, Saved] = field(default_factory=dict)
    """By result id."""
    delivered: set[str] = field(default_factory=set)

    def note(self, line: str) -> None:
        match line.split():
            case ["added", task_id]:
                self.added.add(task_id)
            case ["saved", task_id, result_id, html_path, digest, confirmed_at]:
                assert result_id not in self.saved
                self.saved[result_id] = Saved(task_id, result_id, html_path, digest, float(confirmed_at))
            case ["delivered", result_id]:
                self.delivered.add(result_id)

    def missing_rows(self, store: Path) -> list[str]:
        """Whatever of it the database does not hold, without opening it as a store does."""
        with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as db:
            tasks = {row[0] for row in db.execute("SELECT task_id FROM tasks")}
            results = {
                row[0]: row[1:] for row in db.execute("SELECT result_id, task_id, html_path, raw_sha256 FROM results")
            }
            synced = {row[0] for row in db.execute("SELECT result_id FROM results WHERE synced = 1")}
        lost = [f"task {task_id}" for task_id in self.added - tasks]
        lost += [
            f"result {saved}" for saved in self.saved.values() if results.get(saved.result_id) != saved[:1] + saved[2:4]
        ]
        return lost + [f"receipt {result_id}" for result_id in self.delivered - synced]

    def missing_files(self, store: Path) -> list[str]:
        return [f"file {saved}" for saved in self.saved.values() if not holds(store, saved.html_path, saved.sha256)]


def rows_without_file(store: Path) -> list[tuple[str, str]]:
    """I6 for every row there is, acknowledged or not."""
    with contextlib.closing(sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True)) as db:
        named = db.execute("SELECT html_path, raw_sha256 FROM results WHERE html_path IS NOT NULL").fetchall()
    return [(path, digest) for path, digest in named if not holds(store, path, digest)]


def holds(store: Path, html_path: str, sha256: str) -> bool:
    try:
        body = gzip.decompress((store.parent / "data" / html_path).read_bytes())
    except (OSError, EOFError):
        return False
    return hashlib.sha256(body).hexdigest() == sha256


class Writer:
    """A running writer process; killed on leaving, whatever happened."""

    def __init__(
        self, store: Path, seed: str, *, synchronous: Literal["FULL", "NORMAL"] = "FULL", page_bytes: int = 4_000
    ) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.storage.crash.writer_process",
            str(store),
            synchronous,
            str(page_bytes),
            seed,
        ]
        self.process = subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self._output: IO[str] = self.process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.kill()
        self._output.close()

    def lines(self) -> Iterator[str]:
        """As they come; ends when the process has ended."""
        for line in self._output:
            yield line.rstrip("\n")

    def read(self, acknowledged: Acknowledged, count: int, *, until: str = "saved") -> None:
        """Notes lines until `count` of them have begun with that word."""
        for line in self.lines():
            acknowledged.note(line)
            count -= line.startswith(until)
            if count <= 0:
                return
        raise AssertionError(f"the writer ended by itself: {self.process.wait()}")

    def stop(self) -> None:
        """Not one more instruction after this, but no end either."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
