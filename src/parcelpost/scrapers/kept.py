"""A page that was kept, in the form in which somebody's parse function was given it when it was fetched."""

from __future__ import annotations

from parcelpost.model import Page
from parcelpost.scrapers.charset import decoded

UNKNOWN = "application/octet-stream"
"""The type of a page that came as bytes, of which nobody said what they are."""


class Text(str):
    """The page's text, which can also be asked as a Page can."""

    body: bytes
    content_type: str
    url: str


class Bytes(bytes):
    """The page's bytes, which can also be asked as a Page can."""

    body: bytes
    content_type: str
    url: str


def form(page: Page, annotation: str) -> object:
    """As the function's first parameter is annotated. One that says nothing is given what answers to all of it."""
    if annotation == "Page":
        return page
    given: Text | Bytes
    if annotation == "bytes" or (annotation != "str" and page.content_type == UNKNOWN):
        given = Bytes(page.body)
    else:
        given = Text(decoded(page.body, page.content_type))
    given.body, given.content_type, given.url = page.body, page.content_type, page.url
    return given
