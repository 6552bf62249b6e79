"""The other side of the wire, as the worker sees it."""
