-- The port that a gang holds on the node of its rank 0.
ALTER TABLE attempts ADD COLUMN master TEXT;
ALTER TABLE attempts ADD COLUMN master_port BIGINT;
-- No two live gangs with the same master hold the same port.
CREATE UNIQUE INDEX attempts_master_port ON attempts (master, master_port) WHERE ended_at IS NULL AND master_port IS NOT NULL;
