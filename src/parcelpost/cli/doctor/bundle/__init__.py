"""A file for a helper: what is known of a worker and its store, without secrets, names or pages.

Nothing goes in as it is. Numbers, times and words of a closed list do; every other text is left out or replaced.
"""
