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
    CHECK ((ended_at IS NULL) = (state IN ('queued', 'leased')))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);

CREATE INDEX tasks_queued ON tasks (platform, priority, seq) WHERE state = 'queued';
CREATE INDEX tasks_ended ON tasks (ended_at, platform, priority, state) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_without_record ON tasks (state, ended_at, seq) WHERE state IN ('not_found', 'failed', 'dead'); -- listed, the last one first

CREATE TABLE leases (
    lease_id   BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id    TEXT COLLATE "C" NOT NULL REFERENCES tasks (task_id) ON DELETE CASCADE,
    worker_id  TEXT COLLATE "C" NOT NULL,
    granted_at TIMESTAMPTZ NOT NULL,
    expires_at TIMESTAMPTZ NOT NULL,
    ended_at   TIMESTAMPTZ,
    ended_as   TEXT CHECK (ended_as IN ('done', 'failed', 'returned', 'expired', 'superseded')),
    CHECK ((ended_at IS NULL) = (ended_as IS NULL))
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000);

CREATE INDEX leases_of_task ON leases (task_id);
CREATE UNIQUE INDEX leases_open ON leases (task_id) WHERE ended_at IS NULL; -- no task is held twice
CREATE INDEX leases_of_worker ON leases (worker_id, granted_at) WHERE ended_at IS NULL;
CREATE INDEX leases_expiring ON leases (expires_at) WHERE ended_at IS NULL;

CREATE TABLE parcels (
    parcel_no     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    platform      TEXT COLLATE "C" NOT NULL,
    state         TEXT COLLATE "C" NOT NULL,
    county        TEXT COLLATE "C" NOT NULL,
    parcel_id     TEXT COLLATE "C" NOT NULL,
    task_id       TEXT COLLATE "C" NOT NULL, -- of its newest scrape, as all that follows
    scraped_at    TIMESTAMPTZ NOT NULL,
    received_at   TIMESTAMPTZ NOT NULL,
    first_seen_at TIMESTAMPTZ NOT NULL,
    owner         TEXT NOT NULL,
    situs         TEXT NOT NULL,
    delinquent    BOOLEAN,
    tax_due_cents BIGINT,
    lien_count    INTEGER NOT NULL CHECK (lien_count >= 0),
    search        TEXT COLLATE "C" NOT NULL, -- number, owner and address, a line each, in lower case
    UNIQUE (platform, state, county, parcel_id)
);

CREATE INDEX parcels_latest ON parcels (received_at, parcel_no);
CREATE INDEX parcels_with_liens ON parcels (received_at, parcel_no) WHERE lien_count > 0; -- the latest liens, however few parcels have any

CREATE TABLE results (
    parcel_no         BIGINT NOT NULL,
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
    PRIMARY KEY (parcel_no, task_id)
);

CREATE TABLE liens (
    parcel_no          BIGINT NOT NULL,
    position           INTEGER NOT NULL CHECK (position >= 0),
    certificate_number TEXT,
    certificate_year   INTEGER,
    tax_year           INTEGER,
    status             TEXT COLLATE "C",
    holder_name        TEXT,
    amount_cents       BIGINT,
    sale_date          TEXT,
    json               TEXT NOT NULL,
    PRIMARY KEY (parcel_no, position)
);

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

-- Which ledger this is. A copy or a backup of it is the same one; a new one has another id.
CREATE TABLE identity (
    only_row  INTEGER PRIMARY KEY CHECK (only_row = 1),
    ledger_id TEXT NOT NULL
);

INSERT INTO identity (only_row, ledger_id)
VALUES (1, substr(md5(random()::text || clock_timestamp()::text || pg_backend_pid()::text), 1, 16));

-- The first tasks of these platforms by priority, then age, each leased to the worker.
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
                SELECT t.seq, t.priority FROM tasks t WHERE t.state = 'queued' AND t.platform = w.platform
                ORDER BY t.priority, t.seq LIMIT reach
            ) q
            ORDER BY q.priority, q.seq LIMIT reach
        ) first;

        SELECT array_agg(free.seq) INTO taken
        FROM (
            SELECT t.seq FROM tasks t WHERE t.seq = ANY (seen) AND t.state = 'queued'
            ORDER BY t.priority, t.seq LIMIT capacity FOR UPDATE SKIP LOCKED
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
-- locks, which the parts of one statement would not. Rows are locked in one order: tasks, leases, parcels, results.
-- `e_` are the entries, sorted by parcel and task, one for each; `l_` are the liens of those that are their parcel's
-- newest of this batch (e_newest), by the entry's number.
CREATE FUNCTION store_results(
    worker TEXT, now_at TIMESTAMPTZ,
    e_platform TEXT[], e_state TEXT[], e_county TEXT[], e_parcel TEXT[], e_task TEXT[], e_newest BOOLEAN[],
    e_scraped TIMESTAMPTZ[], e_late BOOLEAN[], e_ms BIGINT[], e_key TEXT[], e_sha256 TEXT[], e_file TEXT[],
    e_data TEXT[], e_owner TEXT[], e_situs TEXT[], e_delinquent BOOLEAN[], e_due BIGINT[], e_liens INTEGER[],
    e_search TEXT[],
    l_entry INTEGER[], l_position INTEGER[], l_number TEXT[], l_year INTEGER[], l_tax_year INTEGER[],
    l_status TEXT[], l_holder TEXT[], l_amount BIGINT[], l_sale_date TEXT[], l_json TEXT[]
) RETURNS TABLE (answer TEXT) LANGUAGE plpgsql
SET enable_seqscan = off AS $$ -- by keys, also while the tables grow faster than their statistics
DECLARE
    e_no   BIGINT[];
    won_no BIGINT[];
    won_is_new BOOLEAN[];
    kept_no   BIGINT[];
    kept_task TEXT[];
BEGIN
    UPDATE tasks t SET state = 'done', ended_at = now_at, error = NULL
    WHERE t.task_id = ANY (e_task) AND t.state <> 'done';

    UPDATE leases l SET ended_at = now_at, ended_as = CASE WHEN l.worker_id = worker THEN 'done' ELSE 'superseded' END
    WHERE l.task_id = ANY (e_task) AND l.ended_at IS NULL;

    WITH upserted AS (
        INSERT INTO parcels AS p (
            platform, state, county, parcel_id, task_id, scraped_at, received_at, first_seen_at,
            owner, situs, delinquent, tax_due_cents, lien_count, search
        )
        SELECT e.platform, e.state, e.county, e.parcel, e.task, e.scraped, now_at, now_at,
               e.owner, e.situs, e.delinquent, e.due, e.liens, e.search
        FROM unnest(e_platform, e_state, e_county, e_parcel, e_task, e_newest, e_scraped,
                    e_owner, e_situs, e_delinquent, e_due, e_liens, e_search)
             AS e (platform, state, county, parcel, task, newest, scraped,
                   owner, situs, delinquent, due, liens, search)
        WHERE e.newest
        ON CONFLICT (platform, state, county, parcel_id) DO UPDATE
        SET task_id = excluded.task_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
            owner = excluded.owner, situs = excluded.situs, delinquent = excluded.delinquent,
            tax_due_cents = excluded.tax_due_cents, lien_count = excluded.lien_count, search = excluded.search
        WHERE (excluded.scraped_at, excluded.task_id) > (p.scraped_at, p.task_id)
        RETURNING p.parcel_no, p.xmax = 0 AS is_new -- a row that was there has been locked by the upsert
    )
    SELECT array_agg(u.parcel_no), array_agg(u.is_new) INTO won_no, won_is_new FROM upserted u;

    SELECT array_agg(
        (SELECT p.parcel_no FROM parcels p
         WHERE (p.platform, p.state, p.county, p.parcel_id) = (e.platform, e.state, e.county, e.parcel))
        ORDER BY e.place
    ) INTO e_no
    FROM unnest(e_platform, e_state, e_county, e_parcel) WITH ORDINALITY AS e (platform, state, county, parcel, place);

    WITH upserted AS (
        INSERT INTO results AS r (
            parcel_no, task_id, worker_id, scraped_at, received_at, late, parse_duration_ms, idempotency_key,
            raw_sha256, raw_file, data
        )
        SELECT e.no, e.task, worker, e.scraped, now_at, e.late, e.ms, e.key, e.sha256, e.file, e.data
        FROM unnest(e_no, e_task, e_scraped, e_late, e_ms, e_key, e_sha256, e_file, e_data)
             AS e (no, task, scraped, late, ms, key, sha256, file, data)
        ON CONFLICT (parcel_no, task_id) DO UPDATE
        SET worker_id = excluded.worker_id, scraped_at = excluded.scraped_at, received_at = excluded.received_at,
            late = excluded.late, parse_duration_ms = excluded.parse_duration_ms,
            idempotency_key = excluded.idempotency_key, raw_sha256 = excluded.raw_sha256,
            raw_file = excluded.raw_file, data = excluded.data
        WHERE excluded.scraped_at > r.scraped_at
           OR (excluded.scraped_at = r.scraped_at AND excluded.idempotency_key <> r.idempotency_key)
        RETURNING r.parcel_no, r.task_id
    )
    SELECT array_agg(u.parcel_no), array_agg(u.task_id) INTO kept_no, kept_task FROM upserted u;

    -- A page that was read again: its parcel is of the same task and moment still, and locked since the upsert above.
    IF cardinality(kept_no) > coalesce(cardinality(won_no), 0) THEN
        WITH again AS (
            UPDATE parcels p
            SET received_at = now_at, owner = e.owner, situs = e.situs, delinquent = e.delinquent,
                tax_due_cents = e.due, lien_count = e.liens, search = e.search
            FROM unnest(e_no, e_task, e_newest, e_scraped, e_owner, e_situs, e_delinquent, e_due, e_liens, e_search)
                 AS e (no, task, newest, scraped, owner, situs, delinquent, due, liens, search)
            JOIN unnest(kept_no, kept_task) AS k (no, task) ON k.no = e.no AND k.task = e.task
            WHERE e.newest AND p.parcel_no = e.no AND p.task_id = e.task AND p.scraped_at = e.scraped
              AND (won_no IS NULL OR e.no <> ALL (won_no))
            RETURNING p.parcel_no
        )
        SELECT won_no || array_agg(a.parcel_no), won_is_new || array_agg(FALSE) INTO won_no, won_is_new FROM again a;
    END IF;

    IF won_no IS NOT NULL THEN
        IF cardinality(l_entry) > 0 THEN
            INSERT INTO liens (
                parcel_no, position, certificate_number, certificate_year, tax_year, status, holder_name,
                amount_cents, sale_date, json
            )
            SELECT e_no[l.entry], l.position, l.number, l.year, l.tax_year, l.status, l.holder,
                   l.amount, l.sale_date, l.json
            FROM unnest(l_entry, l_position, l_number, l_year, l_tax_year, l_status, l_holder, l_amount,
                        l_sale_date, l_json)
                 AS l (entry, position, number, year, tax_year, status, holder, amount, sale_date, json)
            WHERE e_no[l.entry] = ANY (won_no)
            ON CONFLICT (parcel_no, position) DO UPDATE
            SET certificate_number = excluded.certificate_number, certificate_year = excluded.certificate_year,
                tax_year = excluded.tax_year, status = excluded.status, holder_name = excluded.holder_name,
                amount_cents = excluded.amount_cents, sale_date = excluded.sale_date, json = excluded.json;
        END IF;
        DELETE FROM liens l USING parcels p
        WHERE p.parcel_no = ANY (won_no) AND l.parcel_no = p.parcel_no AND l.position >= p.lien_count;
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
