-- The head of every site's queue
-- A site that has no turn free for us is passed over, however many tasks it has: each site's head is one probe.

CREATE INDEX tasks_sites ON tasks (platform, state, county, priority, seq)
    WHERE status = 'pending' AND available_at IS NULL;
