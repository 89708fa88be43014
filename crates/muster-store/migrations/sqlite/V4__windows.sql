-- Nodes that are or were booked for a time.
CREATE TABLE windows (
    seq       INTEGER PRIMARY KEY,
    name      TEXT   NOT NULL,
    nodes     TEXT   NOT NULL,
    from_ms   INTEGER NOT NULL,
    until_ms  INTEGER NOT NULL CHECK (until_ms > from_ms),
    tenant    TEXT,
    why       TEXT   NOT NULL,
    booked_by TEXT   NOT NULL,
    opened_at INTEGER NOT NULL,
    closed_at INTEGER,
    closed_why TEXT  NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX windows_open ON windows (name) WHERE closed_at IS NULL;
