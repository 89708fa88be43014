-- The journal is the truth. Everything else is written from it in the same transaction and may be queried freely.
-- Times are Unix milliseconds, memory is MiB, money is millionths. A job is (number, idx); idx is -1 for a job
-- that is not part of an array. Columns named `job` hold the id as people write it, `job-42` or `job-42.3`.

CREATE TABLE journal (
    seq        BIGINT PRIMARY KEY,
    epoch      BIGINT  NOT NULL,
    at_ms      BIGINT  NOT NULL,
    kind       TEXT    NOT NULL,
    version    BIGINT  NOT NULL,
    payload    TEXT    NOT NULL,
    crc        BIGINT  NOT NULL,
    -- Not covered by the checksum: only there to find the events of a job.
    job_number BIGINT,
    job_idx    BIGINT
);
CREATE INDEX journal_by_job ON journal (job_number, seq) WHERE job_number IS NOT NULL;

CREATE TABLE savepoints (
    seq      BIGINT PRIMARY KEY,
    chunks   BIGINT  NOT NULL,
    bytes    BIGINT  NOT NULL,
    complete BOOLEAN NOT NULL
);

CREATE TABLE savepoint_chunks (
    seq   BIGINT  NOT NULL,
    chunk BIGINT  NOT NULL,
    crc   BIGINT  NOT NULL,
    bytes BYTEA   NOT NULL,
    PRIMARY KEY (seq, chunk)
);

-- A limit that is NULL is no limit. The ceiling is the limit, or what was held already when the limit was
-- lowered; it sinks as leases end. So nothing can be added above a limit, and lowering one breaks nothing.
CREATE TABLE tenants (
    id                  TEXT PRIMARY KEY,
    name                TEXT    NOT NULL,
    email               TEXT    NOT NULL,
    organization        TEXT    NOT NULL,
    parent              TEXT,
    priority_tier       TEXT    NOT NULL,
    weight              BIGINT  NOT NULL,
    allow_preemption    BOOLEAN NOT NULL,
    can_preempt_others  BOOLEAN NOT NULL,
    active              BOOLEAN NOT NULL,
    max_gpus            BIGINT,
    max_gpu_memory_mib  BIGINT,
    max_cpus            BIGINT,
    max_memory_mib      BIGINT,
    max_jobs            BIGINT,
    gpus_used           BIGINT  NOT NULL DEFAULT 0 CHECK (gpus_used >= 0),
    gpu_memory_mib_used BIGINT  NOT NULL DEFAULT 0 CHECK (gpu_memory_mib_used >= 0),
    cpus_used           BIGINT  NOT NULL DEFAULT 0 CHECK (cpus_used >= 0),
    memory_mib_used     BIGINT  NOT NULL DEFAULT 0 CHECK (memory_mib_used >= 0),
    jobs_used           BIGINT  NOT NULL DEFAULT 0 CHECK (jobs_used >= 0),
    gpus_ceiling           BIGINT,
    gpu_memory_mib_ceiling BIGINT,
    cpus_ceiling           BIGINT,
    memory_mib_ceiling     BIGINT,
    jobs_ceiling           BIGINT,
    config              TEXT    NOT NULL,
    created_at          BIGINT  NOT NULL,
    updated_at          BIGINT  NOT NULL,
    deleted_at          BIGINT,
    CONSTRAINT tenant_gpus       CHECK (gpus_used <= gpus_ceiling),
    CONSTRAINT tenant_gpu_memory CHECK (gpu_memory_mib_used <= gpu_memory_mib_ceiling),
    CONSTRAINT tenant_cpus       CHECK (cpus_used <= cpus_ceiling),
    CONSTRAINT tenant_memory     CHECK (memory_mib_used <= memory_mib_ceiling),
    CONSTRAINT tenant_jobs       CHECK (jobs_used <= jobs_ceiling)
);

-- What was asked, as it was asked; all tasks of an array share one row. What changed since is in `jobs`.
CREATE TABLE specs (
    number BIGINT PRIMARY KEY,
    spec   TEXT NOT NULL
);

CREATE TABLE jobs (
    number         BIGINT  NOT NULL,
    idx            BIGINT  NOT NULL,
    id             TEXT    NOT NULL,
    tenant         TEXT    NOT NULL,
    user_name      TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    priority       BIGINT  NOT NULL,
    state          TEXT    NOT NULL
        CHECK (state IN ('pending', 'running', 'completed', 'failed', 'preempted', 'cancelled')),
    phase          TEXT    NOT NULL,
    why            TEXT    NOT NULL DEFAULT '',
    held_by        TEXT,
    gpus           BIGINT  NOT NULL,
    gpu_memory_mib BIGINT  NOT NULL,
    cpus           BIGINT  NOT NULL,
    memory_mib     BIGINT  NOT NULL,
    time_limit_ms  BIGINT,
    submitted_at   BIGINT  NOT NULL,
    placed_at      BIGINT,
    started_at     BIGINT,
    ended_at       BIGINT,
    wakes_at       BIGINT,
    attempt        BIGINT  NOT NULL DEFAULT 0,
    nodes          TEXT    NOT NULL DEFAULT '[]',
    exit_code      BIGINT,
    signal         BIGINT,
    preemptions    BIGINT  NOT NULL DEFAULT 0,
    restarts       BIGINT  NOT NULL DEFAULT 0,
    requeues       BIGINT  NOT NULL DEFAULT 0,
    gpu_ms         BIGINT  NOT NULL DEFAULT 0,
    cpu_ms         BIGINT  NOT NULL DEFAULT 0,
    cost_micro     BIGINT  NOT NULL DEFAULT 0,
    labels         TEXT    NOT NULL,
    PRIMARY KEY (number, idx),
    CONSTRAINT ended_jobs_have_an_end
        CHECK ((state IN ('completed', 'failed', 'cancelled')) = (ended_at IS NOT NULL))
);
CREATE INDEX jobs_by_state ON jobs (state, number, idx);
CREATE INDEX jobs_by_tenant ON jobs (tenant, number, idx);
CREATE INDEX jobs_by_tenant_state ON jobs (tenant, state, number, idx);
CREATE INDEX jobs_by_user ON jobs (user_name, number, idx);

-- Which job numbers ever carried a label; the exact answer is in `jobs.labels`.
CREATE TABLE job_labels (
    label  TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    number BIGINT  NOT NULL,
    PRIMARY KEY (label, value, number)
);

-- How many jobs are in which state, kept by the triggers below: counting a million rows takes too long.
CREATE TABLE job_counts (
    tenant TEXT    NOT NULL,
    state  TEXT    NOT NULL,
    jobs   BIGINT  NOT NULL CHECK (jobs >= 0),
    PRIMARY KEY (tenant, state)
);

CREATE FUNCTION count_new_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO job_counts (tenant, state, jobs)
    SELECT tenant, state, count(*) FROM new_jobs GROUP BY tenant, state ORDER BY tenant, state
    ON CONFLICT (tenant, state) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs;
    RETURN NULL;
END $$;
CREATE FUNCTION count_moved_jobs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE job_counts AS c SET jobs = c.jobs + d.more FROM (
        SELECT tenant, state, sum(one) AS more FROM (
            SELECT tenant, state, 1 AS one FROM new_jobs UNION ALL SELECT tenant, state, -1 FROM old_jobs
        ) AS moves GROUP BY tenant, state
    ) AS d WHERE c.tenant = d.tenant AND c.state = d.state AND d.more <> 0;
    INSERT INTO job_counts (tenant, state, jobs)
    SELECT tenant, state, count(*) FROM new_jobs GROUP BY tenant, state ORDER BY tenant, state
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE FUNCTION refuse_change_of_ended_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'an ended job was changed' USING ERRCODE = 'check_violation';
END $$;
-- One statement brings in or moves a whole batch of jobs, so they are counted together: a row that is updated ten
-- thousand times in one transaction is ten thousand rows to look through.
CREATE TRIGGER jobs_counted_on_insert AFTER INSERT ON jobs
    REFERENCING NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION count_new_jobs();
CREATE TRIGGER jobs_counted_on_update AFTER UPDATE ON jobs
    REFERENCING OLD TABLE AS old_jobs NEW TABLE AS new_jobs FOR EACH STATEMENT EXECUTE FUNCTION count_moved_jobs();
-- What has ended stays as it ended.
CREATE TRIGGER jobs_stay_ended BEFORE UPDATE ON jobs
    FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL) EXECUTE FUNCTION refuse_change_of_ended_job();

CREATE TABLE attempts (
    number        BIGINT  NOT NULL,
    idx           BIGINT  NOT NULL,
    attempt       BIGINT  NOT NULL,
    job           TEXT    NOT NULL,
    seq           BIGINT  NOT NULL UNIQUE,
    tenant        TEXT    NOT NULL,
    epoch         BIGINT  NOT NULL,
    state         TEXT    NOT NULL,
    placed_at     BIGINT  NOT NULL,
    started_at    BIGINT,
    stopping_at   BIGINT,
    ended_at      BIGINT,
    stop_cause    TEXT,
    exit          TEXT,
    exit_code     BIGINT,
    signal        BIGINT,
    why           TEXT    NOT NULL DEFAULT '',
    gpus          BIGINT  NOT NULL,
    nodes         TEXT    NOT NULL,
    gpu_ms        BIGINT  NOT NULL DEFAULT 0,
    cpu_ms        BIGINT  NOT NULL DEFAULT 0,
    memory_gib_ms BIGINT  NOT NULL DEFAULT 0,
    cost_micro    BIGINT  NOT NULL DEFAULT 0,
    PRIMARY KEY (number, idx, attempt)
);
-- At most one live attempt of a job.
CREATE UNIQUE INDEX attempts_live ON attempts (number, idx) WHERE ended_at IS NULL;
CREATE INDEX attempts_live_by_seq ON attempts (seq) WHERE ended_at IS NULL;
CREATE INDEX attempts_by_tenant ON attempts (tenant, seq);

CREATE TABLE leases (
    number        BIGINT  NOT NULL,
    idx           BIGINT  NOT NULL,
    attempt       BIGINT  NOT NULL,
    node          TEXT    NOT NULL,
    gpu           BIGINT  NOT NULL,
    job           TEXT    NOT NULL,
    seq           BIGINT  NOT NULL,
    rank          BIGINT  NOT NULL,
    tenant        TEXT    NOT NULL,
    compute_milli BIGINT  NOT NULL CHECK (compute_milli BETWEEN 1 AND 1000),
    from_ms       BIGINT  NOT NULL,
    to_ms         BIGINT,
    PRIMARY KEY (number, idx, attempt, node, gpu)
);
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
    since         BIGINT  NOT NULL,
    cpus          BIGINT  NOT NULL,
    memory_mib    BIGINT  NOT NULL,
    gpus          BIGINT  NOT NULL,
    rack          TEXT,
    power_feed    TEXT,
    agent_version TEXT    NOT NULL,
    simulated     BOOLEAN NOT NULL,
    facts         TEXT    NOT NULL,
    registered_at BIGINT  NOT NULL,
    updated_at    BIGINT  NOT NULL,
    removed_at    BIGINT
);

CREATE TABLE gpus (
    node          TEXT    NOT NULL REFERENCES nodes (id),
    idx           BIGINT  NOT NULL,
    uuid          TEXT    NOT NULL,
    model         TEXT    NOT NULL,
    memory_mib    BIGINT  NOT NULL,
    health        TEXT    NOT NULL,
    why           TEXT    NOT NULL,
    since         BIGINT  NOT NULL,
    cooling_until BIGINT,
    used_milli    BIGINT  NOT NULL DEFAULT 0,
    removed_at    BIGINT,
    PRIMARY KEY (node, idx),
    CONSTRAINT gpu_shares CHECK (used_milli BETWEEN 0 AND 1000)
);

-- Space held for a job that others were displaced for.
CREATE TABLE reservations (
    seq      BIGINT PRIMARY KEY,
    number   BIGINT  NOT NULL,
    idx      BIGINT  NOT NULL,
    job      TEXT    NOT NULL,
    node     TEXT    NOT NULL,
    gpus     TEXT    NOT NULL,
    victims  TEXT    NOT NULL,
    made_at  BIGINT  NOT NULL,
    until    BIGINT  NOT NULL,
    ended_at BIGINT,
    why      TEXT    NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX reservations_live ON reservations (number, idx) WHERE ended_at IS NULL;

-- One row for each attempt that ended. The sums are what tenants are charged.
CREATE TABLE usage (
    number        BIGINT  NOT NULL,
    idx           BIGINT  NOT NULL,
    attempt       BIGINT  NOT NULL,
    job           TEXT    NOT NULL,
    tenant        TEXT    NOT NULL,
    user_name     TEXT    NOT NULL,
    gpus          BIGINT  NOT NULL,
    from_ms       BIGINT  NOT NULL,
    to_ms         BIGINT  NOT NULL CHECK (to_ms >= from_ms),
    gpu_ms        BIGINT  NOT NULL,
    cpu_ms        BIGINT  NOT NULL,
    memory_gib_ms BIGINT  NOT NULL,
    cost_micro    BIGINT  NOT NULL,
    PRIMARY KEY (number, idx, attempt)
);
CREATE INDEX usage_by_end ON usage (to_ms);
CREATE INDEX usage_by_tenant ON usage (tenant, to_ms);

-- Never the secret, only its hash.
CREATE TABLE tokens (
    id         TEXT PRIMARY KEY,
    hash       TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL,
    tenant     TEXT,
    made_at    BIGINT  NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);

CREATE TABLE audit (
    seq     BIGINT PRIMARY KEY,
    at_ms   BIGINT  NOT NULL,
    actor   TEXT    NOT NULL,
    act     TEXT    NOT NULL,
    object  TEXT    NOT NULL,
    refused TEXT
);

CREATE TABLE settings (
    name       TEXT PRIMARY KEY,
    value      TEXT    NOT NULL,
    updated_at BIGINT  NOT NULL
);
