"""Firestore as an upstream. Needs `parcelpost[firestore]`: import it only where it is used."""

from parcelpost.client.firestore.client import FirestoreClient
from parcelpost.client.firestore.credentials import read_named
from parcelpost.client.firestore.opening import EMULATOR_VARIABLE, open_firestore
from parcelpost.client.firestore.reading import open_record

__all__ = ["EMULATOR_VARIABLE", "FirestoreClient", "open_firestore", "open_record", "read_named"]
