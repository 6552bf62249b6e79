"""Benchmarks: `python -m bench`. docs/benchmarks.md describes them."""
