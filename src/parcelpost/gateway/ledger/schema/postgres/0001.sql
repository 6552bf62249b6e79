-- Money is in cents. Texts that are keys compare by their bytes, as in SQLite.
-- Tables that change much are vacuumed often: what is dead at the head of the queue is read by every grant.

CREATE TABLE tasks (
    seq          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- age: clocks are set back, this is not
    task_id      TEXT COLLATE "C" NOT NULL UNIQUE,
    platform     TEXT COLLATE "C" NOT NULL,
    type         TEXT NOT NULL,
    priority     SMALLINT NOT NULL CHECK (priority BETWEEN 1 AND 4),
    state        TEXT COLLATE "C" NOT NULL CHECK (state IN ('queued', 'leased', 'done', 'not_found', 'failed', 'dead')),
    target       TEXT NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    max_attempts INTEGER NOT NULL CHECK (max_attempts > 0),
    max_retries  INTEGER NOT NULL,
    created_at   TIMESTAMPTZ NOT NULL,
    ended_at     TIMESTAMPTZ,
    error        TEXT,
    reason       TEXT COLLATE "C", -- the error without what differs from task to task
    refresh_of   BIGINT, -- the source that it scrapes again
    run_no       BIGINT, -- the run of a schedule that added it
    site         TEXT COLLATE "C" NOT NULL, -- platform/state/county
    turn         BIGINT NOT NULL, -- sites take turns: within a priority, lower ones go first
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'leased')))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);

CREATE INDEX tasks_queued ON tasks (platform, priority, turn, seq) WHERE state = 'queued';
CREATE INDEX tasks_of_site ON tasks (site, priority, turn) WHERE state = 'queued'; -- the site's next turn
CREATE INDEX tasks_ended ON tasks (ended_at, platform, priority, state) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_without_record ON tasks (state, ended_at, seq) WHERE state IN ('not_found', 'failed', 'dead'); -- listed, the last one first
CREATE INDEX tasks_by_reason ON tasks (state, reason, site, ended_at, seq) WHERE state IN ('not_found', 'failed', 'dead'); -- counted

CREATE INDEX tasks_refreshing ON tasks (refresh_of) WHERE refresh_of IS NOT NULL AND ended_at IS NULL;
CREATE INDEX tasks_of_run ON tasks (run_no, state) WHERE run_no IS NOT NULL;

CREATE TABLE leases (
    lease_id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id    TEXT COLLATE "C" NOT NULL REFERENCES tasks (task_id) ON DELETE CASCADE,
    worker_id  TEXT COLLATE "C" NOT NULL,
    granted_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    ended_at   TIMESTAMPTZ,
    ended_as   TEXT CHECK (ended_as IN ('done', 'failed', 'returned', 'expired', 'superseded')),
    error      TEXT, -- of this attempt
    CHECK ((ended_at IS NULL) = (ended_as IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);

CREATE INDEX leases_of_task ON leases (task_id);
CREATE UNIQUE INDEX leases_open ON leases (task_id) WHERE ended_at IS NULL; -- no task is held twice
CREATE INDEX leases_of_worker ON leases (worker_id, granted_at) WHERE ended_at IS NULL;
CREATE INDEX leases_expiring ON leases (expires_at) WHERE ended_at IS NULL;

-- What the last failed attempt at a task saw. The raw store has the files, which are deleted before their rows.
CREATE TABLE artifacts (
    task_id    TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('screenshot', 'page')),
    worker_id  TEXT COLLATE "C" NOT NULL, -- '': a later failure had none of this kind, and the file can be deleted
    named_at   TIMESTAMPTZ NOT NULL, -- by the worker's report
    stored_at  TIMESTAMPTZ, -- NULL: not uploaded yet
    media_type TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (task_id, kind)
);

CREATE INDEX artifacts_named ON artifacts (named_at);

CREATE TABLE parcels (
    parcel_no     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state         TEXT COLLATE "C" NOT NULL,
    county        TEXT COLLATE "C" NOT NULL,
    parcel_norm   TEXT COLLATE "C" NOT NULL, -- the number's letters and digits; without a number: =platform:case
    parcel_id     TEXT COLLATE "C" NOT NULL, -- as its newest source writes it; what follows is merged from all its sources
    owner         TEXT NOT NULL,
    situs         TEXT NOT NULL,
    delinquent    BOOLEAN,
    tax_due_cents BIGINT,
    lien_count    INTEGER NOT NULL CHECK (lien_count >= 0),
    scraped_at    TIMESTAMPTZ NOT NULL,
    received_at   TIMESTAMPTZ NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    UNIQUE (state, county, parcel_norm)
);

CREATE INDEX parcels_latest ON parcels (received_at, parcel_no);
CREATE INDEX parcels_with_liens ON parcels (received_at, parcel_no) WHERE lien_count > 0; -- the latest liens, however few parcels have any

-- A parcel as one platform shows it.
CREATE TABLE sources (
    source_no     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parcel_no     BIGINT NOT NULL,
    platform      TEXT COLLATE "C" NOT NULL,
    parcel_id     TEXT COLLATE "C" NOT NULL, -- as the platform writes it, in its newest scrape, as all that follows
    is_partial    BOOLEAN NOT NULL, -- what could not be read is that of an earlier scrape
    task_id       TEXT COLLATE "C" NOT NULL,
    scraped_at    TIMESTAMPTZ NOT NULL,
    received_at   TIMESTAMPTZ NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    owner         TEXT NOT NULL,
    situs         TEXT NOT NULL,
    delinquent    BOOLEAN,
    tax_due_cents BIGINT,
    target        TEXT NOT NULL, -- JSON of the task that scrapes it; '' if only a list shows it
    search        TEXT COLLATE "C" NOT NULL, -- number, owner and address, a line each, in lower case
    UNIQUE (parcel_no, platform)
);

CREATE TABLE results (
    source_no         BIGINT NOT NULL,
    task_id           TEXT COLLATE "C" NOT NULL, -- perhaps of a task that is not known here
    worker_id         TEXT NOT NULL,
    scraped_at        TIMESTAMPTZ NOT NULL,
    received_at       TIMESTAMPTZ NOT NULL,
    late              BOOLEAN NOT NULL,
    parse_duration_ms BIGINT NOT NULL,
    idempotency_key   TEXT NOT NULL,
    raw_sha256        TEXT,
    raw_file          TEXT,
    data              TEXT NOT NULL, -- JSON, as sent: JSONB would refuse what JSON allows
    PRIMARY KEY (source_no, task_id)
);

-- Results that were not compared yet with what was known before; see `changes`.
CREATE TABLE results_to_compare (
    queue_no  BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- in the order in which they arrived
    source_no BIGINT NOT NULL,
    task_id   TEXT COLLATE "C" NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);

-- The facts of a source that `changes` are found by, as it last showed each of them.
CREATE TABLE source_facts (
    source_no  BIGINT PRIMARY KEY,
    task_id    TEXT COLLATE "C" NOT NULL, -- of the scrape that was compared last
    scraped_at TIMESTAMPTZ NOT NULL,
    facts      TEXT NOT NULL -- JSON
);

-- What changed, in the order in which it was found. Numbers have no gaps, and a change is visible only after all before it.
CREATE TABLE changes (
    change_no  BIGINT PRIMARY KEY,
    found_at   TIMESTAMPTZ NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    parcel_no  BIGINT NOT NULL,
    source_no  BIGINT NOT NULL,
    task_id    TEXT COLLATE "C" NOT NULL, -- of the scrape that shows it
    scraped_at TIMESTAMPTZ NOT NULL,
    subject    TEXT NOT NULL, -- certificate or case of a lien, day of a sale
    before     TEXT NOT NULL, -- JSON, like `after`
    after      TEXT NOT NULL
);

CREATE INDEX changes_by_time ON changes (found_at);

-- Receivers of changes. One gateway at a time delivers to each.
CREATE TABLE webhooks (
    webhook_no      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- never used again
    name            TEXT COLLATE "C" NOT NULL UNIQUE,
    url             TEXT NOT NULL,
    secret_variable TEXT NOT NULL, -- the environment variable that holds the secret
    filter          TEXT NOT NULL, -- JSON
    created_at      TIMESTAMPTZ NOT NULL,
    is_paused       BOOLEAN NOT NULL DEFAULT FALSE,
    cursor          BIGINT NOT NULL, -- changes up to this number were delivered, or are in webhook_retries
    delivered       BIGINT NOT NULL DEFAULT 0,
    delivered_at    TIMESTAMPTZ, -- last
    failures        INTEGER NOT NULL DEFAULT 0, -- in a row
    failing_since   TIMESTAMPTZ,
    error           TEXT NOT NULL DEFAULT '', -- of the last failure; why it is paused
    next_at         TIMESTAMPTZ NOT NULL, -- it rests until then
    leased_by       TEXT, -- the gateway that delivers, until leased_until
    leased_until    TIMESTAMPTZ NOT NULL
);

-- Changes that a receiver did not take.
CREATE TABLE webhook_retries (
    webhook_no BIGINT NOT NULL,
    change_no  BIGINT NOT NULL,
    attempts   INTEGER NOT NULL,
    first_at   TIMESTAMPTZ NOT NULL,
    next_at    TIMESTAMPTZ NOT NULL,
    error      TEXT NOT NULL,
    dead_at    TIMESTAMPTZ, -- given up: only a replay delivers it
    PRIMARY KEY (webhook_no, change_no)
);

CREATE INDEX webhook_retries_due ON webhook_retries (webhook_no, next_at) WHERE dead_at IS NULL;

CREATE TABLE liens (
    lien_no            BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parcel_no          BIGINT NOT NULL,
    lien_key           TEXT COLLATE "C" NOT NULL, -- year and certificate, or case; else =source:position, which no other source shares
    certificate_number TEXT,
    certificate_year   INTEGER,
    tax_year           INTEGER,
    status             TEXT COLLATE "C",
    holder_name        TEXT,
    amount_cents       BIGINT,
    sale_date          TEXT,
    UNIQUE (parcel_no, lien_key)
);

-- A lien as one source shows it.
CREATE TABLE lien_sources (
    lien_no            BIGINT NOT NULL,
    source_no          BIGINT NOT NULL,
    position           INTEGER NOT NULL CHECK (position >= 0), -- in the source's record
    task_id            TEXT COLLATE "C" NOT NULL, -- of the scrape that shows it
    scraped_at         TIMESTAMPTZ NOT NULL,
    certificate_number TEXT,
    certificate_year   INTEGER,
    tax_year           INTEGER,
    status             TEXT COLLATE "C",
    holder_name        TEXT,
    amount_cents       BIGINT,
    sale_date          TEXT,
    json               TEXT NOT NULL,
    PRIMARY KEY (lien_no, source_no)
);

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
    worker_id     TEXT COLLATE "C" PRIMARY KEY,
    heartbeat     TEXT NOT NULL, -- JSON
    first_seen_at TIMESTAMPTZ NOT NULL,
    last_seen_at  TIMESTAMPTZ NOT NULL,
    leaving       BOOLEAN NOT NULL DEFAULT FALSE -- it said goodbye: it is gone at once
);

-- Which token a worker id belongs to: the one that used it first. '' stands for all tokens without a name.
CREATE TABLE worker_ids (
    worker_id TEXT COLLATE "C" PRIMARY KEY,
    token     TEXT COLLATE "C" NOT NULL,
    used_at   TIMESTAMPTZ NOT NULL
);

CREATE INDEX worker_ids_of_token ON worker_ids (token, used_at);

CREATE TABLE commands (
    command_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker_id  TEXT COLLATE "C" NOT NULL REFERENCES workers (worker_id),
    command    TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL
);

CREATE INDEX commands_of_worker ON commands (worker_id);

CREATE TABLE selector_stats (
    day           TEXT COLLATE "C" NOT NULL,
    platform      TEXT COLLATE "C" NOT NULL,
    field         TEXT COLLATE "C" NOT NULL,
    selector      TEXT COLLATE "C" NOT NULL,
    selector_type TEXT COLLATE "C" NOT NULL,
    successes     BIGINT NOT NULL,
    samples       BIGINT NOT NULL CHECK (samples > 0),
    last_seen_at  TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (day, platform, field, selector, selector_type)
);

CREATE TABLE metrics (
    worker_id TEXT COLLATE "C" NOT NULL,
    at        TIMESTAMPTZ NOT NULL,
    figures   TEXT NOT NULL, -- JSON
    PRIMARY KEY (worker_id, at)
);

CREATE INDEX metrics_by_age ON metrics (at);

CREATE TABLE activity (
    minute   TIMESTAMPTZ NOT NULL,
    platform TEXT COLLATE "C" NOT NULL,
    outcome  TEXT COLLATE "C" NOT NULL,
    count    BIGINT NOT NULL,
    PRIMARY KEY (minute, platform, outcome)
);

-- Which counties are refreshed, and when.
CREATE TABLE schedules (
    schedule_no    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           TEXT COLLATE "C" NOT NULL UNIQUE,
    platform       TEXT COLLATE "C" NOT NULL,
    state          TEXT COLLATE "C" NOT NULL,
    county         TEXT COLLATE "C" NOT NULL,
    scope          TEXT COLLATE "C" NOT NULL CHECK (scope IN ('known', 'delinquent', 'file', 'list')), -- what a run scrapes
    every_seconds  BIGINT NOT NULL, -- 0: by `cron`
    at_time        TEXT NOT NULL,
    timezone       TEXT NOT NULL,
    cron           TEXT NOT NULL,
    window_seconds DOUBLE PRECISION NOT NULL CHECK (window_seconds >= 0), -- over which a run's tasks are spread
    pace_seconds   DOUBLE PRECISION NOT NULL CHECK (pace_seconds > 0), -- at least, between two of them
    targets        BIGINT NOT NULL, -- of scope `file` and `list`: how many are in schedule_targets
    created_at     TIMESTAMPTZ NOT NULL, -- intervals are counted from here
    paused_at      TIMESTAMPTZ,
    next_run_at    TIMESTAMPTZ NOT NULL,
    error          TEXT NOT NULL DEFAULT '', -- of the last step; '' if there was none
    failing_since  TIMESTAMPTZ
);

-- What the schedules with scope `file` and `list` scrape.
CREATE TABLE schedule_targets (
    schedule_no BIGINT NOT NULL REFERENCES schedules (schedule_no) ON DELETE CASCADE,
    position    BIGINT NOT NULL CHECK (position > 0),
    parcel_norm TEXT COLLATE "C" NOT NULL,
    target      TEXT NOT NULL, -- JSON
    PRIMARY KEY (schedule_no, position)
);

-- A schedule is due once at a time, whichever gateway sees it first.
CREATE TABLE schedule_runs (
    run_no        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule_no   BIGINT NOT NULL REFERENCES schedules (schedule_no) ON DELETE CASCADE,
    due_at        TIMESTAMPTZ NOT NULL,
    started_at    TIMESTAMPTZ NOT NULL,
    ended_at      TIMESTAMPTZ,
    outcome       TEXT NOT NULL CHECK (outcome IN ('running', 'ended', 'skipped')), -- skipped: the one before had not ended
    total         BIGINT NOT NULL,
    added         BIGINT NOT NULL DEFAULT 0, -- of these, tasks that have been queued so far
    after_norm    TEXT COLLATE "C" NOT NULL DEFAULT '', -- the parcel up to which they have
    all_added     BOOLEAN NOT NULL DEFAULT FALSE,
    last_added_at TIMESTAMPTZ NOT NULL,
    done          BIGINT NOT NULL DEFAULT 0, -- once it has ended: its tasks with a record, or whose parcel is not found
    failed        BIGINT NOT NULL DEFAULT 0,
    UNIQUE (schedule_no, due_at)
);

CREATE UNIQUE INDEX schedule_runs_open ON schedule_runs (schedule_no) WHERE ended_at IS NULL; -- runs do not pile up
CREATE INDEX schedule_runs_latest ON schedule_runs (schedule_no, run_no);

-- Which ledger this is. A copy or a backup of it is the same one; a new one has another id.
CREATE TABLE identity (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    ledger_id TEXT NOT NULL
);

INSERT INTO identity (only_row, ledger_id)
VALUES (1, substr(md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text), 1, 16));

-- The first tasks of these platforms by priority, turn, then age, each leased to the worker.
-- They are looked up first and locked afterwards, so that no more are locked than are taken. Where others hold some of
-- them, it looks further on, until it has enough or has seen all that is queued.
-- The settings keep it to the indexes, in their order, whatever the statistics say: those of a queue that has just been
-- filled, or emptied, are of another time.
CREATE FUNCTION grant_tasks(
    worker TEXT, wanted TEXT[], capacity INTEGER, now_at TIMESTAMPTZ, until_at TIMESTAMPTZ
) RETURNS SETOF tasks LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    reach INTEGER := capacity;
    seen  BIGINT[];
    taken BIGINT[];
BEGIN
    LOOP
        SELECT array_agg(first.seq) INTO seen
        FROM (
            SELECT q.seq FROM unnest(wanted) AS w (platform)
            CROSS JOIN LATERAL (
                SELECT t.seq, t.priority, t.turn FROM tasks t WHERE t.state = 'queued' AND t.platform = w.platform
                ORDER BY t.priority, t.turn, t.seq LIMIT reach
            ) q
            ORDER BY q.priority, q.turn, q.seq LIMIT reach
        ) first;

        SELECT array_agg(free.seq) INTO taken
        FROM (
            SELECT t.seq FROM tasks t
            WHERE t.seq = ANY (seen) AND t.state || '' = 'queued' -- by primary key, never by an index of all that is queued
            ORDER BY t.priority, t.turn, t.seq LIMIT capacity FOR UPDATE SKIP LOCKED
        ) free;

        EXIT WHEN cardinality(taken) = capacity OR seen IS NULL OR cardinality(seen) < reach;
        reach := reach * 4;
    END LOOP;

    INSERT INTO leases (task_id, worker_id, granted_at, expires_at)
    SELECT t.task_id, worker, now_at, until_at FROM tasks t WHERE t.seq = ANY (taken);

    RETURN QUERY
    UPDATE tasks t SET state = 'leased', attempts = t.attempts + 1 WHERE t.seq = ANY (taken) RETURNING t.*;
END
$$;

-- A batch in one round trip. Each statement in here sees what the others of its kind had committed when it got its
-- locks, which the parts of one statement would not. Rows are locked in one order: tasks, leases, parcels, and whoever
-- has locked a parcel may change its sources, results and liens.
-- `e_` are the entries, sorted by source and task, one for each; e_leading is the newest of its parcel and e_newest that
-- of its source in this batch; `l_` are the liens of those that are newest, by the entry's number.
CREATE FUNCTION store_results(
    worker TEXT, now_at TIMESTAMPTZ,
    e_state TEXT[], e_county TEXT[], e_norm TEXT[], e_platform TEXT[], e_parcel TEXT[],
    e_partial BOOLEAN[], e_listed BOOLEAN[], e_all_liens BOOLEAN[], e_target TEXT[], e_task TEXT[],
    e_leading BOOLEAN[], e_newest BOOLEAN[], e_scraped TIMESTAMPTZ[], e_late BOOLEAN[], e_ms BIGINT[], e_key TEXT[],
    e_sha256 TEXT[], e_file TEXT[], e_data TEXT[], e_owner TEXT[], e_situs TEXT[], e_delinquent BOOLEAN[],
    e_due BIGINT[], e_liens INTEGER[], e_search TEXT[],
    l_entry INTEGER[], l_position INTEGER[], l_key TEXT[], l_number TEXT[], l_year INTEGER[], l_tax_year INTEGER[],
    l_status TEXT[], l_holder TEXT[], l_amount BIGINT[], l_sale_date TEXT[], l_json TEXT[]
) RETURNS TABLE (answer TEXT) LANGUAGE plpgsql
SET enable_seqscan = off AS $$ -- by keys, also while the tables grow faster than their statistics: no join reads a table
DECLARE
    e_parcel_no BIGINT[];
    added  INTEGER;
    e_no   BIGINT[];
    won_no BIGINT[];
    won_is_new BOOLEAN[];
    kept_no   BIGINT[];
    kept_task TEXT[];
    merged_no BIGINT[];
    single_no BIGINT[];
    listed    BIGINT[];
BEGIN
    UPDATE tasks t SET state = 'done', ended_at = now_at, error = NULL
    WHERE t.task_id = ANY (e_task) AND t.state <> 'done';

    UPDATE leases l SET ended_at = now_at, ended_as = CASE WHEN l.worker_id = worker THEN 'done' ELSE 'superseded' END
    WHERE l.task_id = ANY (e_task) AND l.ended_at IS NULL;

    INSERT INTO parcels AS p (
        state, county, parcel_norm, parcel_id, owner, situs, delinquent, tax_due_cents, lien_count, scraped_at,
        received_at, first_seen_at
    )
    SELECT e.state, e.county, e.norm, e.parcel, e.owner, e.situs, e.delinquent, e.due, e.liens, e.scraped,
           now_at, now_at
    FROM unnest(e_state, e_county, e_norm, e_parcel, e_leading, e_scraped, e_owner, e_situs, e_delinquent, e_due,
                e_liens)
         AS e (state, county, norm, parcel, leads, scraped, owner, situs, delinquent, due, liens)
    WHERE e.leads
    ON CONFLICT (state, county, parcel_norm) DO UPDATE SET state = p.state WHERE FALSE; -- locks it, and changes nothing
    GET DIAGNOSTICS added = ROW_COUNT;

    SELECT array_agg(
        (SELECT p.parcel_no FROM parcels p WHERE (p.state, p.county, p.parcel_norm) = (e.state, e.county, e.norm))
        ORDER BY e.place
    ) INTO e_parcel_no
    FROM unnest(e_state, e_county, e_norm) WITH ORDINALITY AS e (state, county, norm, place);

    WITH upserted AS (
        INSERT INTO sources AS s (
            parcel_no, platform, parcel_id, is_partial, task_id, scraped_at, received_at, first_seen_at,
            owner, situs, delinquent, tax_due_cents, target, search
        )
        SELECT e.parcel_no, e.platform, e.parcel, e.partial, e.task, e.scraped, now_at, now_at,
               e.owner, e.situs, e.delinquent, e.due, e.target, e.search
        FROM unnest(e_parcel_no, e_platform, e_parcel, e_partial, e_target, e_task, e_newest, e_scraped,
                    e_owner, e_situs, e_delinquent, e_due, e_search)
             AS e (parcel_no, platform, parcel, partial, target, task, newest, scraped, owner, situs,
                   delinquent, due, search)
        WHERE e.newest
        ON CONFLICT (parcel_no, platform) DO UPDATE
        SET parcel_id = excluded.parcel_id, is_partial = excluded.is_partial, task_id = excluded.task_id,
            scraped_at = excluded.scraped_at, received_at = excluded.received_at,
            owner = CASE WHEN excluded.is_partial AND excluded.owner = '' THEN s.owner ELSE excluded.owner END,
            situs = CASE WHEN excluded.is_partial AND excluded.situs = '' THEN s.situs ELSE excluded.situs END,
            delinquent = coalesce(excluded.delinquent, CASE WHEN excluded.is_partial THEN s.delinquent END),
            tax_due_cents = coalesce(excluded.tax_due_cents, CASE WHEN excluded.is_partial THEN s.tax_due_cents END),
            target = coalesce(nullif(excluded.target, ''), s.target),
            search = CASE WHEN excluded.is_partial AND '' IN (excluded.owner, excluded.situs) THEN s.search
                          ELSE excluded.search END
        WHERE (excluded.scraped_at, excluded.task_id) > (s.scraped_at, s.task_id)
        RETURNING s.source_no, s.xmax = 0 AS is_new -- a row that was there has been locked by the upsert
    )
    SELECT array_agg(u.source_no), array_agg(u.is_new) INTO won_no, won_is_new FROM upserted u;

    SELECT array_agg(
        (SELECT s.source_no FROM sources s
         WHERE (s.parcel_no, s.platform) = (e.parcel_no, e.platform))
        ORDER BY e.place
    ) INTO e_no
    FROM unnest(e_parcel_no, e_platform) WITH ORDINALITY AS e (parcel_no, platform, place);

    WITH upserted AS (
        INSERT INTO results AS r (
            source_no, task_id, worker_id, scraped_at, received_at, late, parse_duration_ms, idempotency_key,
            raw_sha256, raw_file, data
        )
        SELECT e.no, e.task, worker, e.scraped, now_at, e.late, e.ms, e.key, e.sha256, e.file, e.data
        FROM unnest(e_no, e_task, e_scraped, e_late, e_ms, e_key, e_sha256, e_file, e_data)
             AS e (no, task, scraped, late, ms, key, sha256, file, data)
        ON CONFLICT (source_no, task_id) DO UPDATE
        SET worker_id = excluded.worker_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
            late = excluded.late, parse_duration_ms = excluded.parse_duration_ms,
            idempotency_key = excluded.idempotency_key, raw_sha256 = excluded.raw_sha256,
            raw_file = excluded.raw_file, data = excluded.data
        WHERE excluded.scraped_at > r.scraped_at
           OR (excluded.scraped_at = r.scraped_at AND excluded.idempotency_key <> r.idempotency_key)
        RETURNING r.source_no, r.task_id
    ), waiting AS (
        INSERT INTO results_to_compare (source_no, task_id) SELECT u.source_no, u.task_id FROM upserted u
    )
    SELECT array_agg(u.source_no), array_agg(u.task_id) INTO kept_no, kept_task FROM upserted u;

    -- A page that was read again: its source is of the same task and moment still.
    IF cardinality(kept_no) > coalesce(cardinality(won_no), 0) THEN
        WITH again AS (
            UPDATE sources s
            SET parcel_id = e.parcel, is_partial = e.partial, received_at = now_at,
                owner = CASE WHEN e.partial AND e.owner = '' THEN s.owner ELSE e.owner END,
                situs = CASE WHEN e.partial AND e.situs = '' THEN s.situs ELSE e.situs END,
                delinquent = coalesce(e.delinquent, CASE WHEN e.partial THEN s.delinquent END),
                tax_due_cents = coalesce(e.due, CASE WHEN e.partial THEN s.tax_due_cents END),
                search = CASE WHEN e.partial AND '' IN (e.owner, e.situs) THEN s.search ELSE e.search END
            FROM unnest(e_no, e_parcel, e_partial, e_task, e_newest, e_scraped, e_owner, e_situs, e_delinquent, e_due,
                        e_search)
                 AS e (no, parcel, partial, task, newest, scraped, owner, situs, delinquent, due, search)
            JOIN unnest(kept_no, kept_task) AS k (no, task) ON k.no = e.no AND k.task = e.task
            WHERE e.newest AND s.source_no = e.no AND s.task_id = e.task AND s.scraped_at = e.scraped
              AND (won_no IS NULL OR e.no <> ALL (won_no))
            RETURNING s.source_no
        )
        SELECT won_no || array_agg(a.source_no), won_is_new || array_agg(FALSE) INTO won_no, won_is_new FROM again a;
    END IF;

    -- A new parcel with one source has been written as that source shows it. All others are merged.
    IF added < cardinality(e_task) THEN
        SELECT array_agg(DISTINCT won.parcel_no) INTO merged_no
        FROM (
            SELECT w.is_new, (SELECT s.parcel_no FROM sources s WHERE s.source_no = w.no) AS parcel_no
            FROM unnest(won_no, won_is_new) AS w (no, is_new)
        ) won
        WHERE NOT won.is_new OR (
            SELECT count(*) FROM (SELECT FROM sources s WHERE s.parcel_no = won.parcel_no LIMIT 2) of_parcel
        ) > 1;
    END IF;

    -- A list adds liens, also an older one, and several lists may show a parcel.
    SELECT merged_no || array_agg(e.parcel_no), array_agg(e.place) INTO merged_no, listed
    FROM unnest(e_parcel_no, e_no, e_task, e_listed) WITH ORDINALITY AS e (parcel_no, no, task, listed, place)
    JOIN unnest(kept_no, kept_task) AS k (no, task) ON k.no = e.no AND k.task = e.task
    WHERE e.listed;

    IF merged_no IS NOT NULL THEN
        DELETE FROM lien_sources ls
        WHERE ls.lien_no = ANY (ARRAY(SELECT l.lien_no FROM liens l WHERE l.parcel_no = ANY (merged_no)))
          AND ls.source_no = ANY (won_no)
          AND ls.source_no IN (
              SELECT e.no FROM unnest(e_no, e_newest, e_all_liens) AS e (no, newest, all_liens)
              WHERE e.newest AND e.all_liens
          );
    END IF;

    IF cardinality(l_entry) > 0 THEN
        SELECT array_agg(coalesce(l.key, '=' || e_no[l.entry] || ':' || lpad(l.position::text, 3, '0')) ORDER BY l.place)
        INTO l_key
        FROM unnest(l_entry, l_position, l_key) WITH ORDINALITY AS l (entry, position, key, place);

        INSERT INTO liens (
            parcel_no, lien_key, certificate_number, certificate_year, tax_year, status, holder_name, amount_cents,
            sale_date
        )
        SELECT e_parcel_no[l.entry], l.key, l.number, l.year, l.tax_year, l.status, l.holder, l.amount, l.sale_date
        FROM unnest(l_entry, l_key, l_number, l_year, l_tax_year, l_status, l_holder, l_amount, l_sale_date)
             AS l (entry, key, number, year, tax_year, status, holder, amount, sale_date)
        WHERE l.entry = ANY (listed) OR (NOT e_listed[l.entry] AND e_no[l.entry] = ANY (won_no))
        ON CONFLICT (parcel_no, lien_key) DO NOTHING;

        INSERT INTO lien_sources AS ls (
            lien_no, source_no, position, task_id, scraped_at, certificate_number, certificate_year, tax_year, status, holder_name,
            amount_cents, sale_date, json
        )
        SELECT (SELECT known.lien_no FROM liens known
                WHERE known.parcel_no = e_parcel_no[l.entry] AND known.lien_key = l.key),
               e_no[l.entry], l.position, e_task[l.entry], e_scraped[l.entry], l.number, l.year, l.tax_year, l.status, l.holder, l.amount, l.sale_date,
               l.json
        FROM unnest(l_entry, l_position, l_key, l_number, l_year, l_tax_year, l_status, l_holder, l_amount,
                    l_sale_date, l_json)
             AS l (entry, position, key, number, year, tax_year, status, holder, amount, sale_date, json)
        WHERE l.entry = ANY (listed) OR (NOT e_listed[l.entry] AND e_no[l.entry] = ANY (won_no))
        ON CONFLICT (lien_no, source_no) DO UPDATE
        SET position = excluded.position, task_id = excluded.task_id, scraped_at = excluded.scraped_at,
            certificate_number = excluded.certificate_number,
            certificate_year = excluded.certificate_year, tax_year = excluded.tax_year, status = excluded.status,
            holder_name = excluded.holder_name, amount_cents = excluded.amount_cents,
            sale_date = excluded.sale_date, json = excluded.json
        WHERE (excluded.scraped_at, excluded.task_id) >= (ls.scraped_at, ls.task_id);
    END IF;

    IF merged_no IS NOT NULL THEN
        DELETE FROM liens l
        WHERE l.parcel_no = ANY (merged_no)
          AND (SELECT ls.lien_no FROM lien_sources ls WHERE ls.lien_no = l.lien_no LIMIT 1) IS NULL;

        UPDATE liens l
        SET certificate_number = m.certificate_number, certificate_year = m.certificate_year, tax_year = m.tax_year,
            status = m.status, holder_name = m.holder_name, amount_cents = m.amount_cents, sale_date = m.sale_date
        FROM merged_liens m
        WHERE m.lien_no = l.lien_no AND l.parcel_no = ANY (merged_no) AND m.parcel_no = ANY (merged_no);

        -- Most parcels have one source, and are as it shows them.
        SELECT array_agg(c.no) FILTER (WHERE c.of_one), array_agg(c.no) FILTER (WHERE NOT c.of_one)
        INTO single_no, merged_no
        FROM (
            SELECT u.no, (SELECT count(*) FROM (SELECT FROM sources s WHERE s.parcel_no = u.no LIMIT 2) any_two) = 1 AS of_one
            FROM unnest(merged_no) AS u (no)
        ) c;

        UPDATE parcels p
        SET parcel_id = s.parcel_id, owner = s.owner, situs = s.situs, delinquent = s.delinquent,
            tax_due_cents = s.tax_due_cents, scraped_at = s.scraped_at, received_at = s.received_at,
            lien_count = (SELECT count(*) FROM liens l WHERE l.parcel_no = p.parcel_no)
        FROM sources s
        WHERE s.parcel_no = p.parcel_no AND p.parcel_no = ANY (single_no) AND s.parcel_no = ANY (single_no);

        UPDATE parcels p
        SET parcel_id = m.parcel_id, owner = m.owner, situs = m.situs, delinquent = m.delinquent,
            tax_due_cents = m.tax_due_cents, lien_count = m.lien_count, scraped_at = m.scraped_at,
            received_at = m.received_at
        FROM merged_parcels m
        WHERE m.parcel_no = p.parcel_no AND p.parcel_no = ANY (merged_no) AND m.parcel_no = ANY (merged_no);
    END IF;

    RETURN QUERY
    SELECT CASE
        WHEN k.no IS NULL THEN 'duplicate'
        WHEN NOT e.newest OR w.no IS NULL THEN 'kept'
        WHEN w.is_new THEN 'inserted'
        ELSE 'updated'
    END
    FROM unnest(e_no, e_task, e_newest) WITH ORDINALITY AS e (no, task, newest, place)
    LEFT JOIN unnest(kept_no, kept_task) AS k (no, task) ON k.no = e.no AND k.task = e.task
    LEFT JOIN unnest(won_no, won_is_new) AS w (no, is_new) ON w.no = e.no
    ORDER BY e.place;
END
$$;
