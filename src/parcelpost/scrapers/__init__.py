"""Platforms: how the target of a task becomes a record."""
