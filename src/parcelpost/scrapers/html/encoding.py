"""Decodes pages, whatever encoding they declare."""

from __future__ import annotations

import codecs
import re

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_MARKS = tuple(mark for mark, _ in _BOMS)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_HEADER = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_SCANNED_BYTES = 4_096
_CONTROLS = bytes(byte for byte in range(0x20) if byte not in b"\t\n\r")
_TO_SPACES = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
# Browsers decode Latin-1 as Windows-1252.
_DECODED_AS_WINDOWS_1252 = frozenset({"iso8859-1", "ascii", "latin-1"})
_WEB_ENCODINGS = frozenset(
    {
        *(
            "utf-8",
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "cp866",
            "cp874",
            "koi8-r",
            "koi8-u",
            "mac-roman",
            "mac-cyrillic",
        ),
        *(f"iso8859-{part}" for part in range(2, 17) if part != 12),
        *(f"cp{number}" for number in range(1250, 1259)),
        *("gb2312", "gbk", "gb18030", "big5", "big5hkscs", "tis-620"),
        *("euc_jp", "iso2022_jp", "shift_jis", "cp932", "euc_kr", "cp949"),
    }
)
"""Names of Python codecs. Its other codecs are not used by web pages, and some are slow or unsafe on foreign input."""


def decode(body: bytes, content_type: str = "") -> str:
    """Decodes by byte order mark, else as UTF-8 if valid, else as the header or the page declares, else Windows-1252.

    Wrong declarations are common, but bytes that are valid UTF-8 are hardly ever anything else.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        pass
    return body.decode(_declared(body, content_type), "replace")


def as_utf8(body: bytes, content_type: str = "") -> bytes:
    """The text of `decode` as UTF-8; most pages already are and are returned unchanged."""
    if not body.startswith(_MARKS):
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return body
    return decode(body, content_type).encode("utf-8", "replace")


def without_controls(text: bytes) -> bytes:
    """Replaces control characters with spaces: inside a tag they would become part of its name."""
    return text.translate(_TO_SPACES) if any(byte in text for byte in _CONTROLS) else text


def _declared(body: bytes, content_type: str) -> str:
    header = _HEADER.search(content_type)
    meta = _META.search(body[:_SCANNED_BYTES])
    for given in (header[1] if header else "", meta[1].decode("ascii") if meta else ""):
        try:
            name = codecs.lookup(given).name
        except LookupError:
            continue
        if name in _DECODED_AS_WINDOWS_1252:
            return "windows-1252"
        if name not in _WEB_ENCODINGS:
            continue
        # A page cut in the middle of a character is still UTF-8; one with many errors is not.
        if name != "utf-8" or _is_nearly_utf8(body):
            return name
    return "utf-8" if _is_nearly_utf8(body) else "windows-1252"


def _is_nearly_utf8(body: bytes) -> bool:
    text = body.decode("utf-8", "replace")
    good = sum(1 for char in text if char > "\x7f" and char != "\ufffd")
    return text.count("\ufffd") * 10 < good or (text.count("\ufffd") <= 1 and good > 0)
