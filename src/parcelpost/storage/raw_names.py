"""Names for raw files: nothing that a page or a gateway says can leave the folder or harm a file system."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote

_MAX_BYTES = 120
_RESERVED = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE
)  # devices on Windows, where data may be read


def safe_name(value: str) -> str:
    """One path component: readable where it can be, percent-encoded where not, cut with a hash where too long."""
    name = quote(value, safe=" ,+=()").replace("~", "%7E").strip(" ")
    if name.startswith(".") or _RESERVED.fullmatch(name):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if name.endswith("."):
        name = f"{name[:-1]}%2E"
    if len(name) > _MAX_BYTES:
        digest = hashlib.sha256(value.encode()).hexdigest()[:16]
        name = f"{name[: _MAX_BYTES - 17]}~{digest}"
    return name or "%"


@lru_cache(1_024)  # thousands of pages come from the same county
def folder_of(platform: str, state: str, county: str) -> str:
    return f"{safe_name(platform)}/{safe_name(state)}/{safe_name(county)}"


def inside(root: Path, relative: str) -> Path:
    """The file of that name under root. Raises ValueError for a name that leads elsewhere."""
    path = Path(relative)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{relative!r} leads out of the data folder")
    return root / path
