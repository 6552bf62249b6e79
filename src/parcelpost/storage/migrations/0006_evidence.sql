-- What a failed attempt in a browser looked like
-- Two files below data/, by task. They are named here so that they are counted (I8), found, and removed in their time.

CREATE TABLE evidence (
    task_id         TEXT PRIMARY KEY,                -- it may outlive its task
    screenshot_path TEXT,
    log_path        TEXT,
    bytes           INTEGER NOT NULL,                -- what the files take on disk
    created_at      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX evidence_created ON evidence (created_at);

CREATE TRIGGER evidence_added AFTER INSERT ON evidence BEGIN
    UPDATE storage_usage SET bytes = bytes + NEW.bytes WHERE kind = 'raw';
END;

CREATE TRIGGER evidence_removed AFTER DELETE ON evidence BEGIN
    UPDATE storage_usage SET bytes = bytes - OLD.bytes WHERE kind = 'raw';
END;
