"""Where tasks come from and results go: a gateway, Firestore, or none."""
