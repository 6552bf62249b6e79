"""The worker: loops that share nothing but the store, and the runners that start them."""
