-- A worker that said goodbye is gone at once.
ALTER TABLE workers ADD COLUMN leaving BOOLEAN NOT NULL DEFAULT FALSE;
