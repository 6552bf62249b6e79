-- Which token a worker id belongs to: the one that used it first. '' stands for all tokens without a name.
CREATE TABLE worker_ids (
    worker_id TEXT COLLATE "C" PRIMARY KEY,
    token     TEXT COLLATE "C" NOT NULL,
    used_at   TIMESTAMPTZ NOT NULL
);

CREATE INDEX worker_ids_of_token ON worker_ids (token, used_at);
