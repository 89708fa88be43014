-- Values of secrets, sealed by a key that is not in the database. What the journal knows of them is in its events.
CREATE TABLE sealed_secrets (
    id     TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner  TEXT NOT NULL,
    name   TEXT NOT NULL,
    sealed BYTEA NOT NULL
);
CREATE INDEX sealed_secrets_by_name ON sealed_secrets (tenant, owner, name);
