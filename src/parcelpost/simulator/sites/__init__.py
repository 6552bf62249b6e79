"""One module for each platform that is simulated: what its site answers."""
