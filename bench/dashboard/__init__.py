"""Benchmark of the dashboard: searching and exploring a large ledger."""
