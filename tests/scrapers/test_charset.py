"""Only what the web calls a charset decides how a page is read."""

from __future__ import annotations

import pytest

from parcelpost.scrapers.html.encoding import decode

SPANISH = "Peña-tda".encode("windows-1252")


def test_a_codec_that_is_no_charset_of_the_web_is_not_used(subtests: pytest.Subtests) -> None:
    for name in [
        "punycode",
        "idna",
        "utf-7",
        "unicode_escape",
        "raw_unicode_escape",
        "hz",
        "cp037",
        "undefined",
        "rot13",
        "x",
    ]:
        with subtests.test(name=name):
            assert decode(SPANISH, f"text/html; charset={name}") == "Peña-tda"
            assert decode(b"<meta charset=" + name.encode() + b">" + SPANISH).endswith("Peña-tda")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("windows-1251", "Ёлка"),
        ("ISO-8859-2", "Łódź"),
        ("koi8-r", "Ёлка"),
        ("shift_jis", "日本"),
        ("euc-jp", "日本"),
        ("gb2312", "中国"),
        ("big5", "中國"),
        ("euc-kr", "한국"),
        ("macintosh", "Peña"),
    ],
)
def test_a_charset_of_the_web_is(name: str, text: str) -> None:
    assert decode(text.encode(name), f"text/html; charset={name}") == text
