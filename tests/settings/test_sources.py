"""Defaults, then the file, then the environment, then flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parcelpost.cli.settings_options import parse_set
from parcelpost.errors import InvalidSettings
from parcelpost.settings import Settings
from parcelpost.settings.schema import KEYS
from parcelpost.settings.sources import Loaded, diagnose, load

Load = Callable[..., Loaded]
Refused = Callable[..., str]


def test_without_any_source_everything_is_the_default(loading: Load) -> None:
    loaded = loading()
    assert loaded.settings == Settings()
    assert set(loaded.origins) == set(KEYS)
    assert set(loaded.origins.values()) == {"default"}
    assert (loaded.file, loaded.warnings) == (None, ())


def test_each_source_goes_over_the_one_before(loading: Load) -> None:
    toml = "[sync]\nbatch_size = 1\nraw_uploads = 11\n\n[collector]\nlow_water = 21\n"
    environment = {"PARCELPOST_SYNC_BATCH_SIZE": "2", "PARCELPOST_SYNC_RAW_UPLOADS": "12"}
    loaded = loading(toml, environment, {"sync.batch_size": "3"})
    settings = loaded.settings
    assert (settings.sync.batch_size, settings.sync.raw_uploads, settings.collector.low_water) == (3, 12, 21)
    assert loaded.origins["sync.batch_size"] == "flag --set"
    assert loaded.origins["sync.raw_uploads"] == "environment PARCELPOST_SYNC_RAW_UPLOADS"
    assert loaded.origins["collector.low_water"] == "parcelpost.toml:6"
    assert loaded.origins["collector.high_water"] == "default"


def test_a_flag_is_called_by_its_own_name(folder: Path) -> None:
    flags = {"executor.slots": "8", "sync.batch_size": "3"}
    loaded = load(config=None, environment={}, flags=flags, named={"executor.slots": "--slots"})
    assert loaded.origins["executor.slots"] == "flag --slots"
    assert loaded.origins["sync.batch_size"] == "flag --set"


def test_every_key_can_come_from_every_source(subtests: pytest.Subtests, loading: Load) -> None:
    for name in KEYS:
        with subtests.test(name=name):
            key = KEYS[name]
            text, value = _other_value(name)
            section, field = name.split(".")
            in_file = f'"{value}"' if isinstance(value, str) else list(value) if isinstance(value, tuple) else value
            in_file = str(value).lower() if isinstance(value, bool) else in_file
            for loaded in (
                loading(environment={key.variable: text}),
                loading(flags={name: text}),
                loading(f"[{section}]\n{field} = {in_file}\n"),
            ):
                assert getattr(getattr(loaded.settings, section), field) == value


def _other_value(name: str) -> tuple[str, Any]:
    """One that is allowed and not the default."""
    default = KEYS[name].default
    known: dict[str, Any] = {
        "worker.mode": "legacy",
        "worker.upstream": "firestore",
        "firestore.root": "a/b",
        "storage.synchronous": "NORMAL",
        "browser.sandbox": "on",
        "janitor.backup_at": "23:59",
        "janitor.clean_at": "00:00",
        "log.level": "debug",
        "log.format": "json",
        "gateway.url": "https://gateway.example.org",
        "gateway.base_path": "/v2",
        "collector.low_water": 49,
        "executor.cool_down_max_seconds": 3601.0,
    }
    if name in known:
        return str(known[name]), known[name]
    if isinstance(default, bool):
        return str(not default), not default
    if isinstance(default, tuple):
        names = ("image", "font") if name == "browser.block" else ("a", "b")
        return ", ".join(names), names
    if isinstance(default, str):
        return "something", "something"
    return str(default + 1), default + 1


def test_the_fixed_names_stand(loading: Load) -> None:
    environment = {
        "PARCELPOST_GATEWAY_URL": "http://localhost:8000",
        "PARCELPOST_STORE": "/srv/p.db",
        "PARCELPOST_GATEWAY_TOKEN": "hidden-token",
        "PARCELPOST_CORPUS": "/corpus",
    }
    loaded = loading(environment=environment)
    assert loaded.settings.gateway.url == "http://localhost:8000"
    assert loaded.settings.storage.path == "/srv/p.db"
    assert loaded.origins["storage.path"] == "environment PARCELPOST_STORE"
    assert loaded.warnings == ()
    assert "hidden-token" not in repr(loaded)


def test_the_short_name_counts_where_both_are_given_and_differ(loading: Load) -> None:
    loaded = loading(environment={"PARCELPOST_STORE": "a.db", "PARCELPOST_STORAGE_PATH": "b.db"})
    assert loaded.settings.storage.path == "a.db"
    assert loaded.warnings == ("PARCELPOST_STORE and PARCELPOST_STORAGE_PATH differ: PARCELPOST_STORE is used",)
    assert loading(environment={"PARCELPOST_STORE": "a.db", "PARCELPOST_STORAGE_PATH": "a.db"}).warnings == ()


def test_an_unknown_variable_is_a_warning_that_names_the_nearest_and_not_its_value(loading: Load) -> None:
    loaded = loading(environment={"PARCELPOST_SYNC_BATCHSIZE": "s3cret", "UNRELATED": "x"})
    (warning,) = loaded.warnings
    assert "PARCELPOST_SYNC_BATCHSIZE" in warning
    assert warning.endswith("(did you mean PARCELPOST_SYNC_BATCH_SIZE?)")
    assert "s3cret" not in warning


def test_an_empty_variable_counts_as_not_set(loading: Load) -> None:
    empty = {"PARCELPOST_SYNC_BATCH_SIZE": "", "PARCELPOST_STORE": "", "PARCELPOST_CONFIG": "", "PARCELPOST_NONE": ""}
    loaded = loading(environment=empty)
    assert (loaded.settings, loaded.warnings) == (Settings(), ())


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("sync.batchsize", "sync.batch_size"),
        ("snyc.batch_size", "sync.batch_size"),
        ("collector.batch_size", "sync.batch_size"),
        ("batch_size", "sync.batch_size"),
        ("max_bytes", "storage.max_bytes"),
        ("executer.slot", "executor.slots"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest(refused: Refused, given: str, nearest: str) -> None:
    assert refused(flags={given: "5"}) == f"flag --set: unknown setting {given} (did you mean {nearest}?)"


@pytest.mark.parametrize("given", ["nosection", "zzz", "some.thing"])
def test_where_nothing_is_near_nothing_is_suggested(refused: Refused, loading: Load, given: str) -> None:
    assert refused(flags={given: "5"}) == f"flag --set: unknown setting {given}"
    (warning,) = loading(environment={"PARCELPOST_ZZZ": "5"}).warnings
    assert warning == "the environment variable PARCELPOST_ZZZ is not a setting"


def test_an_unknown_key_that_is_like_no_other_is_an_error_too(refused: Refused) -> None:
    assert refused(flags={"x" * 500: "5"}) == f"flag --set: unknown setting {'x' * 80}..."


@pytest.mark.parametrize("name", ["gateway.token", "gateway.password", "token", "worker.api_key", "gateway.Secret"])
def test_a_secret_has_its_own_error_and_is_not_repeated(refused: Refused, name: str) -> None:
    message = refused(flags={name: "s3cret-value"})
    assert message == f"flag --set: {name} looks like a secret, and secrets are not settings"


def test_a_bad_value_names_its_source_the_key_the_right_form_and_what_was_given(refused: Refused) -> None:
    right = "sync.batch_size must be a whole number from 1 to 1000, not"
    assert refused(flags={"sync.batch_size": "many"}) == f"flag --set: {right} 'many'"
    variable = {"PARCELPOST_SYNC_BATCH_SIZE": "0"}
    assert refused(environment=variable) == f"environment PARCELPOST_SYNC_BATCH_SIZE: {right} '0'"
    assert refused("\n[sync]\nbatch_size = true\n") == f"parcelpost.toml:3: {right} true"


def test_the_first_problem_is_raised_and_the_others_are_counted(refused: Refused, folder: Path) -> None:
    flags = {"sync.batch_size": "0", "sync.nothing": "1", "log.level": "loud"}
    assert refused(flags=flags).endswith("(and 2 more: see 'parcelpost config check')")
    found = diagnose(config=None, environment={}, flags=flags)
    assert found.loaded is None
    assert len(found.problems) == 3
    assert all(problem.message and problem.fix for problem in found.problems)


def test_a_bad_value_is_an_error_even_where_a_good_one_goes_over_it(refused: Refused) -> None:
    assert "batch_size" in refused("[sync]\nbatch_size = 0\n", flags={"sync.batch_size": "5"})


def test_pairs_are_split_at_the_first_equals_sign_and_the_last_one_counts() -> None:
    assert parse_set(["worker.id=a=b", "sync.batch_size = 5", "worker.id=c"]) == {
        "worker.id": "c",
        "sync.batch_size": " 5",
    }
    assert parse_set(["gateway.url="]) == {"gateway.url": ""}


def test_a_pair_without_a_value_is_an_error_that_repeats_only_a_known_key() -> None:
    with pytest.raises(InvalidSettings, match=r"^--set 'sync.batch_size' has no value$"):
        parse_set(["sync.batch_size"])
    with pytest.raises(InvalidSettings, match=r"^--set has no value$"):
        parse_set(["s3cret"])
