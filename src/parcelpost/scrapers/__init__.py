"""Platforms: what turns a task's target into a record."""
