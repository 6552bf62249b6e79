"""`parcelpost gateway token`."""

from __future__ import annotations

import sys

EXAMPLES = """
Examples:

\b
  parcelpost gateway token
  parcelpost gateway token >> worker_tokens
  echo "hartford-1: $(parcelpost gateway token)" >> worker_tokens
"""

_BYTES = 32
_USE = """
How to use it:
  for workers   add it to the file that server.worker_tokens_file names, one a line, or to
                PARCELPOST_WORKER_TOKENS; give the worker the same as PARCELPOST_GATEWAY_TOKEN
  for people    server.admin_tokens_file or PARCELPOST_ADMIN_TOKENS: orders, and all that readers may
                server.read_tokens_file or PARCELPOST_READ_TOKENS: dashboard, parcels, exports
The gateway sees a changed file within a second. Take a line out, and that token is no longer good."""


def token() -> None:
    """Print a fresh random token, and on stderr how to use it. Nothing is stored."""
    import secrets

    print(secrets.token_urlsafe(_BYTES), flush=True)
    print(_USE, file=sys.stderr)
