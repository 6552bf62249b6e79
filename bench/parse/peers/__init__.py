"""Ordinary scrapers for five platforms, written with BeautifulSoup: by id if the page has ids, else by label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bs4 import BeautifulSoup

from bench.parse.peers import collier_pa, grizzly_gis, leepa, qpublic, vgsi

READERS: Mapping[str, Callable[[BeautifulSoup], dict[str, Any]]] = {
    "collier_pa": collier_pa.read,
    "grizzly_gis": grizzly_gis.read,
    "leepa": leepa.read,
    "qpublic": qpublic.read,
    "vgsi": vgsi.read,
}


def read(platform: str, text: str, parser: str) -> dict[str, Any]:
    """`parser`: html.parser or lxml. Takes text, because BeautifulSoup would first guess the encoding of bytes."""
    return READERS[platform](BeautifulSoup(text, parser))
