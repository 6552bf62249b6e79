"""Doors for other people's programs. Nothing here imports anything but what it is a door to."""
