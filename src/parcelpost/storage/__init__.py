"""The local store: one SQLite file and one folder of raw pages."""

from typing import TYPE_CHECKING, Any

from parcelpost.storage.options import StoreOptions

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager

__all__ = ["LocalPersistenceManager", "StoreOptions"]


def __getattr__(name: str) -> Any:
    """Imports the manager on first use: commands that only read a store (`parcelpost status`) start faster."""
    if name == "LocalPersistenceManager":
        from parcelpost.storage.lpm import LocalPersistenceManager  # noqa: PLC0415

        return LocalPersistenceManager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
