-- Which token a worker id belongs to: the one that used it first. '' stands for all tokens without a name.
CREATE TABLE worker_ids (
    worker_id TEXT PRIMARY KEY,
    token     TEXT NOT NULL,
    used_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX worker_ids_of_token ON worker_ids (token, used_at);
