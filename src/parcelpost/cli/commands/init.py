"""`parcelpost init`: asks for the main settings and writes parcelpost.toml."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.output import examples, fitted, print_json, print_lines, printable, terminal_width
from parcelpost.cli.platform_names import canonical_platform, platform_names
from parcelpost.cli.settings_options import AsJson
from parcelpost.errors import InvalidInput
from parcelpost.settings import Settings
from parcelpost.settings.schema import KEYS, from_text
from parcelpost.settings.secrets import TOKEN_VARIABLE
from parcelpost.settings.sources import DEFAULT, diagnose
from parcelpost.settings.toml import settings_file

_SETTING_NAMES = {
    "mode": "worker.mode",
    "gateway": "gateway.url",
    "slots": "executor.slots",
    "platforms": "worker.platforms",
}


class InitOptions(Struct, frozen=True, kw_only=True):
    """The options as given; None if omitted."""

    mode: str | None = None
    gateway: str | None = None
    slots: str | None = None
    platforms: str | None = None


def chosen_settings(given: InitOptions) -> dict[str, str]:
    """Returns setting names and their values as text. Raises InvalidInput."""
    mode = given.mode or ("ondemand" if given.gateway else "standalone")
    wanted = {"worker.mode": mode}
    if given.gateway:
        wanted["gateway.url"] = given.gateway
    if given.slots:
        wanted["executor.slots"] = given.slots
    if given.platforms:
        wanted["worker.platforms"] = _known_platforms(given.platforms)
    _check_settings(wanted)
    if mode != "standalone" and not given.gateway:
        raise InvalidInput(
            f"mode {mode} needs a gateway", hint="add --gateway URL, or use --mode standalone to work without one"
        )
    return wanted


def _known_platforms(platforms: str) -> str:
    known = platform_names(Settings())
    return ",".join(canonical_platform(name.strip(), known) for name in platforms.split(",") if name.strip())


def _check_settings(wanted: dict[str, str]) -> None:
    diagnosis = diagnose(config=None, environment={}, flags=wanted)
    for problem in diagnosis.problems:
        raise InvalidInput(problem.message.removeprefix("flag --set: "), hint=problem.fix)


def ask_options(given: InitOptions) -> InitOptions:
    """Asks on the terminal for each missing option until the answer is valid. Raises InvalidInput at end of input."""
    if given.mode is None and given.gateway is None:
        print(
            "standalone: import tasks from a file and keep results here. "
            "ondemand: get tasks from a gateway and deliver results to it.",
            file=sys.stderr,
        )
    if given.mode is None:
        default = "ondemand" if given.gateway else "standalone"
        given = replace(given, mode=_ask("Mode", default, lambda text: _check_settings({_SETTING_NAMES["mode"]: text})))
    if given.gateway is None and given.mode != "standalone":
        given = replace(given, gateway=_ask("Gateway URL", "", _usable_address))
    if given.slots is None:
        default = str(KEYS[_SETTING_NAMES["slots"]].default)
        slots = _ask("Tasks to run at a time", default, lambda text: _check_settings({_SETTING_NAMES["slots"]: text}))
        given = replace(given, slots=None if slots == default else slots)
    if given.platforms is None:
        platforms = _ask(
            "Platforms, separated by commas (empty: all)", "", lambda text: text and _known_platforms(text)
        )
        given = replace(given, platforms=platforms or None)
    return given


def _usable_address(text: str) -> None:
    if not text:
        raise InvalidInput("enter a URL, such as https://gateway.example.org")
    _check_settings({_SETTING_NAMES["gateway"]: text})


def _ask(question: str, default: str, check: Callable[[str], object]) -> str:
    while True:
        print(f"{question}{f' [{default}]' if default else ''}: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise InvalidInput("no answer: nothing was written", hint="add --yes to skip the questions")
        text = line.strip() or default
        try:
            check(text)
        except InvalidInput as error:
            print(printable(f"  {error}"), file=sys.stderr)
            continue
        return text


class WrittenSettings(Struct, frozen=True, kw_only=True):
    file: str
    mode: str
    notes: list[str]
    next: list[str]
    """The commands to run next."""


def check_folder(folder: Path, *, force: bool) -> None:
    """Checks, before any question, that the file can be written. Raises InvalidInput."""
    file = folder / DEFAULT
    if os.path.lexists(file) and not force:
        raise InvalidInput(f"{file} already exists", hint="edit it, or add --force to replace it")
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise InvalidInput(f"{existing} is not a writable folder", hint="choose another with --dir")


def write_settings(folder: Path, chosen: Mapping[str, str], *, force: bool) -> WrittenSettings:
    """Writes the settings file. Raises InvalidInput."""
    from parcelpost.storage.durable_files import make_folder

    file = folder / DEFAULT
    text = settings_file({name: from_text(KEYS[name], value) for name, value in chosen.items()})
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        make_folder(folder.absolute())
        with os.fdopen(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as new:
            new.write(text)
        if force:
            partial.replace(file)
        else:
            os.link(partial, file)
    except FileExistsError:
        raise InvalidInput(f"{file} already exists", hint="edit it, or add --force to replace it") from None
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror}", hint="choose another folder with --dir") from None
    finally:
        partial.unlink(missing_ok=True)
    url = chosen.get("gateway.url", "")
    return WrittenSettings(
        file=str(file), mode=chosen["worker.mode"], notes=list(_notes(url)), next=list(_next_steps(folder, chosen))
    )


def _notes(url: str) -> Iterator[str]:
    from parcelpost.private_addresses import is_local_url

    if not url:
        return
    if is_local_url(url):
        if not _has_token():
            yield "the gateway is on this machine and may not need a token"
        return
    if urlsplit(url).scheme == "http":
        yield "http:// sends the token and all records unencrypted; use https:// if you can"
    try:
        is_private = ip_address(urlsplit(url).hostname or "").is_private
    except ValueError:
        is_private = False
    if is_private:
        yield "the gateway has a private address: only workers on that network can reach it"


def _has_token() -> bool:
    """Whether the environment provides a token; a new settings file never does."""
    return any(os.environ.get(name) for name in (TOKEN_VARIABLE, KEYS["gateway.token_file"].variable))


def _next_steps(folder: Path, chosen: Mapping[str, str]) -> Iterator[str]:
    from parcelpost.private_addresses import is_local_url

    if folder.absolute() != Path.cwd():
        yield f"cd {shlex.quote(str(folder))}"
    url = chosen.get("gateway.url", "")
    if url and not is_local_url(url) and not _has_token():
        yield f"export {TOKEN_VARIABLE}=...    # or set gateway.token_file"
    if chosen["worker.mode"] == "standalone":
        yield "parcelpost import parcels.csv --platform NAME    # see 'parcelpost platforms'"
        yield "parcelpost run --until-empty"
    else:
        yield "parcelpost doctor    # checks the gateway and the token"
        yield "parcelpost run"
    yield "parcelpost status"


EXAMPLES = examples(
    "parcelpost init",
    "parcelpost init --yes",
    "parcelpost init --mode ondemand --gateway https://gateway.example.org --slots 8 --yes",
    "parcelpost init --dir /srv/parcelpost --platforms vgsi,qpublic --yes",
)


def init(
    mode: Annotated[str | None, typer.Option("--mode", metavar="MODE", help="ondemand, legacy or standalone.")] = None,
    gateway: Annotated[str | None, typer.Option("--gateway", metavar="URL", help="Gateway URL.")] = None,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Folder for the settings file and the store.")
    ] = Path(),
    slots: Annotated[str | None, typer.Option("--slots", metavar="N", help="Number of tasks to run at a time.")] = None,
    platforms: Annotated[
        str | None, typer.Option("--platforms", metavar="A,B", help="Only take tasks for these platforms.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; use defaults for omitted options.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing settings file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a settings file, parcelpost.toml, that lists every key.

    On a terminal it asks for the main options you omitted. Secrets are never written; the output shows where to put the
    token. An existing file is not replaced without --force.
    """

    check_folder(folder, force=force)
    given = InitOptions(mode=mode, gateway=gateway, slots=slots, platforms=platforms)
    if not yes and sys.stdin.isatty():
        given = ask_options(given)
    chosen = chosen_settings(given)
    written = write_settings(folder, chosen, force=force)
    if as_json:
        print_json(written)
        return
    print(f"Wrote {printable(written.file)} ({written.mode}).")
    print_lines(fitted((f"Note: {printable(note)}." for note in written.notes), terminal_width()))
    print("\nNext:")
    for step in written.next:
        print(f"  {printable(step)}")
