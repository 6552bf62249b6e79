"""The ledger in PostgreSQL, for any number of gateway processes. Needs the extra `postgres`."""

from parcelpost.gateway.ledger_postgres.connecting import connected
from parcelpost.gateway.ledger_postgres.ledger import PostgresLedger

__all__ = ["PostgresLedger", "connected"]
