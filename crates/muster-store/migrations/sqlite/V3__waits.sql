-- Why jobs of one kind waited, each time that changed: for "why was it late".
CREATE TABLE waits (
    seq     INTEGER PRIMARY KEY,
    bucket  TEXT   NOT NULL,
    at_ms   INTEGER NOT NULL,
    reasons TEXT   NOT NULL
) STRICT;
CREATE INDEX waits_by_bucket ON waits (bucket, at_ms);
