"""The settings file of `parcelpost init`, and what comes after it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from parcelpost.cli.readiness import is_own_machine
from parcelpost.errors import InvalidInput
from parcelpost.settings.schema import KEYS, from_text
from parcelpost.settings.secrets import TOKEN_VARIABLE
from parcelpost.settings.sources import DEFAULT
from parcelpost.settings.toml import settings_file
from parcelpost.storage.durable_files import make_folder


class Written(Struct, frozen=True, kw_only=True):
    file: str
    mode: str
    notes: list[str]
    next: list[str]
    """What to do now, a command each."""


def check_folder(folder: Path, *, force: bool) -> None:
    """Before anybody is asked anything. Raises InvalidInput."""
    file = folder / DEFAULT
    if os.path.lexists(file) and not force:
        raise InvalidInput(f"{file} is there already", hint="add --force to replace it, or edit it")
    existing = next(one for one in (folder.absolute(), *folder.absolute().parents) if one.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise InvalidInput(f"{existing} is no folder that can be written", hint="name another with --dir")


def write(folder: Path, chosen: Mapping[str, str], *, force: bool) -> Written:
    """Raises InvalidInput."""
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
        raise InvalidInput(f"{file} is there already", hint="add --force to replace it, or edit it") from None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written: {error.strerror}", hint="name another with --dir") from None
    finally:
        partial.unlink(missing_ok=True)
    url = chosen.get("gateway.url", "")
    return Written(
        file=str(file), mode=chosen["worker.mode"], notes=list(_notes(url)), next=list(_steps(folder, chosen))
    )


def _notes(url: str) -> Iterator[str]:
    if not url:
        return
    if is_own_machine(url):
        if not _has_token():
            yield "the gateway is on this machine: it may serve you without a token"
        return
    if urlsplit(url).scheme == "http":
        yield "http:// sends token and records as anybody on the way can read them; https:// does not"
    try:
        is_private = ip_address(urlsplit(url).hostname or "").is_private
    except ValueError:
        is_private = False
    if is_private:
        yield "the gateway has a private address: workers reach it from that network only"


def _has_token() -> bool:
    """In the environment: a new settings file names none."""
    return any(os.environ.get(name) for name in (TOKEN_VARIABLE, KEYS["gateway.token_file"].variable))


def _steps(folder: Path, chosen: Mapping[str, str]) -> Iterator[str]:
    if folder.absolute() != Path.cwd():
        yield f"cd {shlex.quote(str(folder))}"
    url = chosen.get("gateway.url", "")
    if url and not is_own_machine(url) and not _has_token():
        yield f"export {TOKEN_VARIABLE}=...    # or a file: gateway.token_file"
    if chosen["worker.mode"] == "standalone":
        yield "parcelpost import parcels.csv --platform NAME    # see 'parcelpost platforms'"
        yield "parcelpost run --until-empty"
    else:
        yield "parcelpost doctor    # does the gateway answer, and take the token?"
        yield "parcelpost run"
    yield "parcelpost status"
