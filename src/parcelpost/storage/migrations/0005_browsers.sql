-- How a killed worker's browsers are found
-- Written before a browser is started: whose it is, what its command line says, and which processes are meant.

ALTER TABLE browser_pool_state ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_pool_state ADD COLUMN boot TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_pool_state ADD COLUMN marker TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_pool_state ADD COLUMN started TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_pool_state ADD COLUMN executable TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_pool_state ADD COLUMN profile TEXT NOT NULL DEFAULT '';
ALTER TABLE browser_pool_state ADD COLUMN driver_pid INTEGER;
ALTER TABLE browser_pool_state ADD COLUMN driver_started TEXT NOT NULL DEFAULT '';
