"""The gateway's HTTP payloads, read and written by both sides: pure functions, no I/O."""
