-- A checksum over the record and the one before it. Records of older releases have none.
ALTER TABLE journal ADD COLUMN chain BIGINT;

-- Which cluster this database belongs to; the data folder of each server has the same id.
CREATE TABLE cluster (
    id         BIGINT PRIMARY KEY CHECK (id = 1),
    cluster_id TEXT NOT NULL
);
