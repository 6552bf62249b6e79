-- What a worker must not forget over a restart
-- A few named values, each a JSON object: until when the sync backs off, when the janitor last ran.

CREATE TABLE worker_state (
    name       TEXT PRIMARY KEY,
    value      TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
