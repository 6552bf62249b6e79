"""What rendering needs of others: somebody who lends pages, and somebody who keeps what a failed one looked like."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from parcelpost.scrapers.browsers.options import BrowserOptions

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Error, Page

T = TypeVar("T")


class LentPage(Protocol):
    """A page in a context of its own, which nobody has used before."""

    @property
    def browser_id(self) -> int: ...
    @property
    def context(self) -> BrowserContext: ...
    @property
    def page(self) -> Page: ...

    async def alive(self, work: Awaitable[T]) -> T:
        """Waits for it. Raises BrowserDied the moment the browser is gone."""

    def stop(self, reason: str) -> None:
        """Ends its browser at once, for what the page does."""


class PoolLoad(Protocol):
    @property
    def busy(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class Lender(Protocol):
    @property
    def figures(self) -> PoolLoad: ...

    def lend(
        self, task_id: str, *, patience: float = 5.0, **context_options: Any
    ) -> AbstractAsyncContextManager[LentPage]:
        """Raises NoBrowser, BrowserDied and NoTurn."""

    def opens_in(self) -> float:
        """0: a page would be lent at once; else the seconds until it is worth a look."""


class ArtifactSink(Protocol):
    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> object: ...


class NoArtifacts:
    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> object:
        return None


class Browsing(Struct, frozen=True, kw_only=True):
    """With what pages are rendered."""

    lender: Lender
    options: BrowserOptions = BrowserOptions()
    profiles: Path | None = None
    """The folder of what people have saved of their sessions; None: there are none."""
    artifacts: ArtifactSink = NoArtifacts()
    quiet_seconds: float = 5.0
    """A page that loads nothing for so long brings nothing more."""
    idle_seconds: float = 30.0
    """After which a page is taken back from an attempt that does nothing with it."""


def playwright_error() -> type[Error]:
    """What its calls raise; there is one only where a page was lent."""
    from playwright.async_api import Error

    return Error
