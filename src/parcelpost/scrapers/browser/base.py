"""Options, page steps and the protocols between the browser pool, rendering and the store. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, assert_never

from msgspec import Struct

from parcelpost.model import BrowserState

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from playwright.async_api import BrowserContext, Error, Page


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
    """Of memory, as its processes share it (PSS): above it a browser is retired."""
    idle_seconds: float = 60.0
    """After which a browser that nobody needs is stopped."""
    page_seconds: float = 60.0
    max_page_bytes: int = 64 * 1024**2
    """Of all that a page loads."""
    max_navigations: int = 10
    block: tuple[BlockedKind, ...] = ("image", "font", "media", "tracker")


class Fill(Struct, frozen=True, tag=True):
    """Writes into a field."""

    selector: str
    text: str


class Click(Struct, frozen=True, tag=True):
    selector: str


class Choose(Struct, frozen=True, tag=True):
    """Of a list, by the value or the text of an entry."""

    selector: str
    value: str


class WaitFor(Struct, frozen=True, tag=True):
    """Until it is there."""

    selector: str


Step = Fill | Click | Choose | WaitFor


def perform_step(step: Step, page: Page, milliseconds: float) -> Awaitable[object]:
    """Raises Playwright's errors, within that time where its element does not come."""
    element = page.locator(f"css={step.selector}").first
    match step:
        case Fill():
            return element.fill(step.text, timeout=milliseconds)
        case Click():
            return element.click(timeout=milliseconds)
        case Choose():
            return element.select_option(step.value, timeout=milliseconds)
        case WaitFor():
            return element.wait_for(state="attached", timeout=milliseconds)
        case _:
            assert_never(step)


class BrowserStore(Protocol):
    """The store's `browsers`. Every method may raise a StoreError."""

    async def add(self, state: BrowserState) -> int:
        """Answers the id that it gave to the browser."""

    async def put(self, state: BrowserState) -> None: ...

    async def all(self) -> list[BrowserState]:
        """Those of all pools on the store."""

    async def orphans(self) -> list[BrowserState]:
        """Those of pools whose process is dead."""

    async def remove(self, browser_id: int) -> bool: ...

    async def reap(self, state: BrowserState) -> bool:
        """Removes one that was left behind, unless another has its place by now."""

    async def assign(self, task_id: str, browser_id: int | None) -> None: ...


T = TypeVar("T")


class LeasedPage(Protocol):
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


class PageLender(Protocol):
    @property
    def figures(self) -> PoolLoad: ...

    def lend(
        self, task_id: str, *, patience: float = 5.0, **context_options: Any
    ) -> AbstractAsyncContextManager[LeasedPage]:
        """Raises NoBrowser, BrowserDied and NoTurn."""

    def opens_in(self) -> float:
        """0: a page would be lent at once; else the seconds until it is worth a look."""


class ArtifactSink(Protocol):
    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> object: ...


class NoArtifacts:
    async def put(self, task_id: str, screenshot: bytes | None, log: str) -> object:
        return None


class RenderContext(Struct, frozen=True, kw_only=True):
    """With what pages are rendered."""

    lender: PageLender
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
