"""How fast a store is exported, and in how much memory: `python -m bench export`."""
