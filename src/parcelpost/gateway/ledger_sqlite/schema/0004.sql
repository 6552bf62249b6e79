-- A task can end as not found. Only the CHECK of its state changes, no row does: the table need not be written again.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''done'', ''failed'', ''dead''', '''done'', ''not_found'', ''failed'', ''dead''')
WHERE type = 'table' AND name = 'tasks';
PRAGMA writable_schema = RESET;
CREATE TABLE schema_has_changed (version INTEGER); -- which other connections notice, and read it again
DROP TABLE schema_has_changed;
