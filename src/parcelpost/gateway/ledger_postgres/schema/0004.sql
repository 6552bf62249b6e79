-- A task can end as not found.
ALTER TABLE tasks DROP CONSTRAINT tasks_state_check;
ALTER TABLE tasks ADD CONSTRAINT tasks_state_check
    CHECK (state IN ('queued', 'leased', 'done', 'not_found', 'failed', 'dead'));
