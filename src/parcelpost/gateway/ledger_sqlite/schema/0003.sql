-- A worker that said goodbye is gone at once.
ALTER TABLE workers ADD COLUMN leaving INTEGER NOT NULL DEFAULT 0 CHECK (leaving IN (0, 1));
