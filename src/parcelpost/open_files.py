"""How many files this process may have open. `resource` is not on every system."""

from __future__ import annotations

from typing import Any


def raise_file_limit() -> int:
    """Raises the limit as far as the system allows. Returns how many files may be open."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited: Any = resource.RLIM_INFINITY
    wanted = 1_048_576 if hard == unlimited else hard
    if soft != unlimited and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return int(soft)
    return int(wanted if soft != unlimited else 1_048_576)
