"""Firestore as an upstream. Needs `parcelpost[firestore]`: import it only where it is used."""

from parcelpost.client.firestore.client import FirestoreClient
from parcelpost.client.firestore.opening import open_firestore, read_key

__all__ = ["FirestoreClient", "open_firestore", "read_key"]
