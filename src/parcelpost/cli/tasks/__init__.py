"""`parcelpost tasks`."""
