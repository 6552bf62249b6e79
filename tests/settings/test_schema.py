"""What each setting's value looks like."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcelpost.settings.schema import KEYS, Key, as_text, form, from_text, from_toml, shown

GIB = 1024**3


def test_text_becomes_a_value(subtests: pytest.Subtests) -> None:
    for name, text, value in [
        ("sync.batch_size", " 20 ", 20),
        ("sync.batch_size", "+20", 20),
        ("heartbeat.seconds", "0.5", 0.5),
        ("heartbeat.seconds", "30", 30.0),
        ("storage.min_free_bytes", "0", 0),
        ("storage.max_bytes", "1073741824", GIB),
        ("storage.max_bytes", "512MiB", GIB // 2),
        ("storage.max_bytes", "512 mib", GIB // 2),
        ("storage.max_bytes", "2GB", 2_000_000_000),
        ("storage.max_bytes", "1.5GiB", GIB * 3 // 2),
        ("storage.min_free_bytes", "10kB", 10_000),
        ("storage.min_free_bytes", "7B", 7),
        ("worker.platforms", "", ()),
        ("worker.platforms", "vgsi", ("vgsi",)),
        ("worker.platforms", " a , b,c", ("a", "b", "c")),
        ("browser.block", "", ()),
        ("browser.block", "image, font", ("image", "font")),
        ("browser.most", "0", 0),
        ("browser.max_browser_bytes", "2GiB", 2 * GIB),
        ("worker.id", " two words ", " two words "),
        ("janitor.backup_at", "23:59", "23:59"),
        ("collector.low_water", "0", 0),
    ]:
        with subtests.test(name=name, text=text, value=value):
            found = from_text(KEYS[name], text)
            assert found == value
            assert type(found) is type(value)


def test_text_that_is_no_value_is_refused(subtests: pytest.Subtests) -> None:
    for name, text in [
        *(
            ("sync.batch_size", text)
            for text in ("", "0", "1001", "-1", "5.0", "1e2", "five", "true", "٣", "9" * 5_000)
        ),
        *(("heartbeat.seconds", text) for text in ("", "0", "-1", "nan", "inf", "1e400", "30s", "31536001")),
        ("executor.max_task_age_hours", "nan"),
        *(
            ("storage.max_bytes", text)
            for text in ("", "-1", "5 apples", "GiB", "1e9", "9" * 30, "1 GiB 2", "9" * 5_000)
        ),
        *(("storage.synchronous", text) for text in ("", "full", "OFF")),
        *(("janitor.backup_at", text) for text in ("", "24:00", "2:00", "02:60", "02:00\n")),
        *(("worker.platforms", text) for text in (",", "a,,b", "a,\x1b")),
        *(("browser.block", text) for text in ("images", "image,,font", "script")),
        *(("browser.most", text) for text in ("-1", "65", "")),
        ("browser.sandbox", "yes"),
        *(("worker.id", text) for text in ("a\nb", "\0", "\ud800")),
    ]:
        with subtests.test(name=name, text=text), pytest.raises(ValueError):
            from_text(KEYS[name], text)


def test_a_value_of_the_wrong_type_is_refused(subtests: pytest.Subtests) -> None:
    for name, value in [
        ("sync.batch_size", True),
        ("sync.batch_size", "50"),
        ("sync.batch_size", 50.0),
        ("sync.batch_size", 10**100),
        ("heartbeat.seconds", True),
        ("heartbeat.seconds", "30"),
        ("heartbeat.seconds", math.nan),
        ("storage.max_bytes", 1.5),
        ("storage.max_bytes", True),
        ("storage.max_bytes", "much"),
        ("worker.platforms", "a,b"),
        ("worker.platforms", [1]),
        ("worker.platforms", [""]),
        ("worker.id", 5),
        ("worker.id", {"a": "b"}),
        ("log.level", ["info"]),
    ]:
        with subtests.test(name=name, value=value), pytest.raises(ValueError):
            from_toml(KEYS[name], value)


def test_a_whole_number_is_a_number_of_seconds_and_a_size_may_have_its_unit_in_the_file() -> None:
    assert from_toml(KEYS["heartbeat.seconds"], 5) == 5.0
    assert from_toml(KEYS["storage.max_bytes"], "2GiB") == 2 * GIB


def test_the_right_form_is_told_in_words(subtests: pytest.Subtests) -> None:
    for name, right in [
        ("sync.batch_size", "a whole number from 1 to 1000"),
        ("heartbeat.seconds", "seconds, more than 0 and at most 31536000"),
        ("storage.keep_tasks_days", "days, more than 0 and at most 36500"),
        ("executor.max_task_age_hours", "hours, at least 0 and at most 87600"),
        ("storage.synchronous", "one of FULL, NORMAL"),
        ("storage.max_bytes", "a size in bytes, or with a unit such as 512MiB or 2GB"),
        ("worker.platforms", "a comma-separated list of names"),
        ("browser.block", "a list of any of font, image, media, tracker, or an empty list"),
        ("janitor.backup_at", "a time of day from 00:00 to 23:59"),
        ("worker.id", "text without control characters"),
    ]:
        with subtests.test(name=name, right=right):
            assert form(KEYS[name]) == right


def test_what_was_given_is_shown_short_and_free_text_not_at_all() -> None:
    assert shown(KEYS["sync.batch_size"], "x" * 5_000) == f"'{'x' * 59}..."
    assert shown(KEYS["sync.batch_size"], "\x1b[2J\u202e") == r"'\x1b[2J\u202e'"
    assert shown(KEYS["gateway.url"], "https://user:s3cret@example.org\n") == ""


def test_a_default_has_its_own_form_and_is_read_back_as_it_is_shown(subtests: pytest.Subtests) -> None:
    for name in KEYS:
        with subtests.test(name=name):
            key = KEYS[name]
            assert from_toml(key, key.default) == key.default
            assert from_text(key, as_text(key, key.default)) == key.default


@given(st.integers(min_value=0, max_value=2**62))
def test_every_size_is_read_back_as_it_is_shown(size: int) -> None:
    key = KEYS["storage.min_free_bytes"]
    assert from_text(key, as_text(key, size)) == size


@given(st.sampled_from(sorted(KEYS)), st.text())
def test_any_text_is_a_value_or_a_value_error(name: str, text: str) -> None:
    try:
        found = from_text(KEYS[name], text)
    except ValueError:
        return
    assert from_toml(KEYS[name], found) == found


def test_a_boolean_is_written_in_the_usual_ways() -> None:
    key = Key("worker", "proud", bool, False)
    assert [from_text(key, text) for text in ("true", "Yes", "1", "on")] == [True] * 4
    assert [from_text(key, text) for text in ("false", "no", "0", "OFF")] == [False] * 4
    assert form(key) == "true or false"
    with pytest.raises(ValueError):
        from_text(key, "maybe")
