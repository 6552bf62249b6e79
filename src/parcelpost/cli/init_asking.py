"""What `parcelpost init` wants to know, and whether the answers can be used."""

from __future__ import annotations

import sys
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.output import printable
from parcelpost.cli.platform_names import names, spelled
from parcelpost.errors import InvalidInput
from parcelpost.settings import Settings
from parcelpost.settings.schema import KEYS
from parcelpost.settings.sources import diagnose

_NAMES = {
    "mode": "worker.mode",
    "gateway": "gateway.url",
    "slots": "executor.slots",
    "platforms": "worker.platforms",
}


class Wishes(Struct, frozen=True, kw_only=True):
    """As they were given; None: not."""

    mode: str | None = None
    gateway: str | None = None
    slots: str | None = None
    platforms: str | None = None


def chosen(given: Wishes) -> dict[str, str]:
    """Settings by their names, as text. Raises InvalidInput."""
    mode = given.mode or ("ondemand" if given.gateway else "standalone")
    wanted = {"worker.mode": mode}
    if given.gateway:
        wanted["gateway.url"] = given.gateway
    if given.slots:
        wanted["executor.slots"] = given.slots
    if given.platforms:
        wanted["worker.platforms"] = _known(given.platforms)
    _check(wanted)
    if mode != "standalone" and not given.gateway:
        raise InvalidInput(
            f"mode {mode} needs a gateway", hint="add --gateway URL, or take --mode standalone to work without one"
        )
    return wanted


def _known(platforms: str) -> str:
    known = names(Settings())
    return ",".join(spelled(name.strip(), known) for name in platforms.split(",") if name.strip())


def _check(wanted: dict[str, str]) -> None:
    found = diagnose(config=None, environment={}, flags=wanted)
    for problem in found.problems:
        raise InvalidInput(problem.what.removeprefix("flag --set: "), hint=problem.remedy)


def ask(given: Wishes) -> Wishes:
    """On the terminal, until the answer can be used. Raises InvalidInput where nobody answers any more."""
    if given.mode is None and given.gateway is None:
        print("standalone: tasks come from a file, results stay here. ondemand: both are a gateway's.", file=sys.stderr)
    if given.mode is None:
        default = "ondemand" if given.gateway else "standalone"
        given = replace(given, mode=_answer("Mode", default, lambda text: _check({_NAMES["mode"]: text})))
    if given.gateway is None and given.mode != "standalone":
        given = replace(given, gateway=_answer("The gateway's address", "", _usable_address))
    if given.slots is None:
        default = str(KEYS[_NAMES["slots"]].default)
        slots = _answer("How many tasks at a time", default, lambda text: _check({_NAMES["slots"]: text}))
        given = replace(given, slots=None if slots == default else slots)
    if given.platforms is None:
        platforms = _answer("Only these platforms, comma separated (all)", "", lambda text: text and _known(text))
        given = replace(given, platforms=platforms or None)
    return given


def _usable_address(text: str) -> None:
    if not text:
        raise InvalidInput("an address is needed, as https://gateway.example.org")
    _check({_NAMES["gateway"]: text})


def _answer(question: str, default: str, check: Callable[[str], object]) -> str:
    while True:
        print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise InvalidInput("nobody answered: nothing was written", hint="add --yes to be asked nothing")
        text = line.strip() or default
        try:
            check(text)
        except InvalidInput as error:
            print(printable(f"  {error}"), file=sys.stderr)
            continue
        return text
