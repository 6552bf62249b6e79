"""Parcelpost measured against its peers, each benchmark in one run on one machine: `python -m bench`."""
