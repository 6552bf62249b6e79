"""Whether scraping waits for the gateway: `python -m bench coupling`."""
