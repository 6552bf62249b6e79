"""The command line: where everything is put together."""
