"""Parcels from a file: bytes -> rows -> tasks -> the store."""
