"""Pages that hold nothing until their scripts have run."""

from __future__ import annotations

from parcelpost.model import Page
from parcelpost.scrapers.document import Document, text_of

_MOST_CHARS = 300
"""Of text in a page that says no more than that it is being loaded."""


def is_shell(page: Page) -> bool:
    """Whether it is a page with scripts and next to no text."""
    document = Document.of(page)
    if document is None or next(document.root.iter("script"), None) is None:
        return False
    hidden = sum(len(text_of(one)) for one in document.root.iter("noscript", "title"))
    return len(text_of(document.root)) - hidden <= _MOST_CHARS
