"""Ways to spoil a page."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

_TAG = re.compile(rb"<[^>]*>")
_TEXT = re.compile(rb">([^<]{1,60})<")
_ATTRIBUTE = re.compile(rb'(id|class|for|title|aria-describedby)="([^"]{1,80})"')
_VALUE = re.compile(rb'"[^"]{0,40}"(?=\s*[,}\]])|-?\d+(?:\.\d+)?(?=\s*[,}\]])')
_JSON = (
    b"null",
    b"[]",
    b"{}",
    b"1e999",
    b'"\\u0000"',
    b"-1",
    b'""',
    b"true",
    b"[[[[]]]]",
    b"1e-999",
    b"99999999999999999999",
)


def mutated(body: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        body = chance.choice(KINDS)(body, chance)
    return body


def labels_of(pages: Sequence[bytes]) -> list[bytes]:
    """The short texts that all of them show."""
    texts = [{text for text in _TEXT.findall(body) if text.strip()} for body in pages]
    return sorted(set.intersection(*texts))


def filled(sign: bytes, size: int) -> bytes:
    return sign * (size // len(sign) + 1)


def crowded(body: bytes, filling: bytes) -> bytes:
    """With the filling before all that the page says."""
    head, start, rest = body.partition(b"<body")
    tag, end, rest = rest.partition(b">")
    return head + start + tag + end + filling + rest if start else filling + body


def cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def part_lost(body: bytes, chance: random.Random) -> bytes:
    first, last = sorted(chance.randrange(len(body) + 1) for _ in range(2))
    return body[:first] + body[last:]


def tags_dropped(body: bytes, chance: random.Random) -> bytes:
    rate = chance.choice((0.01, 0.1, 0.5))
    return _TAG.sub(lambda found: b"" if chance.random() < rate else found[0], body)


def attributes_shuffled(body: bytes, chance: random.Random) -> bytes:
    known = [found[2] for found in _ATTRIBUTE.finditer(body)] or [b""]
    return _ATTRIBUTE.sub(lambda found: found[1] + b'="' + chance.choice(known) + b'"', body)


def bytes_flipped(body: bytes, chance: random.Random) -> bytes:
    spoiled = bytearray(body)
    for _ in range(chance.randrange(1, 300) if spoiled else 0):
        spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
    return bytes(spoiled)


def text_emptied(body: bytes, chance: random.Random) -> bytes:
    rate = chance.choice((0.05, 0.3, 1.0))
    return _TEXT.sub(lambda found: b"><" if chance.random() < rate else found[0], body)


def digits_changed(body: bytes, chance: random.Random) -> bytes:
    return re.sub(rb"\d", lambda found: b"%d" % chance.randrange(10) if chance.random() < 0.3 else found[0], body)


def values_replaced(body: bytes, chance: random.Random) -> bytes:
    rate = chance.choice((0.02, 0.2))
    return _VALUE.sub(lambda found: chance.choice(_JSON) if chance.random() < rate else found[0], body)


def nested(body: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(body) + 1)
    deep = chance.choice((b"<div>", b"<table><tr><td>", b"<b>", b"[", b'{"a":', b"<section><header>"))
    return body[:at] + deep * chance.choice((10, 10_000)) + body[at:]


def repeated(body: bytes, chance: random.Random) -> bytes:
    return body * chance.choice((2, 5))


def backwards(body: bytes, chance: random.Random) -> bytes:
    return body[::-1]


KINDS: Sequence[Callable[[bytes, random.Random], bytes]] = (
    cut,
    part_lost,
    tags_dropped,
    attributes_shuffled,
    bytes_flipped,
    text_emptied,
    digits_changed,
    values_replaced,
    nested,
    repeated,
    backwards,
)
