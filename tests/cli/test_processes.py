"""What the processes of `run --processes` share, and which settings do not go together with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from parcelpost.cli.components import fetch_options
from parcelpost.cli.processes import share_of
from parcelpost.clock import ManualClock
from parcelpost.scrapers.fetch.throttle import HostThrottle
from parcelpost.settings import Settings
from parcelpost.settings.schema import BrowserSettings, ExecutorSettings, FetchSettings, HttpSettings, WorkerSettings
from parcelpost.settings.validation import check_runnable
from tests.cli.support import Run


@given(st.integers(1, 8), st.integers(8, 100), st.integers(8, 20), st.integers(8, 20))
def test_the_processes_stay_within_the_limits_together(count: int, slots: int, requests: int, browsers: int) -> None:
    settings = Settings(
        worker=WorkerSettings(processes=count),
        executor=ExecutorSettings(slots=slots),
        fetch=FetchSettings(concurrency_per_host=requests),
        browser=BrowserSettings(most=browsers),
        http=HttpSettings(port=9100),
    )
    shares = [share_of(settings, number) for number in range(1, count + 1)]
    assert sum(share.executor.slots for share in shares) == slots
    assert sum(share.fetch.concurrency_per_host for share in shares) == requests
    assert sum(share.browser.most for share in shares) == browsers
    assert {share.http.port for share in shares} == {0}


def test_without_browsers_no_process_has_one() -> None:
    settings = Settings(worker=WorkerSettings(processes=2), browser=BrowserSettings(most=0))
    assert share_of(settings, 1).browser.most == 0


async def test_each_process_takes_its_share_of_the_pace() -> None:
    settings = Settings(worker=WorkerSettings(processes=3))
    options = fetch_options(replace(settings, fetch=FetchSettings(pace_seconds=10.0)), {})
    clock = ManualClock()
    throttle = HostThrottle(options.pace_seconds, 1, clock, processes=options.processes)
    async with throttle.request_slot("county.example.org"):
        pass
    assert 29.0 < throttle.opens_in("county.example.org") < 37.0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--slots", "2"], "worker.processes is 4, but executor.slots is 2"),
        (["--slots", "8"], "worker.processes is 4, but fetch.concurrency_per_host is 2"),
        (["--set", "fetch.concurrency_per_host=3"], "worker.processes is 4, but fetch.concurrency_per_host is 3"),
        (["--set", "fetch.concurrency_per_host=4", "--set", "browser.most=1"], "but browser.most is 1"),
        (["--mode", "legacy", "--gateway", "http://127.0.0.1:1"], "mode legacy runs one task at a time"),
    ],
)
def test_what_does_not_go_together_is_refused(run: Run, options: list[str], says: str) -> None:
    ran = run("run", "--mode", "standalone", "--processes", "4", *options)
    assert ran.code == 2
    assert says in ran.err
    assert "\nhint: run with " in ran.err


@pytest.mark.parametrize("browsers", [0, 4])
def test_limits_that_give_every_process_a_share_are_accepted(browsers: int) -> None:
    check_runnable(
        Settings(
            worker=WorkerSettings(mode="standalone", processes=4),
            fetch=FetchSettings(concurrency_per_host=4),
            browser=BrowserSettings(most=browsers),
        )
    )
