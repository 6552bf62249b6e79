"""The real command in a terminal, beside a worker that runs: it shows, obeys, and leaves the terminal as it was."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cli.support import COMMAND, make_full_store, make_store
from tests.cli.top.terminals import terminal


@contextlib.contextmanager
def worker(store: Path) -> Iterator[None]:
    words = [COMMAND, "run", "--mode", "standalone", "--slots", "3", "--store", str(store), "--set", "worker.id=w-1"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            process.terminate()


def test_it_shows_a_worker_and_ends_by_key_or_signal(tmp_path: Path) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=3)
    ways: dict[str | signal.Signals, int] = {"q": 0, signal.SIGINT: 0, signal.SIGTERM: 143, signal.SIGHUP: 129}
    with worker(store), contextlib.ExitStack() as stack:
        screens = [stack.enter_context(terminal(store)) for _ in ways]
        for (way, code), shown in zip(ways.items(), screens, strict=True):
            shown.until("w-1 · standalone · up")
            shown.until(" of 3 busy")
            assert not shown.is_as_before(), "no echo, keys one by one"
            shown.press(way) if isinstance(way, str) else shown.process.send_signal(way)
            assert shown.ended() == code
            assert shown.is_as_before()


def test_keys_sizes_suspension_and_a_store_that_changes_under_it(tmp_path: Path) -> None:
    store = tmp_path / "here" / "parcelpost.db"
    with terminal(store, "--interval", "0.2", NO_COLOR="1") as shown:
        shown.until("there is no store at")
        make_full_store(store)
        shown.until("no worker is running", lines=24)
        shown.resize(160, 40)
        shown.until("rates  10 min", lines=40)
        shown.press("6")
        shown.until("the upstream rejected 1 result")
        shown.press("p")
        shown.until(" paused ")
        shown.press("p?")
        shown.until("pause, resume")
        shown.press("\x1b[C")
        shown.until("scraped")
        shown.process.send_signal(signal.SIGTSTP)
        shown.until_stopped()
        assert shown.is_as_before()
        shown.process.send_signal(signal.SIGCONT)
        shown.until_taken_over()
        shown.until("scraped", lines=40)
        for file in store.parent.glob(f"{store.name}*"):
            if file.is_file():  # its WAL too: without the store's file it would be taken for the rest of one
                file.unlink()
        shown.until("Cannot read the store")
        make_store(store, tasks=7)
        shown.until("7 pending")
        shown.press("\x03q")
        assert shown.ended() == 0
        assert shown.is_as_before()
        assert not re.search(rb"\x1b\[[\d;]*3\dm", shown.written), "NO_COLOR"
