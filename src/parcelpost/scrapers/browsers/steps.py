"""What is to be done on a page before it is read. Selectors are CSS."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from playwright.async_api import Page


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


def taken(step: Step, page: Page, milliseconds: float) -> Awaitable[object]:
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
