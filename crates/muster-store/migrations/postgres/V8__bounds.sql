-- Refusals of the same act by the same caller are counted together.
ALTER TABLE audit ADD COLUMN times BIGINT NOT NULL DEFAULT 1;

-- What each idempotency key was used for, for as long as keys are kept: memory holds only the newest.
CREATE TABLE submission_keys (
    tenant    TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    number    BIGINT NOT NULL,
    body_hash TEXT    NOT NULL,
    at_ms     BIGINT NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX submission_keys_by_age ON submission_keys (at_ms);
