"""`parcelpost doctor`: what is wrong here, and what mends it. One module per group of checks."""
