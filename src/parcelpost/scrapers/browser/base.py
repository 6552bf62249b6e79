"""Options, page steps, and the protocols between the browser pool, rendering and the store. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from msgspec import Struct

from parcelpost.model import BrowserState

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Error, Page


T = TypeVar("T")
SandboxMode = Literal["auto", "on", "off"]
BlockedKind = Literal["image", "font", "media", "tracker"]


class BrowserOptions(Struct, frozen=True, kw_only=True):
    executable: str = ""
    """'': the first that is found."""
    most: int = 4
    """Browsers at once; 0: none is ever started."""
    sandbox: SandboxMode = "auto"
    tasks_per_browser: int = 100
    max_age_seconds: float = 3_600.0
    max_browser_bytes: int = 1024**3
    """Memory (PSS) above which a browser is retired."""
    idle_seconds: float = 60.0
    """After which a browser that nobody needs is stopped."""
    page_seconds: float = 60.0
    max_page_bytes: int = 64 * 1024**2
    """Of everything that a page loads."""
    max_navigations: int = 10
    block: tuple[BlockedKind, ...] = ("image", "font", "media", "tracker")


class Fill(Struct, frozen=True, tag=True):
    """Types text into a field."""

    selector: str
    text: str


class Click(Struct, frozen=True, tag=True):
    selector: str


class Choose(Struct, frozen=True, tag=True):
    """Selects an entry of a list by its value or text."""

    selector: str
    value: str


class WaitFor(Struct, frozen=True, tag=True):
    """Waits until an element is there."""

    selector: str


Step = Fill | Click | Choose | WaitFor


class BrowserStore(Protocol):
    """The store's `browsers`. Every method may raise a StoreError."""

    async def add(self, state: BrowserState) -> int:
        """Returns the id that the browser was given."""

    async def put(self, state: BrowserState) -> None: ...

    async def all(self) -> list[BrowserState]:
        """Returns those of all pools on the store."""

    async def orphans(self) -> list[BrowserState]:
        """Returns those of crashed processes."""

    async def remove(self, state: BrowserState) -> bool:
        """Deletes it, unless another browser has its id by now."""

    async def assign(self, task_id: str, browser_id: int | None) -> None: ...


class LeasedPage(Protocol):
    """A page in a context of its own that nobody has used before."""

    @property
    def browser_id(self) -> int: ...
    @property
    def context(self) -> BrowserContext: ...
    @property
    def page(self) -> Page: ...

    async def call(self, work: Awaitable[T]) -> T:
        """Awaits it. Raises BrowserCrashed the moment the browser is gone."""

    def stop(self, reason: str) -> None:
        """Ends its browser at once, for what the page does."""


class PoolLoad(Protocol):
    @property
    def busy(self) -> int: ...
    @property
    def waiting(self) -> int: ...


class PagePool(Protocol):
    @property
    def figures(self) -> PoolLoad: ...

    def lease(
        self, task_id: str, *, timeout: float = 5.0, agent: str = "", **context_options: Any
    ) -> AbstractAsyncContextManager[LeasedPage]:
        """`agent` is added to the user agent. Raises BrowserUnavailable, BrowserCrashed and HostBusy."""

    def opens_in(self) -> float:
        """0: a page can be leased now; else seconds until it is worth asking again."""


class ArtifactSink(Protocol):
    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> object: ...


class RenderContext(Struct, frozen=True, kw_only=True):
    """What pages are rendered with."""

    pool: PagePool
    options: BrowserOptions = BrowserOptions()
    profiles: Path | None = None
    """The folder of saved profiles; None: there is none."""
    artifacts: ArtifactSink | None = None
    """Where screenshots and logs of failed attempts are stored; None: nowhere."""
    lease_seconds: float = 5.0
    """How long an attempt waits for a page before its task is put back."""
    quiet_seconds: float = 5.0
    """A page that loads nothing for this long is complete."""
    idle_seconds: float = 30.0
    """After which a page is taken back from an attempt that does nothing with it."""


def playwright_error() -> type[Error]:
    """Imported late: Playwright is an extra."""
    from playwright.async_api import Error

    return Error
