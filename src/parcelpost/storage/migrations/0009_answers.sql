-- Tasks that were handed out again after their end was delivered
-- The upstream waits for an answer to each; the sync tells it that the task is done.

ALTER TABLE tasks ADD COLUMN answer_due_at TEXT;     -- since when; NULL: the upstream waits for nothing
CREATE INDEX tasks_to_answer ON tasks (answer_due_at) WHERE answer_due_at IS NOT NULL;
