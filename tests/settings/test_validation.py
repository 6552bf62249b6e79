"""What must hold between settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.settings import Settings
from parcelpost.settings.schema import GatewaySettings, WorkerSettings
from parcelpost.settings.sources import Loaded
from parcelpost.settings.validation import check_runnable

Load = Callable[..., Loaded]
Refused = Callable[..., str]


def test_values_that_must_be_in_order_are_named_with_where_they_come_from(refused: Refused) -> None:
    assert refused("[collector]\nlow_water = 200\n", flags={"collector.high_water": "200"}) == (
        "collector.low_water (200, parcelpost.toml:2) must be less than collector.high_water (200, flag --set)"
    )


@pytest.mark.parametrize(
    ("given", "value", "follows", "fitting"),
    [
        ("collector.high_water", "20", "collector.low_water", 19),
        ("collector.low_water", "500", "collector.high_water", 501),
        ("sync.backoff_max_seconds", "2", "sync.backoff_min_seconds", 2),
        ("sync.backoff_min_seconds", "900", "sync.backoff_max_seconds", 900),
        ("executor.task_timeout_seconds", "20", "browser.page_seconds", 20),
    ],
)
def test_a_default_follows_the_one_of_the_pair_that_was_set(
    loading: Load, given: str, value: str, follows: str, fitting: float
) -> None:
    loaded = loading(flags={given: value})
    section, _, field = follows.partition(".")
    assert getattr(getattr(loaded.settings, section), field) == fitting
    assert loaded.origins[follows] == f"default, to fit {given}"


@pytest.mark.parametrize(
    ("given", "value", "fitting"),
    [
        ("slow", "90", (90, 90, 95)),
        ("slow", "97", (97, 97, 97)),
        ("no_new_tasks", "60", (60, 60, 95)),
        ("no_new_tasks", "100", (75, 100, 100)),
        ("stop_browsers", "60", (60, 60, 60)),
    ],
)
def test_thresholds_of_memory_follow_the_one_that_was_set(
    loading: Load, given: str, value: str, fitting: tuple[float, ...]
) -> None:
    found = loading(flags={f"resources.{given}_percent": value}).settings.resources
    assert (found.slow_percent, found.no_new_tasks_percent, found.stop_browsers_percent) == fitting


def test_thresholds_of_memory_that_are_out_of_order_are_named(refused: Refused) -> None:
    text = "[resources]\nslow_percent = 90\nstop_browsers_percent = 80\n"
    assert "must be at most" in refused(text)
    assert refused(text, flags={"resources.no_new_tasks_percent": "85"}).startswith(
        "resources.slow_percent (90, parcelpost.toml:2) must be at most resources.no_new_tasks_percent (85, flag --set)"
    )
    assert "percent, more than 0 and at most 100" in refused("[resources]\nslow_percent = 101\n")


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ("sync.backoff_min_seconds", "sync.backoff_max_seconds"),
        ("executor.retry_min_seconds", "executor.retry_max_seconds"),
        ("executor.cool_down_seconds", "executor.cool_down_max_seconds"),
        ("browser.page_seconds", "executor.task_timeout_seconds"),
    ],
)
def test_the_shortest_wait_may_equal_the_longest_but_not_be_more(
    loading: Load, refused: Refused, low: str, high: str
) -> None:
    loading(flags={low: "7", high: "7"})
    assert refused(flags={low: "7.5", high: "7"}) == (f"{low} (7.5, flag --set) must be at most {high} (7, flag --set)")


@pytest.mark.parametrize(
    "url",
    ["http://localhost:8000", "https://gateway.example.org/base", "HTTPS://x", "http://[::1]:80", "https://müller.de"],
)
def test_an_address_is_taken_as_it_is(loading: Load, url: str) -> None:
    assert loading(flags={"gateway.url": url}).settings.gateway.url == url


def test_a_bad_address_is_refused_and_never_repeated(subtests: pytest.Subtests, refused: Refused) -> None:
    for url in [
        "example.org",
        "ftp://example.org",
        "https:///path",
        "http://:80",
        "https://exa mple.org",
        "http://x:99999",
        "http://x:port",
        "http://[::1",
        "https://user:s3cret@example.org",
        "https://s3cret@example.org",
        "https://example.org?token=s3cret",
        "https://example.org/#s3cret",
        "//example.org",
        "gateway:8080",
        "file:///etc/passwd",
        "http://a..b/",
        f"http://{'a' * 64}.com/",
        "http://a%20b/",
        "http://example.org:0",
        "https://example.org/?",
        "https://example.org/\ns3cret",
    ]:
        with subtests.test(url=url):
            message = refused(flags={"gateway.url": url})
            assert message.startswith("flag --set: gateway.url ")
            assert url not in message
            assert "s3cret" not in message


@pytest.mark.parametrize("path", ["internal", "/a?b", "/a#b", "/a b", "/../x", "/a//b", "/ü", "https://x/internal"])
def test_a_base_path_is_a_path(refused: Refused, path: str) -> None:
    assert refused(flags={"gateway.base_path": path}) == "flag --set: gateway.base_path must be a path"


def test_the_older_python_gateway_is_refused_by_its_path(refused: Refused, loading: Load) -> None:
    for url, base_path, setting in (
        ("http://gateway.example.org", "/internal/parcel", "gateway.base_path"),
        ("http://gateway.example.org", "/v2/internal/parcel/", "gateway.base_path"),
        ("http://gateway.example.org/internal/", "/parcel", "gateway.base_path"),
        ("http://gateway.example.org/internal/parcel/", "", "gateway.url"),
        ("http://gateway.example.org/internal/parcel", "/internal", "gateway.url"),
    ):
        message = refused(flags={"gateway.url": url, "gateway.base_path": base_path})
        assert message.startswith(f"flag --set: {setting} leads to /internal/parcel, the older Python gateway")
    loading(flags={"gateway.url": "http://gateway.example.org/parcel", "gateway.base_path": "/internal/parcels"})


def test_a_store_needs_a_path(refused: Refused) -> None:
    assert refused('[storage]\npath = ""\n') == "parcelpost.toml:2: storage.path is empty"


@pytest.mark.parametrize("mode", ["ondemand", "legacy"])
def test_a_mode_that_needs_a_gateway_is_not_run_without_one(mode: str) -> None:
    worker = WorkerSettings(mode=mode)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match=f"^mode {mode} needs gateway.url") as error:
        check_runnable(Settings(worker=worker))
    assert "--gateway URL" in error.value.hint
    check_runnable(Settings(worker=worker, gateway=GatewaySettings(url="http://localhost")))


def test_standalone_needs_no_gateway() -> None:
    check_runnable(Settings(worker=WorkerSettings(mode="standalone")))


@pytest.mark.parametrize("name", ["two words", "x" * 201, "café", "a\tb"])
def test_a_worker_id_can_stand_in_a_header(refused: Refused, name: str) -> None:
    assert "worker.id must be" in refused(flags={"worker.id": name})
