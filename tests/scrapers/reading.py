"""Hand-made pages, and what comes of them."""

from __future__ import annotations

from typing import Any

import msgspec

from parcelpost.model import Done, Outcome, Page, Retry, Target
from parcelpost.scrapers.platforms import county_platform


def outcome(platform: str, page: str | dict[str, Any], state: str = "FL", asked: str = "") -> Outcome:
    found = county_platform(platform)
    assert found is not None
    body = page.encode() if isinstance(page, str) else msgspec.json.encode(page)
    return found.parse(Page(body=body), Target(parcel_id=asked, state=state, county="invented")).outcome


def record(platform: str, page: str | dict[str, Any], state: str = "FL") -> dict[str, Any]:
    """The record, also of a page that lacks sections: hand-made pages have those that a test is about."""
    found = outcome(platform, page, state)
    if isinstance(found, Retry) and found.partial is not None:
        found = found.partial
    assert isinstance(found, Done), found
    assert isinstance(found.data, dict)
    return found.data


def is_read(found: Outcome) -> bool:
    """Whether the page gave a record, if only a partial one."""
    return isinstance(found, Done) or (isinstance(found, Retry) and found.partial is not None)


def qpublic(**modules: str) -> str:
    """`owner_information="..."` is the module `Owner Information`."""
    sections = "".join(
        f'<section id="ctlBodyPane_ctl{at:02}_mSection"><header class="module-header"><div class="title">'
        f'{name.replace("_", " ").title()}</div></header><div class="module-content">{content}</div></section>'
        for at, (name, content) in enumerate(modules.items())
    )
    return f"<html><body>{sections}</body></html>"


def two_columns(**rows: str) -> str:
    cells = "".join(
        f"<tr><td><strong>{name.replace('_', ' ').title()}</strong></td><td><div><span>{text}</span></div></td></tr>"
        for name, text in rows.items()
    )
    return f'<table class="tabular-data-two-column"><tbody>{cells}</tbody></table>'


def grid(*rows: tuple[str, ...]) -> str:
    return "<table>" + "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows) + "</table>"
