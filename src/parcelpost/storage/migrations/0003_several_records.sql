-- Several records of one page, and what reading a page again needs
-- A page that lists many parcels gives many results. Each has a task of its own, complete from the start, because a
-- result belongs to one task; the page is stored once and named by all of them.

ALTER TABLE tasks ADD COLUMN parent_id TEXT;         -- the task whose page brought this record; NULL: an order itself
CREATE INDEX tasks_children ON tasks (parent_id, platform) WHERE parent_id IS NOT NULL;

ALTER TABLE results ADD COLUMN page_shared INTEGER NOT NULL DEFAULT 0 CHECK (page_shared = 0 OR page_shared = 1);
ALTER TABLE results ADD COLUMN content_type TEXT;    -- of the page; NULL: text/html

-- A file belongs to one result, the one that names the record beside it too. Others may name the page only.
DROP INDEX results_html_path;
CREATE UNIQUE INDEX results_page_owner ON results (html_path) WHERE json_path IS NOT NULL;
CREATE INDEX results_page_shared ON results (html_path) WHERE html_path IS NOT NULL AND json_path IS NULL;
