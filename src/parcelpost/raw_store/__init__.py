"""Where raw files are kept upstream: in a folder, in Cloud Storage, in S3. A gateway uses it, and a worker without one.

`ab/cd/<sha256>.html.gz` is a page, `ab/cd/<sha256>/<name>.json` what was told about it, `ab/cd/<sha256>.json.gz` a
record that found no room elsewhere. What is there is not written again.
"""

from parcelpost.raw_store.opening import open_any_raw_store, open_raw_store
from parcelpost.raw_store.store import RawPage, RawStore, page_path, remove_leftovers, safe_name

__all__ = [
    "RawPage",
    "RawStore",
    "open_any_raw_store",
    "open_raw_store",
    "page_path",
    "remove_leftovers",
    "safe_name",
]
