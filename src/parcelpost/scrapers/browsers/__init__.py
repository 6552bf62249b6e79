"""Chromium, for pages that need a browser: found, started, watched, lent, and never left behind."""
