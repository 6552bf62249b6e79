"""What the two ledgers share: rows <-> words, the statements that both databases understand, batches, schema files.

A statement's parameters are written `?`; `numbered` makes PostgreSQL's `$1` of them. A moment is bound as a datetime.
"""
