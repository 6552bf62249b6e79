"""Names of raw files, waits and error messages."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parcelpost.errors import Unavailable
from parcelpost.protocol import client, payloads
from tests.upstream.factories import NOW, an_entry

BODIES = st.binary(max_size=200) | st.dictionaries(
    st.sampled_from(["retry_after", "error", "message", "detail"]),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just({"message": "x"}),
).map(lambda value: json.dumps(value).encode())


def test_a_plain_name_says_everything() -> None:
    name = payloads.raw_file_name(an_entry(page=True, parcel_id="12-34.5"))
    assert re.fullmatch(r"echo_CT_hartford_12-34\.5_[0-9a-f]{12}\.html\.gz", name)


NAMES = st.text(max_size=100) | st.sampled_from(["", "..", "a_b", "a", "b", "b_c", "c", "/etc/passwd", "C:\\x", "~"])


@given(st.tuples(NAMES, NAMES, NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES, NAMES))
@example(("a_b", "c", "", ""), ("a", "b_c", "", ""))
@example(("é", "", "", ""), ("ü", "", "", ""))
@example(("a" * 60, "", "", ""), ("a" * 61, "", "", ""))
def test_names_of_raw_files_are_safe_and_never_shared(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    fields = ("platform", "state", "county", "parcel_id")
    first, second = (
        payloads.raw_file_name(an_entry(page=True, **dict(zip(fields, key, strict=True)))) for key in (one, other)
    )
    assert re.fullmatch(r"[A-Za-z0-9._~-]{1,240}", first)
    assert ".." not in first
    assert not first.startswith((".", "-"))
    assert (first == second) == (one == other)


def test_another_page_of_the_same_parcel_has_another_name() -> None:
    assert payloads.raw_file_name(an_entry(raw_sha256="a" * 64)) != payloads.raw_file_name(
        an_entry(raw_sha256="b" * 64)
    )


def test_what_is_told_about_a_raw_file() -> None:
    entry = an_entry(page=True)
    assert json.loads(payloads.raw_file_metadata(entry)) == {
        "task_id": "t1",
        "parcel_id": "parcel-t1",
        "platform": "echo",
        "state": "CT",
        "county": "hartford",
        "sha256": entry.raw_sha256,
        "content_type": "text/html",
        "content_encoding": "gzip",
        "scraped_at": "2026-01-01T12:00:00Z",
    }


def test_only_ok_means_that_a_raw_file_is_kept() -> None:
    client.read_raw_file(b'{"status":"ok","path":"x"}', "9f")
    client.read_raw_file(b'{"status":"ok","path":"x","sha256":"9f"}', "9f")
    for body in (b'{"status":"error","message":"full"}', b"{}", b'{"status":true}', b'{"status":"ok","sha256":"86"}'):
        with pytest.raises(Unavailable):
            client.read_raw_file(body, "9f")


def wait(body: bytes = b"", **headers: str) -> float:
    return payloads.wait_seconds({name.replace("_", "-"): value for name, value in headers.items()}, body, NOW)


def date(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


def test_retry_after_in_seconds_and_as_a_date() -> None:
    assert wait(retry_after="120") == 120.0
    assert wait(retry_after=date(90)) == 90.0
    assert wait(retry_after=date(90), date=date(60)) == 30.0, "by the gateway's own clock"
    assert wait(retry_after=date(-90)) == 0.0
    assert wait(retry_after="99999999") == payloads.LONGEST_WAIT_SECONDS


def test_a_rate_limit_counts_when_nothing_remains() -> None:
    epoch = str(int(NOW.timestamp()) + 45)
    assert wait(x_ratelimit_reset="45", x_ratelimit_remaining="0") == 45.0
    assert wait(x_ratelimit_reset=epoch, x_ratelimit_remaining="0") == 45.0
    assert wait(x_ratelimit_reset=f"{epoch}000", x_ratelimit_remaining="0") == 45.0
    assert wait(x_ratelimit_reset=epoch) == 45.0
    assert wait(x_ratelimit_reset="45", x_ratelimit_remaining="7") == 0.0


def test_the_longest_wish_wins() -> None:
    assert wait(b'{"retry_after": 20}', retry_after="10") == 20.0
    assert wait(b'{"retry_after": 20}', retry_after="10", x_ratelimit_reset="30") == 30.0


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80), st.text(max_size=80), BODIES)
@example("Mon, 99 Foo 99999 99:99:99 +9999", "1e9", "-1", "nan", b"")
@example("Mon, 01 Jan 0001 00:00:00 +1400", "Fri, 31 Dec 9999 23:59:59 -1400", "", "", b"")
def test_a_wait_is_always_a_sane_number(date: str, after: str, reset: str, remaining: str, body: bytes) -> None:
    seconds = wait(body, date=date, retry_after=after, x_ratelimit_reset=reset, x_ratelimit_remaining=remaining)
    assert 0.0 <= seconds <= payloads.LONGEST_WAIT_SECONDS


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":{"code":"UNAUTHORIZED","message":"bad token"},"request_id":"1"}', "bad token (UNAUTHORIZED)"),
        (b'{"error":"bad token"}', "bad token"),
        (b'{"detail":[{"loc":["body",0]}]}', '[{"loc":["body",0]}]'),
        (b'{"status":"error","message":"full"}', "full"),
        (b"<!DOCTYPE html><title>\n502 Bad Gateway</title>", "a page titled '502 Bad Gateway'"),
        (b"<html>", "a page without a title"),
        (b"slow\r\n\x1b[31mdown\xff", "slow ?[31mdown\N{REPLACEMENT CHARACTER}"),
        (b"", ""),
    ],
)
def test_the_message_of_an_error(body: bytes, text: str) -> None:
    assert payloads.error_text(body) == text


@given(BODIES)
def test_a_message_is_always_one_printable_line(body: bytes) -> None:
    assert payloads.error_text(body).isprintable()
