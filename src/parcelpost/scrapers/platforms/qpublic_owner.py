"""The owners' module of `qpublic`: blocks of lines, each a name with an address below it."""

from __future__ import annotations

from collections.abc import Iterator

from parcelpost.scrapers import values
from parcelpost.scrapers.addresses import country_of, is_last_of_address, owners_and_mailing
from parcelpost.scrapers.document import Element, label, lines_of
from parcelpost.scrapers.record import Record

_HEADINGS = frozenset(
    {
        "owner",
        "owners",
        "owner name",
        "owner information",
        "primary owner",
        "secondary owner",
        "other owner",
        "current owner",
        "name",
        "names",
        "deed holder",
        "contract holder",
        "contract buyer",
        "contract owner",
        "title holder",
        "taxpayer",
        "tax payer",
        "address",
        "owner address",
        "mailing address",
        "mailing name & address",
        "mail to",
    }
)
_MAIL_ONLY = frozenset({"mailing address", "mailing name & address", "mail to", "taxpayer", "tax payer"})
"""Under these stands where mail goes; whose parcel it is stands under another."""
_MOST_LINES = 60
_Block = tuple[str, list[str], tuple[list[str], list[str], values.Place | None]]
"""A heading, the lines below it, and what these say."""
_NOBODY: _Block = ("", [], ([], [], None))


def take_owner(record: Record, module: Element) -> None:
    """All names, and the address of the mail, else the first owner's."""
    blocks = [(heading, lines, owners_and_mailing(lines)) for heading, lines in _blocks(module) if lines]
    names = [name for heading, _, read in blocks if heading not in _MAIL_ONLY for name in read[0]]
    record.owner_names = list(dict.fromkeys(names)) or [name for _, _, read in blocks for name in read[0]][:1]
    mail = next((block for block in blocks if block[0] in _MAIL_ONLY and block[2][2]), None)
    _, lines, (_, record.mailing_lines, place) = mail or (blocks[0] if blocks else _NOBODY)
    record.mailing_country = country_of(lines)
    if place is not None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip


def _blocks(module: Element) -> Iterator[tuple[str, list[str]]]:
    """Each up to a line with city and state, with the heading above it."""
    content = next((one for one in module.iter("div") if "module-content" in (one.get("class") or "")), module)
    heading = ""
    lines: list[str] = []
    for line in lines_of(content)[:_MOST_LINES]:
        if label(line) in _HEADINGS:
            yield heading, lines
            heading, lines = label(line), []
        else:
            lines.append(line)
            if is_last_of_address(lines):
                yield heading, lines
                lines = []
    yield heading, lines
