"""Which ledger a command means, and what it says where the gateway's packages are missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.given import settled
from parcelpost.errors import LedgerError, ParcelpostError, extra_hint

if TYPE_CHECKING:
    from parcelpost.gateway.ledger import Ledger

Database = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="WHERE", help="The ledger: an SQLite file or postgresql://...; else server.database."
    ),
]

_POSTGRES = ("postgresql://", "postgres://")
_IN_EXTRA = {"asyncpg": "postgres"}


@contextmanager
def needed_packages() -> Iterator[None]:
    """Raises ParcelpostError that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("parcelpost"):
            raise
        extras = ",".join(dict.fromkeys(("gateway", _IN_EXTRA.get(error.name or "", "gateway"))))
        raise ParcelpostError(
            f"the gateway needs the package {error.name}, which is not installed",
            hint=extra_hint(extras),
        ) from error


@asynccontextmanager
async def ledger(database: str | None, *, make: bool = False) -> AsyncIterator[Ledger]:
    """The ledger that was named, else the settings'. An SQLite file that is not there is made only if `make` is set.

    Raises LedgerError, LedgerUnavailable and InvalidSettings.
    """
    from parcelpost.cli.running import CLOCK

    server = settled().server
    where = database or server.database
    if not make and not where.startswith(_POSTGRES) and not Path(where).exists():
        raise LedgerError(
            f"there is no ledger at {where}",
            hint="name the one that is meant with --database or server.database",
        )
    with needed_packages():
        from parcelpost.gateway.opening import open_ledger

        async with open_ledger(where, server.max_attempts, CLOCK) as opened:
            yield opened
