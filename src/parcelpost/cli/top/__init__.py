"""`parcelpost top`: a live screen of one worker."""
