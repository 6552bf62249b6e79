"""Pages like those of a county: 20 KB of HTML that a compressor shrinks to about a quarter, no two alike."""

from __future__ import annotations

import random
from collections.abc import Sequence

PAGE_BYTES = 20 * 1024
_BODIES = 64
_TEXT = """
    assessed value land building owner parcel lien redemption sale certificate block lot district school county city
    township road avenue street acreage zoning residential commercial exemption homestead delinquent penalty interest
    installment receipt treasurer collector deed book page grantor grantee transfer
"""


class Pages:
    """The larger part of each page is made here, before any clock starts."""

    def __init__(self) -> None:
        self._bodies: Sequence[bytes] = [_body(random.Random(seed)) for seed in range(_BODIES)]

    def page(self, number: int) -> bytes:
        head = f"<!doctype html><html><head><title>Parcel {number:08}</title></head><body><h1>{number:08}</h1>\n"
        return (head.encode() + self._bodies[number % _BODIES])[:PAGE_BYTES]


def _body(chance: random.Random) -> bytes:
    words, rows = _TEXT.split(), list[str]()
    size = 0
    while size < PAGE_BYTES:
        label = " ".join(chance.choices(words, k=2)).title()
        value = f"{chance.choice(words)} {chance.randrange(10**7):,} {chance.choice(words)} {chance.random():.6f}"
        rows.append(f'<tr class="row-{len(rows) % 2}"><th scope="row">{label}</th><td>{value}</td></tr>\n')
        size += len(rows[-1])
    return "".join(["<table>\n", *rows]).encode()
