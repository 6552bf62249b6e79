-- Whether the site is asked, whatever the page cache has
-- An operator who lets a task start anew wants to know what the site says now.

ALTER TABLE tasks ADD COLUMN ask_site INTEGER NOT NULL DEFAULT 0 CHECK (ask_site IN (0, 1));
