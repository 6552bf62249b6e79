"""How browsers are used. `docs/settings.md` says what each means."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Sandbox = Literal["auto", "on", "off"]
Kind = Literal["image", "font", "media", "tracker"]


class BrowserOptions(Struct, frozen=True, kw_only=True):
    executable: str = ""
    """'': the first that is found."""
    most: int = 4
    """Browsers at once; 0: none is ever started."""
    sandbox: Sandbox = "auto"
    tasks_per_browser: int = 100
    max_age_seconds: float = 3_600.0
    max_browser_bytes: int = 1024**3
    """Of memory, as its processes share it (PSS): above it a browser is retired."""
    idle_seconds: float = 60.0
    """After which a browser that nobody needs is stopped."""
    page_seconds: float = 60.0
    max_page_bytes: int = 64 * 1024**2
    """Of all that a page loads."""
    max_navigations: int = 10
    block: tuple[Kind, ...] = ("image", "font", "media", "tracker")
