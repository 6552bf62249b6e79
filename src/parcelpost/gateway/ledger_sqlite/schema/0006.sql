-- Which ledger this is. A copy or a backup of it is the same one; a new one has another id.
CREATE TABLE identity (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    ledger_id TEXT NOT NULL
) STRICT;

INSERT INTO identity (only_row, ledger_id) VALUES (1, lower(hex(randomblob(8))));
