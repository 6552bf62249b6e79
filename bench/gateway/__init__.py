"""The gateway beside bare inserts and beside a handler as most would write it."""
