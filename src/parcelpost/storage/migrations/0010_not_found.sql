-- A task can end as not found
-- The site has no such parcel: that is no completed task without a record. Only the CHECK of the status changes, so the
-- table need not be written again.

PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, 'ELSE 0 END',
    'WHEN ''not_found'' THEN claim_token IS NULL AND claimed_by IS NULL AND completed_at IS NOT NULL
        ELSE 0 END')
WHERE type = 'table' AND name = 'tasks';
PRAGMA writable_schema = RESET;
CREATE TABLE schema_has_changed (version INTEGER); -- which other connections notice, and read it again
DROP TABLE schema_has_changed;

UPDATE tasks SET status = 'not_found'
WHERE status = 'completed' AND task_id IN (SELECT task_id FROM results WHERE success = 1 AND data IS NULL);
