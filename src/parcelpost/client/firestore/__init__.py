"""Firestore as an upstream. Needs `parcelpost[firestore]`: import it only where it is used."""

from parcelpost.client.firestore.client import FirestoreClient
from parcelpost.client.firestore.credentials import read_named
from parcelpost.client.firestore.opening import EMULATOR_VARIABLE, open_firestore

__all__ = ["EMULATOR_VARIABLE", "FirestoreClient", "open_firestore", "read_named"]
