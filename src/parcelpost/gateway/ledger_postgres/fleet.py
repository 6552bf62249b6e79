"""Heartbeats, commands and counts, a statement each."""

from __future__ import annotations

# Leases that somebody ends just now are not waited for. $6: whether to extend any, $7: whether it leaves, $8: commands
# that were ordered before then are dropped.
BEAT = """
WITH known AS (
    INSERT INTO workers (worker_id, beat, leaving, first_seen_at, last_seen_at) VALUES ($1, $2, $7, $3, $3)
    ON CONFLICT (worker_id) DO UPDATE
    SET beat = excluded.beat, leaving = excluded.leaving, last_seen_at = excluded.last_seen_at
), held AS MATERIALIZED (
    SELECT lease_id FROM leases
    WHERE $6 AND worker_id = $1 AND ended_at IS NULL AND granted_at > $5 AND expires_at < $4 FOR UPDATE SKIP LOCKED
), extended AS (
    UPDATE leases l SET expires_at = $4 FROM held WHERE l.lease_id = held.lease_id
), taken AS (
    DELETE FROM commands WHERE worker_id = $1 RETURNING command_id, command, ordered_at
)
SELECT command FROM taken WHERE ordered_at >= $8 AND NOT $7 ORDER BY command_id
"""

ORDER = """
INSERT INTO commands (worker_id, command, ordered_at)
SELECT worker_id, $1, $2 FROM workers WHERE $3 IN (worker_id, '') AND last_seen_at >= $4 AND NOT leaving
"""

# Large tables are estimated, as their last vacuum saw them.
COUNTS = """
WITH estimates AS (
    SELECT relname, reltuples::bigint AS rows FROM pg_class
    WHERE oid IN ('parcels'::regclass, 'liens'::regclass, 'results'::regclass)
)
SELECT relname, CASE
    WHEN rows > 100000 THEN rows
    WHEN relname = 'parcels' THEN (SELECT count(*) FROM parcels)
    WHEN relname = 'liens' THEN (SELECT count(*) FROM liens)
    ELSE (SELECT count(*) FROM results)
END
FROM estimates
"""
