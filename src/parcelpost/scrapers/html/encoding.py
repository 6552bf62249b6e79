"""Bytes -> text, in the encoding the page means."""

from __future__ import annotations

import codecs
import re

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_MARKS = tuple(mark for mark, _ in _BOMS)
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_HEADER = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_LOOK_BYTES = 4_096
_CONTROLS = bytes(one for one in range(0x20) if one not in b"\t\n\r")
_AS_BLANKS = bytes.maketrans(_CONTROLS, b" " * len(_CONTROLS))
# As browsers do it: what is called Latin-1 is Windows-1252.
_AS_WINDOWS = frozenset({"iso8859-1", "ascii", "latin-1"})
_OF_THE_WEB = frozenset(
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
"""By Python's names. It has codecs besides that are none of pages, and slow or dangerous on a stranger's bytes."""


def decode(body: bytes, content_type: str = "") -> str:
    """By its byte order mark, else as UTF-8 if it is that, else as header or page say, else as Windows-1252.

    Pages that say one thing and are another are common; bytes that are valid UTF-8 are hardly ever anything else.
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
    """The text that `decoded` gives; most pages are UTF-8 and stay as they are."""
    if not body.startswith(_MARKS):
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            pass
        else:
            return body
    return decode(body, content_type).encode("utf-8", "replace")


def without_controls(text: bytes) -> bytes:
    """Blanks instead: within a tag they would become part of its name."""
    return text.translate(_AS_BLANKS) if any(one in text for one in _CONTROLS) else text


def _declared(body: bytes, content_type: str) -> str:
    header = _HEADER.search(content_type)
    meta = _META.search(body[:_LOOK_BYTES])
    for given in (header[1] if header else "", meta[1].decode("ascii") if meta else ""):
        try:
            name = codecs.lookup(given).name
        except LookupError:
            continue
        if name in _AS_WINDOWS:
            return "windows-1252"
        if name not in _OF_THE_WEB:
            continue
        # A page cut in the middle of a sign is still UTF-8; one that is wrong from the start is not.
        if name != "utf-8" or _is_nearly_utf8(body):
            return name
    return "utf-8" if _is_nearly_utf8(body) else "windows-1252"


def _is_nearly_utf8(body: bytes) -> bool:
    text = body.decode("utf-8", "replace")
    good = sum(1 for sign in text if sign > "\x7f" and sign != "\ufffd")
    return text.count("\ufffd") * 10 < good or (text.count("\ufffd") <= 1 and good > 0)
