"""How fast the outbox drains: `python -m bench sync`."""
