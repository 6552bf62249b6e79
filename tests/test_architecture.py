"""Which room of src/parcelpost may import which, and habits that hold everywhere. The rules are the tables below."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "parcelpost"

_GROUND = {"model", "errors", "clock", "health_checks", "schedule", "units"}
_WORKER = _GROUND | {
    "places",
    "settings",
    "events",
    "telemetry",
    "protocol",
    "storage",
    "upstream",
    "scrapers",
    "files_and_sockets",
}
_SIMULATOR = _WORKER | {
    "private_addresses",
    "changes",
    "search_fields",
    "log_lines",
    "worker",
    "gateway",
    "object_store",
}

# A room is a module or a package directly under parcelpost. Nobody imports cli or contrib; only cli imports chaos, only
# these two import simulator.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "model": set(),
    "errors": set(),
    "clock": {"errors"},
    "health_checks": set(),
    "schedule": {"errors"},
    "units": set(),
    "places": {"model", "errors"},
    "search_fields": {"model"},
    "changes": {"errors", "model", "search_fields"},
    "private_addresses": {"errors"},
    "settings": _GROUND | {"places"},
    "events": _GROUND,
    "protocol": _GROUND | {"places"},
    "files_and_sockets": {"clock"},
    "export": _GROUND | {"files_and_sockets", "changes", "places"},
    "object_store": {"errors", "files_and_sockets"},
    "log_lines": _GROUND | {"events"},
    "telemetry": _GROUND | {"events"},
    "storage": {"model", "errors", "events", "clock", "health_checks", "places", "settings"},
    "upstream": {"model", "errors", "events", "protocol", "settings", "object_store"},
    "scrapers": {"model", "errors", "events", "clock", "places", "settings", "files_and_sockets", "private_addresses"},
    "worker": _WORKER,
    "gateway": {
        "model",
        "errors",
        "health_checks",
        "schedule",
        "units",
        "events",
        "clock",
        "places",
        "search_fields",
        "changes",
        "private_addresses",
        "protocol",
        "settings",
        "object_store",
        "files_and_sockets",
        "export",
    },
    "contrib": _GROUND | {"places", "settings", "storage", "scrapers"},
    "simulator": _SIMULATOR,
    "chaos": _SIMULATOR | {"simulator"},
    "cli": _SIMULATOR | {"simulator", "chaos", "export", "files_and_sockets"},
}

# Rooms that stand on the standard library, with what else each may use.
LIBRARIES_OF: dict[str, set[str]] = {
    "__init__": set(),
    "model": {"msgspec"},
    "errors": set(),
    "clock": {"msgspec"},
    "health_checks": {"msgspec"},
    "schedule": {"cronsim", "msgspec"},
    "units": set(),
}

# Libraries that belong to certain rooms.
ROOMS_OF: dict[str, set[str]] = {
    "aiosqlite": {"storage"},
    "asyncpg": {"gateway", "chaos"},
    "google": {"upstream"},
    "grpc": {"upstream"},
    "httpcore2": {"scrapers", "private_addresses", "gateway"},
    "httpx2": {"upstream", "scrapers", "simulator", "private_addresses"},
    "isal": {"storage"},
    "itemadapter": {"contrib"},
    "obstore": {"object_store"},
    "playwright": {"scrapers"},
    "protego": {"scrapers"},
    "pyarrow": {"export"},
    "scrapy": {"contrib"},
    "sqlite3": {"storage", "gateway", "export", "chaos"},
    "starlette": {"gateway"},
    "time": {"clock"},
    "twisted": {"contrib"},
    "uvicorn": {"gateway"},
    "xlsxwriter": {"export"},
    "zstandard": {"gateway"},
    "bench": set(),
    "tests": set(),
}

# The only modules outside gateway/api that may import it: commands and the dashboard use what the routes are made of.
API_USERS = {"gateway/app.py", "gateway/openapi.py"}

# Time is read, and waited for, through a Clock only.
CLOCK_ONLY = {
    "asyncio.sleep",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
}

# Where a broad except may stand, each with its reason. One that only cleans up and ends in `raise` may stand anywhere.
BROAD_EXCEPT = {
    "cli/health/doctor.py",  # a bug of ours in one check would hide what the others find
    "worker/loop.py",  # a bug of ours in one step: reported, backed off, given up after a few
    "worker/outcomes.py",  # platform code may raise anything, also from its exceptions' __str__; it becomes an Outcome
    "worker/sandbox.py",
    "storage/writer.py",  # the thread itself failed: every waiting caller is given the error
    "scrapers/browser/browser.py",  # Playwright raises plain exceptions too; the caller is given each as its own type
    "scrapers/browser/pool.py",  # a bug of ours in keeping browsers: told to who waits, tried again
    "gateway/maintenance.py",  # the gateway's own loop: a bug of ours in one duty is reported, and tried again
    "gateway/schedules.py",  # a bug of ours in one schedule is reported, and does not stop the others
    "gateway/ledger/sqlite_connections.py",  # whatever a change raised is given to the caller whose change it was
}


def violations(source: Path) -> list[str]:
    """Every broken rule in the package at `source`, as `file:line: what`."""
    found: list[str] = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        text = path.read_text(encoding="utf-8")
        module = _Module(name, ast.parse(text))
        found += [f"{name}:{line}: {what}" for line, what in sorted(module.violations())]
    return found


class _Import(NamedTuple):
    line: int
    target: str
    name: str
    """The name it binds here, and what that name stands for: `import a.b` binds `a`."""
    meaning: str


class _Module:
    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name = name
        self.room = name.removesuffix(".py").split("/")[0]
        self.nodes = list(ast.walk(tree))
        self.package = ["parcelpost", *name.split("/")[:-1]]
        self.imports = list(self._imports())
        self.names = {found.name: found.meaning for found in self.imports}

    def _imports(self) -> Iterator[_Import]:
        """Every import, wherever it stands."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    yield _Import(node.lineno, alias.name, alias.asname or top, alias.name if alias.asname else top)
            elif isinstance(node, ast.ImportFrom):
                above = self.package[: len(self.package) - node.level + 1] if node.level else []
                base = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    target = f"{base}.{alias.name}"
                    yield _Import(node.lineno, target, alias.asname or alias.name, target)

    def violations(self) -> Iterator[tuple[int, str]]:
        if self.room not in MAY_IMPORT:
            yield 1, f"the room {self.room} has no rule in MAY_IMPORT"
            return
        for found in self.imports:
            top, *rest = found.target.split(".")
            if found.target.startswith("parcelpost.gateway.api.") and not self._may_use_api():
                yield found.line, f"{self.name} may not import gateway.api"
            broken = self._room_rule(rest[0]) if top == "parcelpost" and rest else self._library_rule(top)
            if broken:
                yield found.line, broken
        yield from self._clock_rule()
        yield from self._except_rule()

    def _may_use_api(self) -> bool:
        return self.name in API_USERS or self.name.startswith("gateway/api/")

    def _room_rule(self, room: str) -> str | None:
        if room in MAY_IMPORT[self.room] or room == self.room or room not in MAY_IMPORT:
            return None  # a name that is no room is an attribute of parcelpost itself, such as __version__
        return f"{self.room} may not import {room}"

    def _library_rule(self, library: str) -> str | None:
        if self.room not in ROOMS_OF.get(library, {self.room}):
            return f"{self.room} may not import {library}"
        if self.room in LIBRARIES_OF and library not in sys.stdlib_module_names | LIBRARIES_OF[self.room]:
            return f"{self.room} may not import {library}, which is not in the standard library"
        return None

    def _clock_rule(self) -> Iterator[tuple[int, str]]:
        if self.room == "clock":
            return
        for node in self.nodes:
            if isinstance(node, ast.Name | ast.Attribute) and (used := self._full_name(node)) in CLOCK_ONLY:
                yield node.lineno, f"{used} belongs to clock"

    def _full_name(self, node: ast.expr) -> str:
        """The dotted name of an expression with import aliases resolved, or '' where it has none."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if isinstance(node, ast.Attribute) and (owner := self._full_name(node.value)):
            return f"{owner}.{node.attr}"
        return ""

    def _except_rule(self) -> Iterator[tuple[int, str]]:
        if self.name in BROAD_EXCEPT:
            return
        for node in self.nodes:
            if isinstance(node, ast.ExceptHandler):
                broken = (node.type is None or _is_broad(node.type)) and not _raises_again(node)
            elif isinstance(node, ast.Call):
                broken = self._full_name(node.func) == "contextlib.suppress" and any(map(_is_broad, node.args))
            else:
                continue
            if broken:
                yield node.lineno, "broad except"


def _is_broad(caught: ast.expr) -> bool:
    members = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(isinstance(member, ast.Name) and member.id in {"Exception", "BaseException"} for member in members)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    leaves = any(isinstance(node, ast.Return | ast.Break | ast.Continue) for node in ast.walk(handler))
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None and not leaves


def test_the_source_keeps_every_rule() -> None:
    assert violations(SOURCE) == []


def test_the_source_is_where_the_test_looks() -> None:
    assert (SOURCE / "model.py").is_file()


# (file, its text, the one violation expected)
BROKEN = [
    ("storage/db.py", "import parcelpost.worker.loop", "1: storage may not import worker"),
    ("storage/db.py", "from parcelpost import protocol", "1: storage may not import protocol"),
    ("storage/deep/db.py", "from ...upstream import gateway", "1: storage may not import upstream"),
    ("storage/__init__.py", "from .. import scrapers", "1: storage may not import scrapers"),
    ("storage/db.py", "def f():\n    from ..log_lines import line", "2: storage may not import log_lines"),
    ("model.py", "from .errors import InvalidInput", "1: model may not import errors"),
    ("errors.py", "from parcelpost.model import Task", "1: errors may not import model"),
    ("clock.py", "from parcelpost.model import Task", "1: clock may not import model"),
    ("events.py", "from parcelpost.settings import Settings", "1: events may not import settings"),
    ("upstream/gateway.py", "from parcelpost.clock import Clock", "1: upstream may not import clock"),
    ("scrapers/factory.py", "from parcelpost.storage import lpm", "1: scrapers may not import storage"),
    ("worker/sync.py", "from parcelpost import log_lines", "1: worker may not import log_lines"),
    ("worker/sync.py", "from parcelpost.cli.main import main", "1: worker may not import cli"),
    ("worker/sync.py", "from parcelpost.simulator import county", "1: worker may not import simulator"),
    ("export/tables.py", "from parcelpost.storage import outbox", "1: export may not import storage"),
    ("worker/sync.py", "from parcelpost.export import tables", "1: worker may not import export"),
    ("gateway/app.py", "from parcelpost.storage.db import LocalDatabase", "1: gateway may not import storage"),
    ("simulator/county.py", "from parcelpost.cli import main", "1: simulator may not import cli"),
    ("contrib/scrapy.py", "from parcelpost.worker.loop import Loop", "1: contrib may not import worker"),
    ("worker/sync.py", "from parcelpost.contrib import scrapy", "1: worker may not import contrib"),
    ("cli/main.py", "import scrapy", "1: cli may not import scrapy"),
    (
        "gateway/webhooks.py",
        "from parcelpost.gateway.api import params",
        "1: gateway/webhooks.py may not import gateway.api",
    ),
    ("helpers/text.py", "", "1: the room helpers has no rule in MAY_IMPORT"),
    ("cli/main.py", "import bench.store", "1: cli may not import bench"),
    ("cli/main.py", "import sqlite3", "1: cli may not import sqlite3"),
    ("worker/sync.py", "from aiosqlite import connect", "1: worker may not import aiosqlite"),
    ("gateway/app.py", "from isal import igzip", "1: gateway may not import isal"),
    ("cli/commands/run.py", "from google.cloud import firestore", "1: cli may not import google"),
    ("upstream/firestore.py", "import obstore", "1: upstream may not import obstore"),
    ("errors.py", "import msgspec", "1: errors may not import msgspec, which is not in the standard library"),
    ("model.py", "import rich", "1: model may not import rich, which is not in the standard library"),
    ("cli/main.py", "import time", "1: cli may not import time"),
    ("worker/loop.py", "import asyncio\nasyncio.sleep(1)", "2: asyncio.sleep belongs to clock"),
    ("worker/loop.py", "from asyncio import sleep as nap\nnap(1)", "2: asyncio.sleep belongs to clock"),
    ("model.py", "from datetime import datetime\ndatetime.now()", "2: datetime.datetime.now belongs to clock"),
    ("model.py", "import datetime as dt\nf = dt.date.today", "2: datetime.date.today belongs to clock"),
    ("storage/lpm.py", "try:\n    f()\nexcept Exception:\n    g()", "3: broad except"),
    ("storage/lpm.py", "try:\n    f()\nexcept:\n    g()", "3: broad except"),
    ("storage/lpm.py", "try:\n    f()\nexcept (OSError, BaseException) as e:\n    g()", "3: broad except"),
    ("storage/lpm.py", "try:\n    f()\nexcept Exception:\n    if g():\n        return\n    raise", "3: broad except"),
    ("storage/lpm.py", "try:\n    f()\nexcept Exception as e:\n    raise OSError from e", "3: broad except"),
    ("cli/main.py", "import contextlib\nwith contextlib.suppress(Exception):\n    f()", "2: broad except"),
]


def test_a_broken_rule_is_found(tmp_path: Path) -> None:
    for number, (name, text, expected) in enumerate(BROKEN):
        source = tmp_path / str(number)
        _write(source, name, text)
        assert violations(source) == [f"{name}:{expected}"]


SOUND = [
    ("__main__.py", "from parcelpost.cli.main import main"),
    ("clock.py", "import asyncio\nimport time\nfrom datetime import datetime\ndatetime.now()\nasyncio.sleep(1)"),
    ("clock.py", "from parcelpost.errors import InvalidInput"),
    ("model.py", "from msgspec import Struct\n"),
    ("storage/db.py", "import aiosqlite, sqlite3\nfrom isal import igzip"),
    ("storage/db.py", "from . import tasks\nfrom .tasks import claim"),
    ("storage/db.py", "from parcelpost import __version__, model\nfrom ..events import Saved"),
    ("storage/lpm.py", "now = clock.now()\nawait_ = clock.sleep(1)\ntry:\n    f()\nexcept OSError:\n    g()"),
    ("storage/lpm.py", "try:\n    f()\nexcept BaseException:\n    g()\n    raise"),
    ("worker/loop.py", "try:\n    f()\nexcept Exception:\n    g()"),
    ("cli/main.py", "import typer\nfrom parcelpost.simulator import county\nfrom parcelpost.gateway import app"),
]


def test_what_is_allowed_passes(tmp_path: Path) -> None:
    for number, (name, text) in enumerate(SOUND):
        source = tmp_path / str(number)
        _write(source, name, text)
        assert violations(source) == []


def _write(source: Path, name: str, text: str) -> None:
    path = source / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
