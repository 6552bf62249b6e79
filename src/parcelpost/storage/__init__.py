"""The local store: one SQLite file and one folder of raw pages."""

from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.options import StoreOptions

__all__ = ["LocalPersistenceManager", "StoreOptions"]
