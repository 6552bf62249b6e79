-- Tasks that ended without a record are listed, the last one first.
CREATE INDEX tasks_without_record ON tasks (state, ended_at, seq) WHERE state IN ('not_found', 'failed', 'dead');
