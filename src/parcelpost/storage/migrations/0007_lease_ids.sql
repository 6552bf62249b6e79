-- Which grant of a task is meant
-- An upstream that many workers write to names each grant: a worker that lost a task and got it again has another one.

ALTER TABLE tasks ADD COLUMN lease_id TEXT;          -- NULL: the upstream gives its leases no names
CREATE INDEX tasks_named_leases ON tasks (lease_expires_at) WHERE lease_id IS NOT NULL;
