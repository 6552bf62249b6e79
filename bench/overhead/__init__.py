"""What the store costs a worker that scrapes: `python -m bench overhead`."""
