-- The journal is the truth. Everything else is written from it in the same transaction and may be queried freely.
-- Times are Unix milliseconds, memory is MiB, money is millionths. A job is (number, idx); idx is -1 for a job
-- that is not part of an array. Columns named `job` hold the id as people write it, `job-42` or `job-42.3`.

CREATE TABLE journal (
    seq        INTEGER PRIMARY KEY,
    epoch      INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    payload    TEXT    NOT NULL,
    crc        INTEGER NOT NULL,
    -- Not covered by the checksum: only there to find the events of a job.
    job_number INTEGER,
    job_idx    INTEGER
) STRICT;
CREATE INDEX journal_by_job ON journal (job_number, seq) WHERE job_number IS NOT NULL;

CREATE TABLE savepoints (
    seq      INTEGER PRIMARY KEY,
    chunks   INTEGER NOT NULL,
    bytes    INTEGER NOT NULL,
    complete INTEGER NOT NULL CHECK (complete IN (0, 1))
) STRICT;

CREATE TABLE savepoint_chunks (
    seq   INTEGER NOT NULL,
    chunk INTEGER NOT NULL,
    crc   INTEGER NOT NULL,
    bytes BLOB    NOT NULL,
    PRIMARY KEY (seq, chunk)
) STRICT;

-- A limit that is NULL is no limit. The ceiling is the limit, or what was held already when the limit was
-- lowered; it sinks as leases end. So nothing can be added above a limit, and lowering one breaks nothing.
CREATE TABLE tenants (
    id                  TEXT PRIMARY KEY,
    name                TEXT    NOT NULL,
    email               TEXT    NOT NULL,
    organization        TEXT    NOT NULL,
    parent              TEXT,
    priority_tier       TEXT    NOT NULL,
    weight              INTEGER NOT NULL,
    allow_preemption    INTEGER NOT NULL,
    can_preempt_others  INTEGER NOT NULL,
    active              INTEGER NOT NULL,
    max_gpus            INTEGER,
    max_gpu_memory_mib  INTEGER,
    max_cpus            INTEGER,
    max_memory_mib      INTEGER,
    max_jobs            INTEGER,
    gpus_used           INTEGER NOT NULL DEFAULT 0 CHECK (gpus_used >= 0),
    gpu_memory_mib_used INTEGER NOT NULL DEFAULT 0 CHECK (gpu_memory_mib_used >= 0),
    cpus_used           INTEGER NOT NULL DEFAULT 0 CHECK (cpus_used >= 0),
    memory_mib_used     INTEGER NOT NULL DEFAULT 0 CHECK (memory_mib_used >= 0),
    jobs_used           INTEGER NOT NULL DEFAULT 0 CHECK (jobs_used >= 0),
    gpus_ceiling           INTEGER,
    gpu_memory_mib_ceiling INTEGER,
    cpus_ceiling           INTEGER,
    memory_mib_ceiling     INTEGER,
    jobs_ceiling           INTEGER,
    config              TEXT    NOT NULL,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    deleted_at          INTEGER,
    CONSTRAINT tenant_gpus       CHECK (gpus_used <= gpus_ceiling),
    CONSTRAINT tenant_gpu_memory CHECK (gpu_memory_mib_used <= gpu_memory_mib_ceiling),
    CONSTRAINT tenant_cpus       CHECK (cpus_used <= cpus_ceiling),
    CONSTRAINT tenant_memory     CHECK (memory_mib_used <= memory_mib_ceiling),
    CONSTRAINT tenant_jobs       CHECK (jobs_used <= jobs_ceiling)
) STRICT, WITHOUT ROWID;

-- What was asked, as it was asked; all tasks of an array share one row. What changed since is in `jobs`.
CREATE TABLE specs (
    number INTEGER PRIMARY KEY,
    spec   TEXT NOT NULL
) STRICT;

CREATE TABLE jobs (
    number         INTEGER NOT NULL,
    idx            INTEGER NOT NULL,
    id             TEXT    NOT NULL,
    tenant         TEXT    NOT NULL,
    user_name      TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    state          TEXT    NOT NULL
        CHECK (state IN ('pending', 'running', 'completed', 'failed', 'preempted', 'cancelled')),
    phase          TEXT    NOT NULL,
    why            TEXT    NOT NULL DEFAULT '',
    held_by        TEXT,
    gpus           INTEGER NOT NULL,
    gpu_memory_mib INTEGER NOT NULL,
    cpus           INTEGER NOT NULL,
    memory_mib     INTEGER NOT NULL,
    time_limit_ms  INTEGER,
    submitted_at   INTEGER NOT NULL,
    placed_at      INTEGER,
    started_at     INTEGER,
    ended_at       INTEGER,
    wakes_at       INTEGER,
    attempt        INTEGER NOT NULL DEFAULT 0,
    nodes          TEXT    NOT NULL DEFAULT '[]',
    exit_code      INTEGER,
    signal         INTEGER,
    preemptions    INTEGER NOT NULL DEFAULT 0,
    restarts       INTEGER NOT NULL DEFAULT 0,
    requeues       INTEGER NOT NULL DEFAULT 0,
    gpu_ms         INTEGER NOT NULL DEFAULT 0,
    cpu_ms         INTEGER NOT NULL DEFAULT 0,
    cost_micro     INTEGER NOT NULL DEFAULT 0,
    labels         TEXT    NOT NULL,
    PRIMARY KEY (number, idx),
    CONSTRAINT ended_jobs_have_an_end
        CHECK ((state IN ('completed', 'failed', 'cancelled')) = (ended_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX jobs_by_state ON jobs (state, number, idx);
CREATE INDEX jobs_by_tenant ON jobs (tenant, number, idx);
CREATE INDEX jobs_by_tenant_state ON jobs (tenant, state, number, idx);
CREATE INDEX jobs_by_user ON jobs (user_name, number, idx);

-- Which job numbers ever carried a label; the exact answer is in `jobs.labels`.
CREATE TABLE job_labels (
    label  TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (label, value, number)
) STRICT, WITHOUT ROWID;

-- How many jobs are in which state, kept by the triggers below: counting a million rows takes too long.
CREATE TABLE job_counts (
    tenant TEXT    NOT NULL,
    state  TEXT    NOT NULL,
    jobs   INTEGER NOT NULL CHECK (jobs >= 0),
    PRIMARY KEY (tenant, state)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER jobs_counted_on_insert AFTER INSERT ON jobs BEGIN
    INSERT INTO job_counts (tenant, state, jobs) VALUES (NEW.tenant, NEW.state, 1)
    ON CONFLICT (tenant, state) DO UPDATE SET jobs = jobs + 1;
END;
CREATE TRIGGER jobs_counted_on_update AFTER UPDATE OF state ON jobs WHEN OLD.state <> NEW.state BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE tenant = OLD.tenant AND state = OLD.state;
    INSERT INTO job_counts (tenant, state, jobs) VALUES (NEW.tenant, NEW.state, 1)
    ON CONFLICT (tenant, state) DO UPDATE SET jobs = jobs + 1;
END;
-- What has ended stays as it ended.
CREATE TRIGGER jobs_stay_ended BEFORE UPDATE ON jobs WHEN OLD.ended_at IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'an ended job was changed');
END;

CREATE TABLE attempts (
    number        INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    job           TEXT    NOT NULL,
    seq           INTEGER NOT NULL UNIQUE,
    tenant        TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    placed_at     INTEGER NOT NULL,
    started_at    INTEGER,
    stopping_at   INTEGER,
    ended_at      INTEGER,
    stop_cause    TEXT,
    exit          TEXT,
    exit_code     INTEGER,
    signal        INTEGER,
    why           TEXT    NOT NULL DEFAULT '',
    gpus          INTEGER NOT NULL,
    nodes         TEXT    NOT NULL,
    gpu_ms        INTEGER NOT NULL DEFAULT 0,
    cpu_ms        INTEGER NOT NULL DEFAULT 0,
    memory_gib_ms INTEGER NOT NULL DEFAULT 0,
    cost_micro    INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (number, idx, attempt)
) STRICT, WITHOUT ROWID;
-- At most one live attempt of a job.
CREATE UNIQUE INDEX attempts_live ON attempts (number, idx) WHERE ended_at IS NULL;
CREATE INDEX attempts_live_by_seq ON attempts (seq) WHERE ended_at IS NULL;
CREATE INDEX attempts_by_tenant ON attempts (tenant, seq);

CREATE TABLE leases (
    number        INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    node          TEXT    NOT NULL,
    gpu           INTEGER NOT NULL,
    job           TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    tenant        TEXT    NOT NULL,
    compute_milli INTEGER NOT NULL CHECK (compute_milli BETWEEN 1 AND 1000),
    from_ms       INTEGER NOT NULL,
    to_ms         INTEGER,
    PRIMARY KEY (number, idx, attempt, node, gpu)
) STRICT, WITHOUT ROWID;
-- A device has at most one live holder.
CREATE UNIQUE INDEX leases_live ON leases (node, gpu) WHERE to_ms IS NULL;
CREATE INDEX leases_by_node ON leases (node, seq);

CREATE TABLE nodes (
    id            TEXT PRIMARY KEY,
    hostname      TEXT    NOT NULL,
    address       TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    set_by        TEXT    NOT NULL,
    why           TEXT    NOT NULL,
    since         INTEGER NOT NULL,
    cpus          INTEGER NOT NULL,
    memory_mib    INTEGER NOT NULL,
    gpus          INTEGER NOT NULL,
    rack          TEXT,
    power_feed    TEXT,
    agent_version TEXT    NOT NULL,
    simulated     INTEGER NOT NULL,
    facts         TEXT    NOT NULL,
    registered_at INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    removed_at    INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE gpus (
    node          TEXT    NOT NULL REFERENCES nodes (id),
    idx           INTEGER NOT NULL,
    uuid          TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    memory_mib    INTEGER NOT NULL,
    health        TEXT    NOT NULL,
    why           TEXT    NOT NULL,
    since         INTEGER NOT NULL,
    cooling_until INTEGER,
    used_milli    INTEGER NOT NULL DEFAULT 0,
    removed_at    INTEGER,
    PRIMARY KEY (node, idx),
    CONSTRAINT gpu_shares CHECK (used_milli BETWEEN 0 AND 1000)
) STRICT, WITHOUT ROWID;

-- Space held for a job that others were displaced for.
CREATE TABLE reservations (
    seq      INTEGER PRIMARY KEY,
    number   INTEGER NOT NULL,
    idx      INTEGER NOT NULL,
    job      TEXT    NOT NULL,
    node     TEXT    NOT NULL,
    gpus     TEXT    NOT NULL,
    victims  TEXT    NOT NULL,
    made_at  INTEGER NOT NULL,
    until    INTEGER NOT NULL,
    ended_at INTEGER,
    why      TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX reservations_live ON reservations (number, idx) WHERE ended_at IS NULL;

-- One row for each attempt that ended. The sums are what tenants are charged.
CREATE TABLE usage (
    number        INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    job           TEXT    NOT NULL,
    tenant        TEXT    NOT NULL,
    user_name     TEXT    NOT NULL,
    gpus          INTEGER NOT NULL,
    from_ms       INTEGER NOT NULL,
    to_ms         INTEGER NOT NULL CHECK (to_ms >= from_ms),
    gpu_ms        INTEGER NOT NULL,
    cpu_ms        INTEGER NOT NULL,
    memory_gib_ms INTEGER NOT NULL,
    cost_micro    INTEGER NOT NULL,
    PRIMARY KEY (number, idx, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_by_end ON usage (to_ms);
CREATE INDEX usage_by_tenant ON usage (tenant, to_ms);

-- Never the secret, only its hash.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    hash       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    tenant     TEXT,
    made_at    INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    seq     INTEGER PRIMARY KEY,
    at_ms   INTEGER NOT NULL,
    actor   TEXT    NOT NULL,
    act     TEXT    NOT NULL,
    object  TEXT    NOT NULL,
    refused TEXT
) STRICT;

CREATE TABLE settings (
    name       TEXT PRIMARY KEY,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
