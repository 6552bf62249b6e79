"""A browser: found and, with --deep, tried. That there is none matters only where something needs one."""

from __future__ import annotations

from parcelpost.cli.browser_options import browser_options
from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.known_platforms import sites
from parcelpost.errors import InvalidSettings
from parcelpost.scrapers.browsers import chromium
from parcelpost.scrapers.browsers.chromium import Missing


async def look(case: Case) -> list[Answer]:
    needed = _who_needs_one(case)
    if case.deep and needed:
        from parcelpost.cli.browser_trial import diagnose

        tried = await diagnose(case.store)
        return [Answer("browser", f"{tried.executable}: a page was loaded", tried.problems)]
    from parcelpost.cli.browser_missing import missing_problems

    found = chromium.find(browser_options(case.settings))
    if not isinstance(found, Missing):
        return [Answer("browser", f"{found.path}; 'parcelpost browser doctor' starts it")]
    if needed:
        return [Answer("browser", "", missing_problems(found))]
    return [Answer("browser", f"{found.reason}; nothing here has needed one so far", skipped=True)]


def _who_needs_one(case: Case) -> bool:
    """What the settings say. Tasks that wait for one are told with the worker's state."""
    if case.settings.browser.executable:
        return True
    try:
        return any(county.profile for county in sites(case.settings).counties)
    except InvalidSettings:
        return False
