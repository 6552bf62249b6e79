"""The ledger in one SQLite file, for one machine."""

from parcelpost.gateway.ledger_sqlite.ledger import SqliteLedger

__all__ = ["SqliteLedger"]
