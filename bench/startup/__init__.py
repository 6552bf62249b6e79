"""How soon a command answers: `python -m bench startup`."""
