"""Settings for every test. Fixtures live beside the tests that use them."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import random
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Shared machines stall now and then: an example's time says nothing about the code. `make test` tries the same examples
# every time; `make test-long` tries many more, and others each time.
settings.register_profile("parcelpost", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("parcelpost")

# Failed asserts say why outside the test files, too.
pytest.register_assert_rewrite(*(f"tests.storage.crash.{name}" for name in ("acknowledged", "agreement", "store_life")))

# A shell that starts tests in the background has them ignore Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests speak to servers of their own. Reading all authorities that a machine trusts takes a client 50 ms: here it is
# one, which has signed nothing.
if not os.environ.get("PARCELPOST_TRY_CONTAINER"):
    os.environ.pop("SSL_CERT_DIR", None)
    os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

os.environ.setdefault("TEST_SEED", str(random.randrange(2**32)))  # the processes of pytest-xdist inherit it


def pytest_sessionstart(session: pytest.Session) -> None:
    """Each process of pytest-xdist begins to import the tests elsewhere, and so compiles for the others, too."""
    of_process = getattr(session.config, "workerinput", None)
    if of_process is None or session.config.args != session.config.getini("testpaths"):
        return
    files = sorted((session.config.rootpath / "tests").rglob("test_*.py"))
    start = len(files) * int(of_process["workerid"].removeprefix("gw")) // of_process["workercount"]
    for file in (*files[start:], *files[:start]):
        with contextlib.suppress(Exception, pytest.skip.Exception):  # it is told when the test is collected
            importlib.import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """What is imported by now stays: nobody need look through it again for what may go."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow ones first, and those that run one after the other: at the end they would leave processors idle."""
    items.sort(key=lambda item: not (item.get_closest_marker("slow") or item.get_closest_marker("xdist_group")))


def pytest_report_header() -> str:
    return f"TEST_SEED={os.environ['TEST_SEED']} (what long tests do by chance)"


@pytest.fixture
def seed() -> int:
    """Of what a long test does by chance."""
    return int(os.environ["TEST_SEED"])
