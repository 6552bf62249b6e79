"""The settings, as `parcelpost config check` finds them."""

from __future__ import annotations

import os
import shlex

from parcelpost.cli.config import judge
from parcelpost.cli.doctor import started
from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.status_report import Problem
from parcelpost.settings import Settings

_ASKED = "there is no token for the gateway"
"""Whether it wants one is asked of itself."""
_LACKS_URL = "needs gateway.url"
_KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


async def look(case: Case) -> list[Answer]:
    problems, warnings = judge(case.found)
    file = case.found.loaded.file if case.found.loaded else None
    is_new = case.found.loaded is not None and file is None
    alive, gone = await started.workers(case)
    is_mode_chosen = case.found.loaded is not None and case.found.loaded.origins["worker.mode"] != "default"
    if not any(one.upstream for one in alive + gone) and (alive or gone or not is_mode_chosen):
        # Its workers are standalone ones, or none ever ran and nobody has chosen what they are to be.
        problems = [one for one in problems if _LACKS_URL not in one.what]
    # A worker that runs was told on its command line; where none ever ran, none may be wanted.
    does_without = bool(alive) or not gone
    found = [
        *(_wrong(one.what, one.remedy, is_new=is_new, does_without_url=does_without) for one in problems),
        *(_warning(text, case.settings) for text in warnings if not text.startswith(_ASKED)),
    ]
    return [Answer("settings", f"of {file}" if file else "no settings file: defaults and the environment", found)]


def _wrong(what: str, remedy: str, *, is_new: bool, does_without_url: bool) -> Problem:
    is_url = _LACKS_URL in what
    init = "parcelpost init" if is_new and is_url else ""
    asks = f"'{init}' asks what is needed and writes it down; or " if init else ""
    return Problem(what, f"{asks}{remedy}", "settings", init, warning=is_url and does_without_url)


def _warning(text: str, settings: Settings) -> Problem:
    secrets = (settings.gateway.token_file, settings.firestore.credentials_file, os.environ.get(_KEY_VARIABLE, ""))
    open_to_all = next((file for file in secrets if file and "chmod 600" in text and file in text), "")
    command = f"chmod 600 {shlex.quote(open_to_all)}" if open_to_all else ""
    remedy = f"run '{command}'" if command else "see 'parcelpost config show' for where each value comes from"
    return Problem(text, remedy, "settings", command, warning=True)
