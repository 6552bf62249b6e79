"""Pages in real browsers: lent by the pool, and had in the two ways that people write."""
