"""`parcelpost chaos`: real processes, hurt on a seeded schedule, and judged against the invariants."""
