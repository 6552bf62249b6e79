"""The local store: one SQLite file and one folder of raw pages."""

from typing import TYPE_CHECKING, Any

from parcelpost.storage.options import StoreOptions

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager

__all__ = ["LocalPersistenceManager", "StoreOptions"]


def __getattr__(name: str) -> Any:
    """Who only looks at a store (`parcelpost status`) does not wait for all that can be done with one."""
    if name == "LocalPersistenceManager":
        from parcelpost.storage.lpm import LocalPersistenceManager  # noqa: PLC0415 - the point

        return LocalPersistenceManager
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
