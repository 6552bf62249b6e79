"""The reference gateway: the other side of the wire. It knows nothing of a worker's store."""
