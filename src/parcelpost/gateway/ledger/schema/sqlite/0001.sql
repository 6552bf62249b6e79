-- Moments are UTC text with milliseconds (2026-11-15T19:50:33.123Z), money is in cents.

CREATE TABLE tasks (
    seq          INTEGER PRIMARY KEY, -- age: clocks are set back, this is not
    task_id      TEXT NOT NULL UNIQUE,
    platform     TEXT NOT NULL,
    type         TEXT NOT NULL,
    priority     INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 4),
    state        TEXT NOT NULL CHECK (state IN ('queued', 'leased', 'done', 'not_found', 'failed', 'dead')),
    target       TEXT NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts INTEGER NOT NULL CHECK (max_attempts > 0),
    max_retries  INTEGER NOT NULL,
    created_at   TEXT NOT NULL,
    ended_at     TEXT,
    error        TEXT,
    reason       TEXT, -- the error without what differs from task to task
    refresh_of   INTEGER, -- the source that it scrapes again
    run_no       INTEGER, -- the run of a schedule that added it
    site         TEXT NOT NULL, -- platform/state/county
    turn         INTEGER NOT NULL, -- sites take turns: within a priority, lower ones go first
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'leased')))
) STRICT;

CREATE INDEX tasks_queued ON tasks (platform, priority, turn, seq) WHERE state = 'queued';
CREATE INDEX tasks_of_site ON tasks (site, priority, turn) WHERE state = 'queued'; -- the site's next turn
CREATE INDEX tasks_ended ON tasks (ended_at, platform, priority, state) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_without_record ON tasks (state, ended_at, seq) WHERE state IN ('not_found', 'failed', 'dead'); -- listed, the last one first
CREATE INDEX tasks_by_reason ON tasks (state, reason, site, ended_at, seq) WHERE state IN ('not_found', 'failed', 'dead'); -- counted

CREATE INDEX tasks_refreshing ON tasks (refresh_of) WHERE refresh_of IS NOT NULL AND ended_at IS NULL;
CREATE INDEX tasks_of_run ON tasks (run_no, state) WHERE run_no IS NOT NULL;

CREATE TABLE leases (
    lease_id   INTEGER PRIMARY KEY,
    task_id    TEXT NOT NULL REFERENCES tasks (task_id) ON DELETE CASCADE,
    worker_id  TEXT NOT NULL,
    granted_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    ended_at   TEXT,
    ended_as   TEXT CHECK (ended_as IN ('done', 'failed', 'returned', 'expired', 'superseded')),
    error      TEXT, -- of this attempt
    CHECK ((ended_at IS NULL) = (ended_as IS NULL))
) STRICT;

CREATE INDEX leases_of_task ON leases (task_id);
CREATE UNIQUE INDEX leases_open ON leases (task_id) WHERE ended_at IS NULL; -- no task is held twice
CREATE INDEX leases_of_worker ON leases (worker_id, granted_at) WHERE ended_at IS NULL;
CREATE INDEX leases_expiring ON leases (expires_at) WHERE ended_at IS NULL;

-- What the last failed attempt at a task saw. The raw store has the files, which are deleted before their rows.
CREATE TABLE artifacts (
    task_id    TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('screenshot', 'page')),
    worker_id  TEXT NOT NULL, -- '': a later failure had none of this kind, and the file can be deleted
    named_at   TEXT NOT NULL, -- by the worker's report
    stored_at  TEXT, -- NULL: not uploaded yet
    media_type TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (task_id, kind)
) STRICT;

CREATE INDEX artifacts_named ON artifacts (named_at);

CREATE TABLE parcels (
    parcel_no     INTEGER PRIMARY KEY,
    state         TEXT NOT NULL,
    county        TEXT NOT NULL,
    parcel_norm   TEXT NOT NULL, -- the number's letters and digits; without a number: =platform:case
    parcel_id     TEXT NOT NULL, -- as its newest source writes it; what follows is merged from all its sources
    owner         TEXT NOT NULL,
    situs         TEXT NOT NULL,
    delinquent    INTEGER CHECK (delinquent IN (0, 1)),
    tax_due_cents INTEGER,
    lien_count    INTEGER NOT NULL CHECK (lien_count >= 0),
    scraped_at    TEXT NOT NULL,
    received_at   TEXT NOT NULL,
    first_seen_at TEXT NOT NULL,
    UNIQUE (state, county, parcel_norm)
) STRICT;

CREATE INDEX parcels_latest ON parcels (received_at);
CREATE INDEX parcels_with_liens ON parcels (received_at) WHERE lien_count > 0; -- the latest liens, however few parcels have any

-- A parcel as one platform shows it.
CREATE TABLE sources (
    source_no     INTEGER PRIMARY KEY,
    parcel_no     INTEGER NOT NULL REFERENCES parcels (parcel_no),
    platform      TEXT NOT NULL,
    parcel_id     TEXT NOT NULL, -- as the platform writes it, in its newest scrape, as all that follows
    is_partial    INTEGER NOT NULL CHECK (is_partial IN (0, 1)), -- 1: what could not be read is that of an earlier scrape
    task_id       TEXT NOT NULL,
    scraped_at    TEXT NOT NULL,
    received_at   TEXT NOT NULL,
    first_seen_at TEXT NOT NULL,
    owner         TEXT NOT NULL,
    situs         TEXT NOT NULL,
    delinquent    INTEGER CHECK (delinquent IN (0, 1)),
    tax_due_cents INTEGER,
    target        TEXT NOT NULL, -- JSON of the task that scrapes it; '' if only a list shows it
    search        TEXT NOT NULL, -- number, owner and address, a line each, in lower case
    UNIQUE (parcel_no, platform)
) STRICT;

CREATE TABLE results (
    result_no         INTEGER PRIMARY KEY,
    source_no         INTEGER NOT NULL REFERENCES sources (source_no),
    task_id           TEXT NOT NULL, -- perhaps of a task that is not known here
    worker_id         TEXT NOT NULL,
    scraped_at        TEXT NOT NULL,
    received_at       TEXT NOT NULL,
    late              INTEGER NOT NULL CHECK (late IN (0, 1)),
    parse_duration_ms INTEGER NOT NULL,
    idempotency_key   TEXT NOT NULL,
    raw_sha256        TEXT,
    raw_file          TEXT,
    data              TEXT NOT NULL, -- JSON, as sent
    UNIQUE (source_no, task_id)
) STRICT;

-- Results that were not compared yet with what was known before; see `changes`.
CREATE TABLE results_to_compare (
    queue_no  INTEGER PRIMARY KEY, -- in the order in which they arrived
    source_no INTEGER NOT NULL,
    task_id   TEXT NOT NULL
) STRICT;

-- The facts of a source that `changes` are found by, as it last showed each of them.
CREATE TABLE source_facts (
    source_no  INTEGER PRIMARY KEY REFERENCES sources (source_no),
    task_id    TEXT NOT NULL, -- of the scrape that was compared last
    scraped_at TEXT NOT NULL,
    facts      TEXT NOT NULL -- JSON
) STRICT, WITHOUT ROWID;

-- What changed, in the order in which it was found. Numbers have no gaps, and a change is visible only after all before it.
CREATE TABLE changes (
    change_no  INTEGER PRIMARY KEY,
    found_at   TEXT NOT NULL,
    kind       TEXT NOT NULL,
    parcel_no  INTEGER NOT NULL REFERENCES parcels (parcel_no),
    source_no  INTEGER NOT NULL REFERENCES sources (source_no),
    task_id    TEXT NOT NULL, -- of the scrape that shows it
    scraped_at TEXT NOT NULL,
    subject    TEXT NOT NULL, -- certificate or case of a lien, day of a sale
    before     TEXT NOT NULL, -- JSON, like `after`
    after      TEXT NOT NULL
) STRICT;

CREATE INDEX changes_by_time ON changes (found_at);

-- Receivers of changes. One gateway at a time delivers to each.
CREATE TABLE webhooks (
    webhook_no      INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again
    name            TEXT NOT NULL UNIQUE,
    url             TEXT NOT NULL,
    secret_variable TEXT NOT NULL, -- the environment variable that holds the secret
    filter          TEXT NOT NULL, -- JSON
    created_at      TEXT NOT NULL,
    is_paused       INTEGER NOT NULL DEFAULT 0,
    cursor          INTEGER NOT NULL, -- changes up to this number were delivered, or are in webhook_retries
    delivered       INTEGER NOT NULL DEFAULT 0,
    delivered_at    TEXT, -- last
    failures        INTEGER NOT NULL DEFAULT 0, -- in a row
    failing_since   TEXT,
    error           TEXT NOT NULL DEFAULT '', -- of the last failure; why it is paused
    next_at         TEXT NOT NULL, -- it rests until then
    leased_by       TEXT, -- the gateway that delivers, until leased_until
    leased_until    TEXT NOT NULL
) STRICT;

-- Changes that a receiver did not take.
CREATE TABLE webhook_retries (
    webhook_no INTEGER NOT NULL,
    change_no  INTEGER NOT NULL,
    attempts   INTEGER NOT NULL,
    first_at   TEXT NOT NULL,
    next_at    TEXT NOT NULL,
    error      TEXT NOT NULL,
    dead_at    TEXT, -- given up: only a replay delivers it
    PRIMARY KEY (webhook_no, change_no)
) STRICT;

CREATE INDEX webhook_retries_due ON webhook_retries (webhook_no, next_at) WHERE dead_at IS NULL;

CREATE TABLE liens (
    lien_no            INTEGER PRIMARY KEY,
    parcel_no          INTEGER NOT NULL REFERENCES parcels (parcel_no),
    lien_key           TEXT NOT NULL, -- year and certificate, or case; else =source:position, which no other source shares
    certificate_number TEXT,
    certificate_year   INTEGER,
    tax_year           INTEGER,
    status             TEXT,
    holder_name        TEXT,
    amount_cents       INTEGER,
    sale_date          TEXT,
    UNIQUE (parcel_no, lien_key)
) STRICT;

-- A lien as one source shows it.
CREATE TABLE lien_sources (
    lien_no            INTEGER NOT NULL REFERENCES liens (lien_no),
    source_no          INTEGER NOT NULL REFERENCES sources (source_no),
    position           INTEGER NOT NULL CHECK (position >= 0), -- in the source's record
    task_id            TEXT NOT NULL, -- of the scrape that shows it
    scraped_at         TEXT NOT NULL,
    certificate_number TEXT,
    certificate_year   INTEGER,
    tax_year           INTEGER,
    status             TEXT,
    holder_name        TEXT,
    amount_cents       INTEGER,
    sale_date          TEXT,
    json               TEXT NOT NULL,
    PRIMARY KEY (lien_no, source_no)
) STRICT, WITHOUT ROWID;

-- What a parcel is according to its sources: each field of the newest source that has a value for it. A partial source may
-- have it from an earlier scrape: any other goes first.
CREATE VIEW merged_parcels AS
SELECT p.parcel_no,
       (SELECT s.parcel_id FROM sources s WHERE s.parcel_no = p.parcel_no
        ORDER BY s.scraped_at DESC, s.task_id DESC, s.source_no LIMIT 1) AS parcel_id,
       coalesce((SELECT s.owner FROM sources s WHERE s.parcel_no = p.parcel_no AND s.owner <> ''
                 ORDER BY s.is_partial, s.scraped_at DESC, s.task_id DESC, s.source_no LIMIT 1), '') AS owner,
       coalesce((SELECT s.situs FROM sources s WHERE s.parcel_no = p.parcel_no AND s.situs <> ''
                 ORDER BY s.is_partial, s.scraped_at DESC, s.task_id DESC, s.source_no LIMIT 1), '') AS situs,
       (SELECT s.delinquent FROM sources s WHERE s.parcel_no = p.parcel_no AND s.delinquent IS NOT NULL
        ORDER BY s.is_partial, s.scraped_at DESC, s.task_id DESC, s.source_no LIMIT 1) AS delinquent,
       (SELECT s.tax_due_cents FROM sources s WHERE s.parcel_no = p.parcel_no AND s.tax_due_cents IS NOT NULL
        ORDER BY s.is_partial, s.scraped_at DESC, s.task_id DESC, s.source_no LIMIT 1) AS tax_due_cents,
       (SELECT count(*) FROM liens l WHERE l.parcel_no = p.parcel_no) AS lien_count,
       (SELECT max(s.scraped_at) FROM sources s WHERE s.parcel_no = p.parcel_no) AS scraped_at,
       (SELECT max(s.received_at) FROM sources s WHERE s.parcel_no = p.parcel_no) AS received_at
FROM parcels p;

-- Likewise a lien: each field of the newest source that has a value for it.
CREATE VIEW merged_liens AS
SELECT l.lien_no, l.parcel_no,
       (SELECT ls.certificate_number FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.certificate_number IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS certificate_number,
       (SELECT ls.certificate_year FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.certificate_year IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS certificate_year,
       (SELECT ls.tax_year FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.tax_year IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS tax_year,
       (SELECT ls.status FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.status IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS status,
       (SELECT ls.holder_name FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.holder_name IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS holder_name,
       (SELECT ls.amount_cents FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.amount_cents IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS amount_cents,
       (SELECT ls.sale_date FROM lien_sources ls
        WHERE ls.lien_no = l.lien_no AND ls.sale_date IS NOT NULL
        ORDER BY ls.scraped_at DESC, ls.task_id DESC, ls.source_no LIMIT 1) AS sale_date
FROM liens l;

CREATE TABLE workers (
    worker_id     TEXT PRIMARY KEY,
    heartbeat     TEXT NOT NULL, -- JSON
    first_seen_at TEXT NOT NULL,
    last_seen_at  TEXT NOT NULL,
    leaving       INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1)) -- it said goodbye: it is gone at once
) STRICT, WITHOUT ROWID;

-- Which token a worker id belongs to: the one that used it first. '' stands for all tokens without a name.
CREATE TABLE worker_ids (
    worker_id TEXT PRIMARY KEY,
    token     TEXT NOT NULL,
    used_at   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX worker_ids_of_token ON worker_ids (token, used_at);

CREATE TABLE commands (
    command_id INTEGER PRIMARY KEY,
    worker_id  TEXT NOT NULL REFERENCES workers (worker_id),
    command    TEXT NOT NULL,
    created_at TEXT NOT NULL
) STRICT;

CREATE INDEX commands_of_worker ON commands (worker_id);

CREATE TABLE selector_stats (
    day           TEXT NOT NULL,
    platform      TEXT NOT NULL,
    field         TEXT NOT NULL,
    selector      TEXT NOT NULL,
    selector_type TEXT NOT NULL,
    successes     INTEGER NOT NULL,
    samples       INTEGER NOT NULL CHECK (samples > 0),
    last_seen_at  TEXT NOT NULL,
    PRIMARY KEY (day, platform, field, selector, selector_type)
) STRICT, WITHOUT ROWID;

CREATE TABLE metrics (
    worker_id TEXT NOT NULL,
    at        TEXT NOT NULL,
    figures   TEXT NOT NULL, -- JSON
    PRIMARY KEY (worker_id, at)
) STRICT, WITHOUT ROWID;

CREATE INDEX metrics_by_age ON metrics (at);

CREATE TABLE activity (
    minute   TEXT NOT NULL,
    platform TEXT NOT NULL,
    outcome  TEXT NOT NULL,
    count    INTEGER NOT NULL,
    PRIMARY KEY (minute, platform, outcome)
) STRICT, WITHOUT ROWID;

-- Which counties are refreshed, and when.
CREATE TABLE schedules (
    schedule_no    INTEGER PRIMARY KEY AUTOINCREMENT, -- never used again: counts are cached by it
    name           TEXT NOT NULL UNIQUE,
    platform       TEXT NOT NULL,
    state          TEXT NOT NULL,
    county         TEXT NOT NULL,
    scope          TEXT NOT NULL CHECK (scope IN ('known', 'delinquent', 'file', 'list')), -- what a run scrapes
    every_seconds  INTEGER NOT NULL, -- 0: by `cron`
    at_time        TEXT NOT NULL,
    timezone       TEXT NOT NULL,
    cron           TEXT NOT NULL,
    window_seconds REAL NOT NULL CHECK (window_seconds >= 0), -- over which a run's tasks are spread
    pace_seconds   REAL NOT NULL CHECK (pace_seconds > 0), -- at least, between two of them
    targets        INTEGER NOT NULL, -- of scope `file` and `list`: how many are in schedule_targets
    created_at     TEXT NOT NULL, -- intervals are counted from here
    paused_at      TEXT,
    next_run_at    TEXT NOT NULL,
    error          TEXT NOT NULL DEFAULT '', -- of the last step; '' if there was none
    failing_since  TEXT
) STRICT;

-- What the schedules with scope `file` and `list` scrape.
CREATE TABLE schedule_targets (
    schedule_no INTEGER NOT NULL REFERENCES schedules (schedule_no) ON DELETE CASCADE,
    position    INTEGER NOT NULL CHECK (position > 0),
    parcel_norm TEXT NOT NULL,
    target      TEXT NOT NULL, -- JSON
    PRIMARY KEY (schedule_no, position)
) STRICT, WITHOUT ROWID;

-- A schedule is due once at a time, whichever gateway sees it first.
CREATE TABLE schedule_runs (
    run_no        INTEGER PRIMARY KEY AUTOINCREMENT, -- part of its tasks' ids: never used again
    schedule_no   INTEGER NOT NULL REFERENCES schedules (schedule_no) ON DELETE CASCADE,
    due_at        TEXT NOT NULL,
    started_at    TEXT NOT NULL,
    ended_at      TEXT,
    outcome       TEXT NOT NULL CHECK (outcome IN ('running', 'ended', 'skipped')), -- skipped: the one before had not ended
    total         INTEGER NOT NULL,
    added         INTEGER NOT NULL DEFAULT 0, -- of these, tasks that have been queued so far
    after_norm    TEXT NOT NULL DEFAULT '', -- the parcel up to which they have
    all_added     INTEGER NOT NULL DEFAULT 0 CHECK (all_added IN (0, 1)),
    last_added_at TEXT NOT NULL,
    done          INTEGER NOT NULL DEFAULT 0, -- once it has ended: its tasks with a record, or whose parcel is not found
    failed        INTEGER NOT NULL DEFAULT 0,
    UNIQUE (schedule_no, due_at)
) STRICT;

CREATE UNIQUE INDEX schedule_runs_open ON schedule_runs (schedule_no) WHERE ended_at IS NULL; -- runs do not pile up
CREATE INDEX schedule_runs_latest ON schedule_runs (schedule_no, run_no);

-- Which ledger this is. A copy or a backup of it is the same one; a new one has another id.
CREATE TABLE identity (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    ledger_id TEXT NOT NULL
) STRICT;

INSERT INTO identity (only_row, ledger_id) VALUES (1, lower(hex(randomblob(8))));
