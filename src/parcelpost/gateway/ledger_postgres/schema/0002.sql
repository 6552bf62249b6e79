-- The latest liens are looked for among the parcels that have any, however few those are.
CREATE INDEX parcels_with_liens ON parcels (received_at, parcel_no) WHERE lien_count > 0;

-- The first tasks of these platforms by priority, then age, each leased to the worker.
-- They are looked up first and locked afterwards, so that no more are locked than are taken. Where others hold some of
-- them, it looks further on, until it has enough or has seen all that is queued.
-- The settings keep it to the indexes, in their order, whatever the statistics say: those of a queue that has just been
-- filled, or emptied, are of another time.
CREATE OR REPLACE FUNCTION grant_tasks(
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
CREATE OR REPLACE FUNCTION store_results(
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
