-- Nodes that are or were booked for a time.
CREATE TABLE windows (
    seq       BIGINT PRIMARY KEY,
    name      TEXT   NOT NULL,
    nodes     TEXT   NOT NULL,
    from_ms   BIGINT NOT NULL,
    until_ms  BIGINT NOT NULL CHECK (until_ms > from_ms),
    tenant    TEXT,
    why       TEXT   NOT NULL,
    booked_by TEXT   NOT NULL,
    opened_at BIGINT NOT NULL,
    closed_at BIGINT,
    closed_why TEXT  NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX windows_open ON windows (name) WHERE closed_at IS NULL;
