"""POST /raw-files: a page's name, what is told about it, and the answer."""

from __future__ import annotations

import hashlib
import re

import msgspec

from parcelpost.clock import iso
from parcelpost.errors import InvalidInput, NotNow
from parcelpost.model import OutboxEntry
from parcelpost.wire.reading import member, members

_MOST_PART_CHARS = 48
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+|\.{2,}", re.ASCII)


def raw_file_name(entry: OutboxEntry) -> str:
    """`{platform}_{state}_{county}_{parcel}_{sha256 first 12}.html.gz`: ASCII, no separators, at most 240 characters.

    The gateway keeps base names only and overwrites. Where a part cannot stand as it is, or holds the underscore that
    parts are joined with, a hash of the parts as they were keeps the name unique. Raises InvalidInput without a page.
    """
    if not entry.raw_sha256:
        raise InvalidInput(f"the entry of task {entry.task_id} has no page")
    parts: tuple[str, ...] = (entry.platform, entry.state, entry.county, entry.parcel_id)
    if entry.page_shared and entry.html_path:  # several parcels' page: the same name for all of them
        parts = (*entry.html_path.split("/")[:3], entry.html_path.removesuffix(".html.gz").split("/")[-1])
    safe = [_UNSAFE.sub("-", part)[:_MOST_PART_CHARS] for part in parts]
    safe[0] = safe[0].lstrip(".-")
    name = "_".join(safe)
    if tuple(safe) != parts:
        name += f"~{hashlib.sha256(repr(parts).encode(errors='backslashreplace')).hexdigest()[:12]}"
    return f"{name}_{entry.raw_sha256[:12]}.html.gz"


def raw_file_metadata(entry: OutboxEntry) -> bytes:
    """The form's `metadata`. `sha256` is that of the page itself, which travels compressed."""
    return msgspec.json.encode(
        {
            "task_id": entry.task_id,
            "parcel_id": entry.parcel_id,
            "platform": entry.platform,
            "state": entry.state,
            "county": entry.county,
            "sha256": entry.raw_sha256,
            "content_type": "text/html",
            "content_encoding": "gzip",
            "scraped_at": iso(entry.scraped_at),
        }
    )


def read_raw_file(body: bytes) -> None:
    """Returns if the file is kept. Raises NotNow if it is not, or if that cannot be told."""
    status = member(members(body), "status")
    if status != "ok":
        raise NotNow("it says that the file was not kept" if status == "error" else "it does not say 'ok'")
