"""Firestore as the upstream. Needs `parcelpost[firestore]`."""
