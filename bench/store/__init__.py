"""The store against other queues on SQLite: `python -m bench store`."""
