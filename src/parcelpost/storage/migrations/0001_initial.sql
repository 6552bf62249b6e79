-- Initial schema. Once a version is released, this file is never edited: add 0002_....sql beside it.
-- CHECKs compare with =, not IN: SQLite builds a temporary table for every IN list, for every row.
-- Times are UTC ISO-8601 text with milliseconds. I1..I9 are in docs/invariants.md.

CREATE TABLE tasks (
    seq              INTEGER PRIMARY KEY,           -- order of arrival; unlike times, it never goes back
    task_id          TEXT NOT NULL UNIQUE,
    source           TEXT NOT NULL
                     CHECK (source = 'gateway' OR source = 'firestore' OR source = 'local_file' OR source = 'cli'),
    type             TEXT NOT NULL,
    platform         TEXT NOT NULL,
    state            TEXT NOT NULL,
    county           TEXT NOT NULL,
    parcel_id        TEXT NOT NULL,
    target_json      TEXT NOT NULL,
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 4),  -- 1 urgent, 2 high, 3 normal, 4 batch
    status           TEXT NOT NULL DEFAULT 'pending',
    retries          INTEGER NOT NULL DEFAULT 0 CHECK (retries >= 0),
    max_retries      INTEGER NOT NULL CHECK (max_retries >= 0),
    recoveries       INTEGER NOT NULL DEFAULT 0,    -- how often its process crashed (I9)
    available_at     TEXT,                          -- NULL: due now
    lease_expires_at TEXT,                          -- end of the upstream's lease; NULL: no lease
    lease_id         TEXT,                          -- NULL: the upstream has no lease ids
    claim_token      TEXT,
    claimed_by       TEXT,
    assigned_browser INTEGER,
    created_at       TEXT NOT NULL,
    updated_at       TEXT NOT NULL,
    started_at       TEXT,
    completed_at     TEXT,
    error            TEXT,
    ended_by         TEXT CHECK (ended_by = 'operator'),  -- NULL: not ended, or by the worker
    parent_id        TEXT,                          -- the task on whose page this record was; NULL: not a child
    skip_cache       INTEGER NOT NULL DEFAULT 0 CHECK (skip_cache = 0 OR skip_cache = 1),  -- 1: skip the page cache
    was_delinquent   INTEGER NOT NULL DEFAULT 0 CHECK (was_delinquent = 0 OR was_delinquent = 1),  -- by its deleted record
    report_due_at    TEXT,                          -- the upstream leased it again after its end was delivered
    -- Only a processing task is claimed (I4, I9), only an ended one has completed_at.
    CHECK (CASE status
        WHEN 'processing' THEN claim_token IS NOT NULL AND claimed_by IS NOT NULL AND completed_at IS NULL
        WHEN 'pending' THEN claim_token IS NULL AND claimed_by IS NULL AND completed_at IS NULL
        WHEN 'completed' THEN claim_token IS NULL AND claimed_by IS NULL AND completed_at IS NOT NULL
        WHEN 'not_found' THEN claim_token IS NULL AND claimed_by IS NULL AND completed_at IS NOT NULL
        WHEN 'failed' THEN claim_token IS NULL AND claimed_by IS NULL AND completed_at IS NOT NULL
        WHEN 'expired' THEN claim_token IS NULL AND claimed_by IS NULL AND completed_at IS NOT NULL
        ELSE 0 END),
    CHECK (ended_by IS NULL OR status = 'failed')
) STRICT;

-- Claiming: the head of every platform's queue is one index probe, however long the queue.
CREATE INDEX tasks_ready ON tasks (platform, priority, seq) WHERE status = 'pending' AND available_at IS NULL;
CREATE INDEX tasks_delayed ON tasks (available_at, platform) WHERE status = 'pending' AND available_at IS NOT NULL;
CREATE INDEX tasks_leased ON tasks (lease_expires_at) WHERE status = 'pending' AND lease_expires_at IS NOT NULL;
CREATE INDEX tasks_processing ON tasks (claimed_by, platform) WHERE status = 'processing';
CREATE INDEX tasks_sites ON tasks (platform, state, county, priority, seq)
    WHERE status = 'pending' AND available_at IS NULL;
CREATE INDEX tasks_named_leases ON tasks (lease_expires_at) WHERE lease_id IS NOT NULL;
CREATE INDEX tasks_children ON tasks (parent_id, platform) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_to_report_again ON tasks (report_due_at) WHERE report_due_at IS NOT NULL;
CREATE INDEX tasks_refreshes ON tasks (platform, state, county, parcel_id, seq) WHERE type = 'refresh';
CREATE INDEX tasks_ended ON tasks (completed_at, status, platform) WHERE completed_at IS NOT NULL;

-- The outbox: records (success 1) and reports of failed and expired tasks (success 0) (I1, I3). A page with many parcels
-- gives many results, each with its own task; the page is stored once and named by all of them.
CREATE TABLE results (
    seq               INTEGER PRIMARY KEY,
    result_id         TEXT NOT NULL UNIQUE,
    task_id           TEXT NOT NULL UNIQUE REFERENCES tasks (task_id),
    success           INTEGER NOT NULL CHECK (success = 0 OR success = 1),
    parcel_id         TEXT NOT NULL,
    platform          TEXT NOT NULL,
    state             TEXT NOT NULL,
    county            TEXT NOT NULL,
    error             TEXT,
    execution_time_ms INTEGER NOT NULL DEFAULT 0,
    json_path         TEXT,
    html_path         TEXT,
    screenshot_path   TEXT,
    log_path          TEXT,
    raw_sha256        TEXT,                          -- of the page's bytes as fetched
    raw_bytes         INTEGER NOT NULL DEFAULT 0,    -- size of its files on disk
    page_shared       INTEGER NOT NULL DEFAULT 0 CHECK (page_shared = 0 OR page_shared = 1),
    content_type      TEXT,                          -- of the page; NULL: text/html
    idempotency_key   TEXT NOT NULL,                 -- I5
    scraped_at        TEXT NOT NULL,
    synced            INTEGER NOT NULL DEFAULT 0 CHECK (synced = 0 OR synced = 1),
    sync_attempts     INTEGER NOT NULL DEFAULT 0,
    last_error        TEXT,
    raw_synced_at     TEXT,
    synced_at         TEXT,
    rejected_at       TEXT,
    rejected_by       TEXT CHECK (rejected_by = 'operator'),  -- NULL: not rejected, or by the upstream
    created_at        TEXT NOT NULL,
    data              TEXT,                          -- last: reading other columns does not load it
    CHECK ((synced = 1) = (synced_at IS NOT NULL)),                          -- I2
    CHECK (synced = 0 OR rejected_at IS NULL),
    CHECK (rejected_by IS NULL OR rejected_at IS NOT NULL),
    CHECK ((html_path IS NULL) = (raw_sha256 IS NULL)),                      -- I6
    CHECK (synced = 0 OR html_path IS NULL OR raw_synced_at IS NOT NULL)     -- I6: the raw file goes first
) STRICT;

CREATE INDEX results_outbox ON results (seq) WHERE synced = 0 AND rejected_at IS NULL;
CREATE INDEX results_rejected ON results (seq) WHERE rejected_at IS NOT NULL;
CREATE INDEX results_synced ON results (synced_at) WHERE synced = 1;
-- A page file belongs to the result that also has the json_path. Other results may name the page only.
CREATE UNIQUE INDEX results_page_owner ON results (html_path) WHERE json_path IS NOT NULL;
CREATE INDEX results_page_shared ON results (html_path) WHERE html_path IS NOT NULL AND json_path IS NULL;

CREATE TABLE cache (
    cache_key     TEXT PRIMARY KEY,
    data_type     TEXT NOT NULL DEFAULT 'html',
    size_bytes    INTEGER NOT NULL,                  -- as stored, compressed
    etag          TEXT,
    last_modified TEXT,
    created_at    TEXT NOT NULL,
    expires_at    TEXT NOT NULL,
    access_count  INTEGER NOT NULL DEFAULT 0,
    last_accessed TEXT NOT NULL,
    data          BLOB NOT NULL
) STRICT;

CREATE INDEX cache_expires ON cache (expires_at);
CREATE INDEX cache_last_accessed ON cache (last_accessed);

CREATE TABLE learning_signals (
    seq               INTEGER PRIMARY KEY,
    signal_id         TEXT NOT NULL UNIQUE,
    task_id           TEXT,
    platform          TEXT NOT NULL,
    field             TEXT NOT NULL,
    selector          TEXT NOT NULL,
    selector_type     TEXT NOT NULL CHECK (selector_type IN ('css', 'xpath', 'label', 'jsonpath')),
    success           INTEGER NOT NULL CHECK (success = 0 OR success = 1),
    context           TEXT,
    error_message     TEXT,
    execution_time_ms INTEGER,
    synced            INTEGER NOT NULL DEFAULT 0 CHECK (synced = 0 OR synced = 1),
    created_at        TEXT NOT NULL,
    synced_at         TEXT,
    CHECK ((synced = 1) = (synced_at IS NOT NULL))
) STRICT;

CREATE INDEX signals_unsynced ON learning_signals (seq) WHERE synced = 0;
CREATE INDEX signals_created ON learning_signals (created_at);

CREATE TABLE browser_pool_state (
    browser_id        INTEGER PRIMARY KEY,
    pid               INTEGER,
    status            TEXT NOT NULL CHECK (status IN ('idle', 'busy', 'crashed', 'restarting')),
    current_task_id   TEXT,
    tasks_completed   INTEGER NOT NULL DEFAULT 0,
    launches          INTEGER NOT NULL DEFAULT 1,
    memory_mb         INTEGER,
    last_health_check TEXT NOT NULL,
    created_at        TEXT NOT NULL,
    restarted_at      TEXT,
    -- Written before a browser starts, so that the browsers of a killed worker are found.
    owner             TEXT NOT NULL DEFAULT '',
    marker            TEXT NOT NULL DEFAULT '',
    profile           TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE TABLE sync_log (
    seq          INTEGER PRIMARY KEY,
    sync_id      TEXT NOT NULL UNIQUE,
    direction    TEXT NOT NULL CHECK (direction IN ('download', 'upload')),
    record_type  TEXT NOT NULL,
    record_count INTEGER NOT NULL,
    success      INTEGER NOT NULL CHECK (success IN (0, 1)),
    error        TEXT,
    duration_ms  INTEGER,
    created_at   TEXT NOT NULL
) STRICT;

CREATE INDEX sync_log_created ON sync_log (created_at);

CREATE TABLE agent_metrics (
    metric_id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    timestamp                 TEXT NOT NULL,
    tasks_completed           INTEGER NOT NULL DEFAULT 0,
    tasks_failed              INTEGER NOT NULL DEFAULT 0,
    average_execution_time_ms INTEGER,
    browsers_active           INTEGER,
    ram_used_gb               REAL,
    ram_percent               REAL,
    cpu_percent               REAL,
    cache_hit_rate            REAL,
    sync_latency_ms           INTEGER
) STRICT;

CREATE INDEX agent_metrics_timestamp ON agent_metrics (timestamp);

-- Platforms, and counties of them, that are paused until a time, or until an operator resumes them.
CREATE TABLE platform_pauses (
    platform     TEXT NOT NULL,
    state        TEXT NOT NULL DEFAULT '', -- without state and county: the whole platform
    county       TEXT NOT NULL DEFAULT '',
    paused_until TEXT,
    reason       TEXT NOT NULL DEFAULT '',
    created_at   TEXT NOT NULL,
    PRIMARY KEY (platform, state, county)
) STRICT;

-- Named values that survive a restart, each a JSON object.
CREATE TABLE worker_state (
    name       TEXT PRIMARY KEY,
    value      TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;

-- What a task's last failed attempt saw: files in the raw folder, counted (I8) and deleted when they expire.
CREATE TABLE artifacts (
    task_id         TEXT PRIMARY KEY,                -- may be kept longer than its task
    screenshot_path TEXT,
    log_path        TEXT,
    page_path       TEXT,                            -- the last page, compressed with gzip
    bytes           INTEGER NOT NULL,                -- size of the files on disk
    created_at      TEXT NOT NULL
) STRICT;

CREATE INDEX artifacts_created ON artifacts (created_at);

-- Running totals in bytes, to check the caps without counting (I8).
CREATE TABLE storage_usage (
    kind  TEXT PRIMARY KEY CHECK (kind IN ('raw', 'cache')),
    bytes INTEGER NOT NULL
) STRICT;

INSERT INTO storage_usage (kind, bytes) VALUES ('raw', 0), ('cache', 0);

-- results.save_each adds saved pages, once for a whole group: a trigger would cost a fifth of every insert.
CREATE TRIGGER results_raw_removed AFTER DELETE ON results WHEN OLD.raw_bytes > 0 BEGIN
    UPDATE storage_usage SET bytes = bytes - OLD.raw_bytes WHERE kind = 'raw';
END;

CREATE TRIGGER cache_added AFTER INSERT ON cache BEGIN
    UPDATE storage_usage SET bytes = bytes + NEW.size_bytes WHERE kind = 'cache';
END;

CREATE TRIGGER cache_changed AFTER UPDATE OF size_bytes ON cache BEGIN
    UPDATE storage_usage SET bytes = bytes + NEW.size_bytes - OLD.size_bytes WHERE kind = 'cache';
END;

CREATE TRIGGER cache_removed AFTER DELETE ON cache BEGIN
    UPDATE storage_usage SET bytes = bytes - OLD.size_bytes WHERE kind = 'cache';
END;

CREATE TRIGGER artifacts_added AFTER INSERT ON artifacts BEGIN
    UPDATE storage_usage SET bytes = bytes + NEW.bytes WHERE kind = 'raw';
END;

CREATE TRIGGER artifacts_removed AFTER DELETE ON artifacts BEGIN
    UPDATE storage_usage SET bytes = bytes - OLD.bytes WHERE kind = 'raw';
END;
