"""Tasks and their leases, a statement each. A task's row is locked before its lease's."""

from __future__ import annotations

from parcelpost.gateway.sql.rows import TASK_COLUMNS

ADD = """
INSERT INTO tasks (task_id, platform, type, priority, target, max_retries, max_attempts, created_at, state)
SELECT t.task_id, t.platform, t.type, t.priority, t.target, t.max_retries, $7, $8, 'queued'
FROM unnest($1::text[], $2::text[], $3::text[], $4::smallint[], $5::text[], $6::integer[])
     AS t (task_id, platform, type, priority, target, max_retries)
ON CONFLICT (task_id) DO NOTHING
"""

GRANT = f"SELECT {TASK_COLUMNS} FROM grant_tasks($1, $2, $3, $4, $5) ORDER BY priority, seq"

BRING_BACK = """
WITH over AS MATERIALIZED (
    SELECT l.lease_id FROM leases l JOIN tasks t ON t.task_id = l.task_id
    WHERE l.ended_at IS NULL AND l.expires_at <= $1
    ORDER BY l.expires_at LIMIT $2 FOR UPDATE OF t SKIP LOCKED
), ended AS (
    UPDATE leases l SET ended_at = $1, ended_as = 'expired' FROM over
    WHERE l.lease_id = over.lease_id AND l.ended_at IS NULL AND l.expires_at <= $1 RETURNING l.task_id
)
UPDATE tasks t
SET state = CASE WHEN t.attempts < t.max_attempts THEN 'queued' ELSE 'dead' END,
    ended_at = CASE WHEN t.attempts < t.max_attempts THEN NULL ELSE $1 END,
    error = CASE WHEN t.attempts < t.max_attempts THEN NULL ELSE $3 END
FROM ended WHERE t.task_id = ended.task_id RETURNING t.platform, t.state
"""

# $3: how the lease ends, $4: the task's state, $5: its state if it may not be tried again.
END = """
WITH held AS MATERIALIZED (
    SELECT l.lease_id FROM leases l JOIN tasks t ON t.task_id = l.task_id
    WHERE t.task_id = $1 AND t.state = 'leased' AND l.worker_id = $2 AND l.ended_at IS NULL FOR UPDATE OF t
), ended AS (
    UPDATE leases l SET ended_at = $7, ended_as = $3 FROM held
    WHERE l.lease_id = held.lease_id AND l.ended_at IS NULL RETURNING l.task_id
), decided AS (
    SELECT t.seq, CASE WHEN t.attempts < t.max_attempts THEN $4 ELSE $5 END AS state
    FROM ended JOIN tasks t ON t.task_id = ended.task_id
)
UPDATE tasks t
SET state = decided.state, error = $6, ended_at = CASE WHEN decided.state = 'queued' THEN NULL ELSE $7 END
FROM decided WHERE t.seq = decided.seq RETURNING t.platform, t.state
"""

REQUEUE = """
UPDATE tasks SET state = 'queued', attempts = 0, ended_at = NULL, error = NULL
WHERE ended_at IS NOT NULL AND state = ANY ($1::text[]) AND ($2 = '' OR platform = $2)
"""
