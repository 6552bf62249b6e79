"""Mutated pages: whether a parser notices what it can no longer read."""
