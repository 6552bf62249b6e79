"""`parcelpost results`."""
