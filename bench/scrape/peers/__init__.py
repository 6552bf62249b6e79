"""The same job with other tools, as their documentation recommends: programs that get a file of addresses."""
