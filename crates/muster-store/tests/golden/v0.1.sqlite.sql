CREATE TABLE leader (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, nonce INTEGER NOT NULL, holder TEXT NOT NULL, expires_at INTEGER NOT NULL) STRICT;
CREATE TABLE refinery_schema_history(
             version int4 PRIMARY KEY,
             name VARCHAR(255),
             applied_on VARCHAR(255),
             checksum VARCHAR(255));
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
, chain INTEGER) STRICT;
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
    gpu_milli_used           INTEGER NOT NULL DEFAULT 0 CHECK (gpu_milli_used >= 0),
    gpu_memory_mib_used INTEGER NOT NULL DEFAULT 0 CHECK (gpu_memory_mib_used >= 0),
    cpus_used           INTEGER NOT NULL DEFAULT 0 CHECK (cpus_used >= 0),
    memory_mib_used     INTEGER NOT NULL DEFAULT 0 CHECK (memory_mib_used >= 0),
    jobs_used           INTEGER NOT NULL DEFAULT 0 CHECK (jobs_used >= 0),
    gpu_milli_ceiling           INTEGER,
    gpu_memory_mib_ceiling INTEGER,
    cpus_ceiling           INTEGER,
    memory_mib_ceiling     INTEGER,
    jobs_ceiling           INTEGER,
    config              TEXT    NOT NULL,
    created_at          INTEGER NOT NULL,
    updated_at          INTEGER NOT NULL,
    deleted_at          INTEGER,
    CONSTRAINT tenant_gpus       CHECK (gpu_milli_used <= gpu_milli_ceiling),
    CONSTRAINT tenant_gpu_memory CHECK (gpu_memory_mib_used <= gpu_memory_mib_ceiling),
    CONSTRAINT tenant_cpus       CHECK (cpus_used <= cpus_ceiling),
    CONSTRAINT tenant_memory     CHECK (memory_mib_used <= memory_mib_ceiling),
    CONSTRAINT tenant_jobs       CHECK (jobs_used <= jobs_ceiling)
) STRICT, WITHOUT ROWID;
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
    labels         TEXT    NOT NULL, gpu_milli INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (number, idx),
    CONSTRAINT ended_jobs_have_an_end
        CHECK ((state IN ('completed', 'failed', 'cancelled')) = (ended_at IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE TABLE job_labels (
    label  TEXT    NOT NULL,
    value  TEXT    NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (label, value, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE job_counts (
    tenant TEXT    NOT NULL,
    state  TEXT    NOT NULL,
    jobs   INTEGER NOT NULL CHECK (jobs >= 0),
    PRIMARY KEY (tenant, state)
) STRICT, WITHOUT ROWID;
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
    cost_micro    INTEGER NOT NULL DEFAULT 0, charged_until INTEGER, cpus INTEGER, memory_mib INTEGER, planned_ms INTEGER, cost_per_hour_micro INTEGER, gpu_milli INTEGER, gpu_memory_mib INTEGER,
    PRIMARY KEY (number, idx, attempt)
) STRICT, WITHOUT ROWID;
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
, declared INTEGER NOT NULL DEFAULT FALSE, labels TEXT, taints TEXT) STRICT, WITHOUT ROWID;
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
    removed_at    INTEGER, used_memory_milli INTEGER NOT NULL DEFAULT 0
    CONSTRAINT gpu_memory_shares CHECK (used_memory_milli BETWEEN 0 AND 1000), mig TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (node, idx),
    CONSTRAINT gpu_shares CHECK (used_milli BETWEEN 0 AND 1000)
) STRICT, WITHOUT ROWID;
CREATE TABLE "claims" (
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
    cost_micro    INTEGER NOT NULL, energy_mj INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (number, idx, attempt)
) STRICT, WITHOUT ROWID;
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
, times INTEGER NOT NULL DEFAULT 1, actor_kind TEXT) STRICT;
CREATE TABLE settings (
    name       TEXT PRIMARY KEY,
    value      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE waits (
    seq     INTEGER PRIMARY KEY,
    bucket  TEXT   NOT NULL,
    at_ms   INTEGER NOT NULL,
    reasons TEXT   NOT NULL
) STRICT;
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
CREATE TABLE "leases" (
    number        INTEGER NOT NULL,
    idx           INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    rank          INTEGER NOT NULL,
    node          TEXT    NOT NULL,
    gpu           INTEGER NOT NULL,
    job           TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    tenant        TEXT    NOT NULL,
    slot          TEXT    NOT NULL,
    compute_milli INTEGER NOT NULL CHECK (compute_milli BETWEEN 1 AND 1000),
    memory_milli  INTEGER NOT NULL CHECK (memory_milli BETWEEN 1 AND 1000),
    -- What the task may use of the memory; NULL for all of it.
    memory_mib    INTEGER,
    from_ms       INTEGER NOT NULL,
    to_ms         INTEGER,
    PRIMARY KEY (number, idx, attempt, rank, node, gpu),
    CONSTRAINT whole_leases CHECK (slot <> '' OR (compute_milli = 1000 AND memory_milli = 1000))
) STRICT, WITHOUT ROWID;
CREATE TABLE policies (
    version INTEGER PRIMARY KEY,
    scope TEXT NOT NULL,
    hash TEXT NOT NULL,
    -- As JSON: the name of each file and its content.
    files TEXT NOT NULL,
    -- As JSON: the questions it answers.
    hooks TEXT NOT NULL,
    applied_by TEXT NOT NULL,
    why TEXT NOT NULL,
    applied_at INTEGER NOT NULL
);
CREATE TABLE submission_keys (
    tenant    TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    number    INTEGER NOT NULL,
    body_hash TEXT    NOT NULL,
    at_ms     INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE cluster (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    cluster_id TEXT NOT NULL
) STRICT;
INSERT INTO leader VALUES (1, 1, 8435248694026750581, 'test', 0);
INSERT INTO refinery_schema_history VALUES (1, 'tables', '2026-11-18T19:41:25.271647246Z', '6778679256959918120');
INSERT INTO refinery_schema_history VALUES (2, 'cheaper_submissions', '2026-11-18T19:41:25.271673003Z', '17099008714368674186');
INSERT INTO refinery_schema_history VALUES (3, 'waits', '2026-11-18T19:41:25.271676149Z', '5434600497060938706');
INSERT INTO refinery_schema_history VALUES (4, 'windows', '2026-11-18T19:41:25.271678824Z', '9353048441301699081');
INSERT INTO refinery_schema_history VALUES (5, 'energy', '2026-11-18T19:41:25.271681309Z', '6311396576537016775');
INSERT INTO refinery_schema_history VALUES (6, 'shares', '2026-11-18T19:41:25.271683884Z', '12553801661084256418');
INSERT INTO refinery_schema_history VALUES (7, 'policies', '2026-11-18T19:41:25.27168706Z', '5017035497091443877');
INSERT INTO refinery_schema_history VALUES (8, 'bounds', '2026-11-18T19:41:25.271689574Z', '1218085137386352160');
INSERT INTO refinery_schema_history VALUES (9, 'integrity', '2026-11-18T19:41:25.271691919Z', '7454552501337686873');
INSERT INTO refinery_schema_history VALUES (10, 'charged_until', '2026-11-18T19:41:25.271695255Z', '663367216844372365');
INSERT INTO refinery_schema_history VALUES (11, 'held_and_declared', '2026-11-18T19:41:25.27169773Z', '10431850985856503216');
INSERT INTO refinery_schema_history VALUES (12, 'held_by_attempts', '2026-11-18T19:41:25.271700104Z', '6793938446455843894');
INSERT INTO refinery_schema_history VALUES (13, 'kind_of_actor', '2026-11-18T19:41:25.271702779Z', '17269822119071473708');
INSERT INTO refinery_schema_history VALUES (14, 'claims', '2026-11-18T19:41:25.271705134Z', '10893633536203437471');
INSERT INTO journal VALUES (1, 1, 1, 'Configured', 1, '{"kind":"Configured","settings":{"objective":"fair","default_priority":100,"queue_size_max":1000000,"tenant_jobs_max":200000,"aging_after_ms":300000,"aging_per_minute":10,"aging_max":500,"fair_share_max":400,"usage_half_life_ms":604800000,"max_wait_ms":43200000,"reservations":16,"reserve_one_node_in":8,"default_runtime_ms":3600000,"preemption":true,"preemption_min_runtime_ms":0,"preemption_cooldown_ms":600000,"stop_grace_ms":30000,"claim_ms":60000,"launch_backoff_ms":5000,"memory_ms":86400000,"remembered_max":100000,"gangs":true,"thermal":true,"thermal_limit_c":75,"cooling_ms":300000,"defragment":false,"weights":{"fragmentation":1000,"locality":1000,"health":1000,"policy":1000},"repartition":"propose","repartition_after_ms":60000,"repartition_cooldown_ms":600000,"policy_failure":"closed","utc_offset_minutes":0},"at":500}', 361466846, NULL, NULL, 4217585865);
INSERT INTO journal VALUES (2, 1, 2, 'TenantCreated', 1, '{"kind":"TenantCreated","id":"red","config":{"name":"red","email":"","organization":"","parent":null,"maximum":{"gpus":8,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}},"at":1}', 2173274604, NULL, NULL, 4160201871);
INSERT INTO journal VALUES (3, 1, 3, 'TenantChanged', 1, '{"kind":"TenantChanged","id":"red","config":{"name":"red","email":"","organization":"","parent":null,"maximum":{"gpus":6,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}},"at":2}', 270513791, NULL, NULL, 2352756252);
INSERT INTO journal VALUES (4, 1, 4, 'TenantCreated', 1, '{"kind":"TenantCreated","id":"old","config":{"name":"old","email":"","organization":"","parent":null,"maximum":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}},"at":1}', 3018329111, NULL, NULL, 2184248496);
INSERT INTO journal VALUES (5, 1, 5, 'TenantDeleted', 1, '{"kind":"TenantDeleted","id":"old","at":500}', 882385783, NULL, NULL, 2342070535);
INSERT INTO journal VALUES (6, 1, 6, 'TokenAdded', 1, '{"kind":"TokenAdded","token":{"id":"t-1","hash":"5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8","name":"ci","role":"member","tenant":"red","made_at":4,"expires_at":9000000},"at":4}', 1546875186, NULL, NULL, 1345988245);
INSERT INTO journal VALUES (7, 1, 7, 'TokenRevoked', 1, '{"kind":"TokenRevoked","id":"t-1","at":500}', 4096284873, NULL, NULL, 3183133809);
INSERT INTO journal VALUES (8, 1, 8, 'NodeRegistered', 1, '{"kind":"NodeRegistered","node":"n1","facts":{"hostname":"n1.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n1-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-4","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-5","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-6","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-7","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true},"at":3}', 1175431872, NULL, NULL, 3557410707);
INSERT INTO journal VALUES (9, 1, 9, 'NodeRegistered', 1, '{"kind":"NodeRegistered","node":"n2","facts":{"hostname":"n2.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n2-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true},"at":3}', 2020013063, NULL, NULL, 3566113717);
INSERT INTO journal VALUES (10, 1, 10, 'NodeStateChanged', 1, '{"kind":"NodeStateChanged","node":"n2","status":"draining","by":"ada","why":"new fan","at":500}', 1715959837, NULL, NULL, 2661510207);
INSERT INTO journal VALUES (11, 1, 11, 'NodeRemoved', 1, '{"kind":"NodeRemoved","node":"n2","at":500}', 1318933934, NULL, NULL, 372201653);
INSERT INTO journal VALUES (12, 1, 12, 'NodeDeclared', 1, '{"kind":"NodeDeclared","node":"n3","facts":{"hostname":"n3.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n3-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n3-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true},"by":"ada","at":500}', 3134663126, NULL, NULL, 591063003);
INSERT INTO journal VALUES (13, 1, 13, 'NodeLabelled', 1, '{"kind":"NodeLabelled","node":"n3","labels":{"zone":"b"},"taints":["new"],"by":"ada","at":500}', 1259495770, NULL, NULL, 2945317567);
INSERT INTO journal VALUES (14, 1, 14, 'GpuHealthChanged', 1, '{"kind":"GpuHealthChanged","gpu":"n1/gpu-7","status":"degraded","why":"68 °C","cooling_until":9000,"temperature_c":68,"declared":{"status":"degraded","why":"noisy","by":"ada"},"reading":"warning","jobs":["job-1"],"at":500}', 205754318, NULL, NULL, 1421534417);
INSERT INTO journal VALUES (15, 1, 15, 'GpuPartitioned', 1, '{"kind":"GpuPartitioned","gpu":"n1/gpu-6","instances":[{"profile":"1g.18gb","start":0}],"by":"ada","why":"notebooks","at":500}', 3881056777, NULL, NULL, 2599793328);
INSERT INTO journal VALUES (16, 1, 16, 'WindowOpened', 1, '{"kind":"WindowOpened","window":{"name":"repair","nodes":["n3"],"from":10,"until":20,"tenant":"red","why":"a new fan","by":"ada"},"at":500}', 3477603456, NULL, NULL, 66905239);
INSERT INTO journal VALUES (17, 1, 17, 'WindowClosed', 1, '{"kind":"WindowClosed","name":"repair","why":"over","at":500}', 3033753894, NULL, NULL, 910074419);
INSERT INTO journal VALUES (18, 1, 18, 'Acted', 1, '{"kind":"Acted","by":"ada","by_kind":"token","act":"tenant.change","object":"red","refused":"unknown-tenant","times":2,"at":500}', 4109105614, NULL, NULL, 2241376003);
INSERT INTO journal VALUES (19, 1, 19, 'Forgotten', 1, '{"kind":"Forgotten","before":1,"trimmed_before":2}', 2455957098, NULL, NULL, 1817231681);
INSERT INTO journal VALUES (20, 1, 20, 'PolicyApplied', 1, '{"kind":"PolicyApplied","version":{"number":1,"scope":"cluster","bundle":{"hash":"h1","files":{"a.gsky":"x = 1"},"rules":{"pools":{},"schedules":{}},"hooks":["admit"],"mentions":[]},"by":"ada","why":"nights","at":500}}', 1207266469, NULL, NULL, 3670310);
INSERT INTO journal VALUES (21, 1, 21, 'PolicyAnswered', 1, '{"kind":"PolicyAnswered","bundles":["h1"],"answers":[{"job":"job-2","bucket":"b-1","admission":{"answer":"wait","why":"by day"},"priority":200,"gpu_milliwatts":500000,"costs":[["n1",-30]],"victims":[["job-1",true]],"failed":"a timeout"}],"limits":[{"tenant":"red","limit":{"gpu_milli":6000,"pools":{"h200":4000}},"blocked":"a policy failed","failed":"a timeout"}],"at":500}', 4108493335, NULL, NULL, 3587144591);
INSERT INTO journal VALUES (22, 1, 22, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-1","spec":{"name":"train-1","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}},"array":null,"held_by":null,"key":null,"open_dependencies":[],"at":11}', 718445361, 1, -1, 1905866264);
INSERT INTO journal VALUES (23, 1, 23, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-2","spec":{"name":"eval","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[{"job":"job-1","when":"succeeded"}],"start_after":5000,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{"team":"vision"},"annotations":{"muster.sim/runtime":"20s"}},"array":null,"held_by":"ada","key":{"key":"k-1","body_hash":"abc"},"open_dependencies":[{"job":"job-1","when":"succeeded"}],"at":12}', 2265927621, 2, -1, 822425070);
INSERT INTO journal VALUES (24, 1, 24, 'JobHeld', 1, '{"kind":"JobHeld","job":"job-2","by":"ada","why":"not yet","at":500}', 2174262527, 2, -1, 3431241355);
INSERT INTO journal VALUES (25, 1, 25, 'JobReleased', 1, '{"kind":"JobReleased","job":"job-2","by":"ada","at":500}', 3810155599, 2, -1, 1632665681);
INSERT INTO journal VALUES (26, 1, 26, 'JobChanged', 1, '{"kind":"JobChanged","job":"job-2","change":{"name":"renamed","priority":900,"labels":null},"at":500}', 1872369550, 2, -1, 2653485677);
INSERT INTO journal VALUES (27, 1, 27, 'JobWoken', 1, '{"kind":"JobWoken","job":"job-2","at":500}', 2775490212, 2, -1, 55384920);
INSERT INTO journal VALUES (28, 1, 28, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-3","spec":{"name":"train-3","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}},"array":null,"held_by":null,"key":null,"open_dependencies":[],"at":13}', 1576450909, 3, -1, 3574477232);
INSERT INTO journal VALUES (29, 1, 29, 'JobSubmitted', 1, '{"kind":"JobSubmitted","job":"job-4","spec":{"name":"train-4","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}},"array":{"indexes":[0,1],"running_max":null},"held_by":null,"key":null,"open_dependencies":[],"at":14}', 3238616872, 4, -1, 4179136834);
INSERT INTO journal VALUES (30, 1, 30, 'WaitNoted', 1, '{"kind":"WaitNoted","bucket":"b-1","reasons":[{"reason":"Reservation","job":"job-1"}],"at":500}', 759812648, NULL, NULL, 1651186461);
INSERT INTO journal VALUES (31, 1, 31, 'StartForecast', 1, '{"kind":"StartForecast","job":"job-3","range":{"from":700,"to":900},"at":500}', 3710268262, 3, -1, 1700279880);
INSERT INTO journal VALUES (32, 1, 32, 'JobPlaced', 1, '{"kind":"JobPlaced","job":"job-1","attempt":1,"epoch":1,"tasks":[{"rank":0,"group":0,"node":"n1","gpus":[0,1]}],"effective_priority":null,"expected_ms":null,"revocable":false,"at":100}', 1023232661, 1, -1, 2617777673);
INSERT INTO journal VALUES (33, 1, 33, 'AttemptStarted', 1, '{"kind":"AttemptStarted","job":"job-1","attempt":1,"node":"n1","whole":true,"at":200}', 2959053946, 1, -1, 3186870638);
INSERT INTO journal VALUES (34, 1, 34, 'ClaimMade', 1, '{"kind":"ClaimMade","job":"job-3","tasks":[{"rank":0,"group":0,"node":"n1","gpus":[0,1]}],"victims":["job-1"],"at":500,"until":60500}', 3148612655, 3, -1, 600743679);
INSERT INTO journal VALUES (35, 1, 35, 'AttemptStopping', 1, '{"kind":"AttemptStopping","job":"job-1","attempt":1,"cause":{"cause":"preempted","by":"job-3"},"grace_ms":30000,"at":500}', 1287592048, 1, -1, 874517350);
INSERT INTO journal VALUES (36, 1, 36, 'CheckpointSaved', 1, '{"kind":"CheckpointSaved","job":"job-1","attempt":1,"grace_ms":2010,"at":510}', 1596542522, 1, -1, 748519671);
INSERT INTO journal VALUES (37, 1, 37, 'AttemptEnded', 1, '{"kind":"AttemptEnded","job":"job-1","attempt":1,"exit":{"exit":"signal","signal":15},"next":{"next":"queued","cause":"preempted","wakes_at":5000},"charge":{"gpu_ms":900,"cpu_ms":3600,"memory_gib_ms":7200,"cost_micro":5,"energy_mj":7},"receipt":{"by":"job-3","stop_ordered_at":500,"saved_at":510,"ran_ms":300,"lost_gpu_ms":40},"held":{"cpus":4,"memory_mib":8192,"planned_ms":60000,"cost_per_hour_micro":20},"charged_until":900,"at":1000}', 207377934, 1, -1, 705008658);
INSERT INTO journal VALUES (38, 1, 38, 'ClaimEnded', 1, '{"kind":"ClaimEnded","job":"job-3","why":"its job has started","at":500}', 160854891, 3, -1, 2144349749);
INSERT INTO journal VALUES (39, 1, 39, 'JobPlaced', 1, '{"kind":"JobPlaced","job":"job-3","attempt":1,"epoch":1,"tasks":[{"rank":0,"group":0,"node":"n1","gpus":[0,1]}],"effective_priority":120,"expected_ms":60000,"revocable":true,"score":{"terms":[{"name":"fragmentation","milli":-5}],"compared":2},"held":{"gpu_milli":2000,"gpu_memory_mib":2000,"cpus":4,"memory_mib":8192,"jobs":1,"milliwatts":1400000},"at":500}', 460173248, 3, -1, 2691597277);
INSERT INTO journal VALUES (40, 1, 40, 'PlanAdopted', 1, '{"kind":"PlanAdopted","snapshot":26,"now":500,"placed":1,"claimed":0,"rejected":2}', 950504251, NULL, NULL, 1287174);
INSERT INTO journal VALUES (41, 1, 41, 'NodePartEnded', 1, '{"kind":"NodePartEnded","job":"job-3","attempt":1,"node":"n1","exit":{"exit":"code","code":0},"stopped":true,"ended_at":800,"at":500}', 2884093206, 3, -1, 667292165);
INSERT INTO journal VALUES (42, 1, 42, 'AttemptEnded', 1, '{"kind":"AttemptEnded","job":"job-3","attempt":1,"exit":{"exit":"code","code":0},"next":{"next":"ended","outcome":"done","why":"exit code 0"},"charge":{"gpu_ms":900,"cpu_ms":3600,"memory_gib_ms":7200,"cost_micro":5,"energy_mj":0},"at":1000}', 1384950176, 3, -1, 3762473506);
INSERT INTO journal VALUES (43, 1, 43, 'RetryAnswered', 1, '{"kind":"RetryAnswered","bundles":["h1"],"answer":{"job":"job-1","attempt":1,"retry":{"answer":"after","wait_ms":9000},"failed":"late"},"wakes_at":9500,"at":500}', 2600739921, 1, -1, 2468093708);
INSERT INTO journal VALUES (44, 1, 44, 'JobEnded', 1, '{"kind":"JobEnded","job":"job-4.0","outcome":"cancelled","why":"cancelled by ada","at":50}', 205156728, 4, 0, 2517541223);
INSERT INTO journal VALUES (45, 1, 45, 'JobPlaced', 1, '{"kind":"JobPlaced","job":"job-4.1","attempt":1,"epoch":1,"tasks":[{"rank":0,"group":0,"node":"n1","gpus":[2]}],"effective_priority":null,"expected_ms":null,"revocable":false,"at":100}', 2749929897, 4, 1, 558187415);
INSERT INTO journal VALUES (46, 1, 46, 'AttemptEnded', 1, '{"kind":"AttemptEnded","job":"job-4.1","attempt":1,"exit":{"exit":"not-started","why":"no such image"},"next":{"next":"ended","outcome":"failed","why":"no such image"},"charge":{"gpu_ms":0,"cpu_ms":0,"memory_gib_ms":0,"cost_micro":0,"energy_mj":0},"at":500}', 493085120, 4, 1, 1695256610);
INSERT INTO savepoints VALUES (44, 1, 9111, 1);
INSERT INTO savepoint_chunks VALUES (44, 0, 3416206783, X'7B224672616D65223A7B22736571223A34342C22636C6F636B223A313030302C226E6578745F6A6F62223A352C2273657474696E6773223A7B226F626A656374697665223A2266616972222C2264656661756C745F7072696F72697479223A3130302C2271756575655F73697A655F6D6178223A313030303030302C2274656E616E745F6A6F62735F6D6178223A3230303030302C226167696E675F61667465725F6D73223A3330303030302C226167696E675F7065725F6D696E757465223A31302C226167696E675F6D6178223A3530302C22666169725F73686172655F6D6178223A3430302C2275736167655F68616C665F6C6966655F6D73223A3630343830303030302C226D61785F776169745F6D73223A34333230303030302C227265736572766174696F6E73223A31362C22726573657276655F6F6E655F6E6F64655F696E223A382C2264656661756C745F72756E74696D655F6D73223A333630303030302C22707265656D7074696F6E223A747275652C22707265656D7074696F6E5F6D696E5F72756E74696D655F6D73223A302C22707265656D7074696F6E5F636F6F6C646F776E5F6D73223A3630303030302C2273746F705F67726163655F6D73223A33303030302C22636C61696D5F6D73223A36303030302C226C61756E63685F6261636B6F66665F6D73223A353030302C226D656D6F72795F6D73223A38363430303030302C2272656D656D62657265645F6D6178223A3130303030302C2267616E6773223A747275652C22746865726D616C223A747275652C22746865726D616C5F6C696D69745F63223A37352C22636F6F6C696E675F6D73223A3330303030302C226465667261676D656E74223A66616C73652C2277656967687473223A7B22667261676D656E746174696F6E223A313030302C226C6F63616C697479223A313030302C226865616C7468223A313030302C22706F6C696379223A313030307D2C227265706172746974696F6E223A2270726F706F7365222C227265706172746974696F6E5F61667465725F6D73223A36303030302C227265706172746974696F6E5F636F6F6C646F776E5F6D73223A3630303030302C22706F6C6963795F6661696C757265223A22636C6F736564222C227574635F6F66667365745F6D696E75746573223A307D2C2274656E616E7473223A5B7B226964223A22726564222C22636F6E666967223A7B226E616D65223A22726564222C22656D61696C223A22222C226F7267616E697A6174696F6E223A22222C22706172656E74223A6E756C6C2C226D6178696D756D223A7B2267707573223A362C226770755F6D656D6F72795F6D6962223A6E756C6C2C2263707573223A6E756C6C2C226D656D6F72795F6D6962223A6E756C6C2C226A6F6273223A6E756C6C7D2C226D6178696D756D5F7065725F75736572223A7B2267707573223A6E756C6C2C226770755F6D656D6F72795F6D6962223A6E756C6C2C2263707573223A6E756C6C2C226D656D6F72795F6D6962223A6E756C6C2C226A6F6273223A6E756C6C7D2C2267756172616E74656564223A7B2267707573223A6E756C6C2C226770755F6D656D6F72795F6D6962223A6E756C6C2C2263707573223A6E756C6C2C226D656D6F72795F6D6962223A6E756C6C2C226A6F6273223A6E756C6C7D2C226D6178696D756D5F62795F6D6F64656C223A7B7D2C2267756172616E746565645F62795F6D6F64656C223A7B7D2C22627564676574223A7B226770755F6D73223A6E756C6C2C22636F73745F6D6963726F223A6E756C6C2C22656E657267795F6D6A223A6E756C6C7D2C2274696572223A226D656469756D222C22776569676874223A3130302C2264656361795F6D696C6C695F7065725F646179223A302C226D61795F62655F707265656D70746564223A747275652C226D61795F707265656D7074223A747275652C22707265656D7074696F6E735F7065725F6A6F625F6D6178223A6E756C6C2C22707265656D7074696F6E5F6C6F73735F6770755F6D735F7065725F646179223A6E756C6C2C2262696C6C6564223A66616C73652C2270726963655F6770755F686F75725F6D6963726F223A302C22616374697665223A747275652C226E6F74696679223A7B7D2C226C6162656C73223A7B7D7D2C2268656C64223A7B226770755F6D696C6C69223A302C226770755F6D656D6F72795F6D6962223A302C2263707573223A302C226D656D6F72795F6D6962223A302C226A6F6273223A302C226D696C6C697761747473223A307D2C226C6976655F6A6F6273223A332C22646563617965645F7573616765223A7B2266696E65223A3132333035393032332C226174223A313030307D2C22707265656D7074696F6E5F6C6F7373223A7B226770755F6D73223A302C226174223A307D2C226D656D62657273223A7B22616461223A7B2268656C64223A7B226770755F6D696C6C69223A302C226770755F6D656D6F72795F6D6962223A302C2263707573223A302C226D656D6F72795F6D6962223A302C226A6F6273223A302C226D696C6C697761747473223A307D2C226C6976655F6A6F6273223A332C22646563617965645F7573616765223A7B2266696E65223A3132333035393032332C226174223A313030307D2C2272756E74696D6573223A7B22726563656E74223A7B226E6577657374223A5B302C302C302C302C302C302C302C305D2C22636F756E74223A307D2C226C696D69745F7573655F6D696C6C69223A7B226E6577657374223A5B302C302C302C302C302C302C302C305D2C22636F756E74223A307D2C22636C6173736573223A7B2231303030223A7B226669727374223A302C227265636F726473223A5B7B2272616E5F6D73223A302C2273696E6365223A6E756C6C2C22656E646564223A66616C73657D2C7B2272616E5F6D73223A302C2273696E6365223A6E756C6C2C22656E646564223A66616C73657D2C7B2272616E5F6D73223A302C2273696E6365223A6E756C6C2C22656E646564223A66616C73657D5D2C22656E646564223A5B5D7D2C2232303030223A7B226669727374223A302C227265636F726473223A5B7B2272616E5F6D73223A3331302C2273696E6365223A6E756C6C2C22656E646564223A66616C73657D2C7B2272616E5F6D73223A302C2273696E6365223A6E756C6C2C22656E646564223A66616C73657D5D2C22656E646564223A5B5D7D7D7D7D7D2C2272756E74696D6573223A7B22616C6C223A7B226E6577657374223A5B302C302C302C302C302C302C302C305D2C22636F756E74223A307D2C2262795F74797065223A7B7D7D7D5D2C226E6F646573223A5B7B226964223A226E31222C226661637473223A7B22686F73746E616D65223A226E312E6578616D706C65222C2261646472657373223A2231302E302E302E31222C2263707573223A36342C226D656D6F72795F6D6962223A3531323030302C2267707573223A5B7B2275756964223A224750552D6E312D30222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D31222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D32222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D33222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D34222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D35222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D36222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E312D37222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D5D2C227261636B223A227231222C22706F7765725F66656564223A6E756C6C2C226C6162656C73223A7B7D2C227461696E7473223A5B5D2C226167656E745F76657273696F6E223A22302E312E30222C2273696D756C61746564223A747275657D2C227374617465223A7B22737461747573223A227265616479222C226279223A226D7573746572222C22776879223A2272656769737465726564222C2273696E6365223A337D2C226770755F6865616C7468223A5B7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A332C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226465677261646564222C22776879223A22363820C2B043222C2273696E6365223A3530302C22636F6F6C696E675F756E74696C223A393030302C2274656D70657261747572655F63223A36382C226465636C61726564223A7B22737461747573223A226465677261646564222C22776879223A226E6F697379222C226279223A22616461227D2C2272656164696E67223A227761726E696E67227D5D2C22706172746974696F6E73223A7B2236223A7B22696E7374616E636573223A5B7B2270726F66696C65223A2231672E31386762222C227374617274223A307D5D2C2273696E6365223A3530307D7D2C22726567697374657265645F6174223A332C22637075735F68656C64223A302C226D656D6F72795F6D69625F68656C64223A302C226A6F6273223A5B5D2C22706C616365645F6174223A3530307D2C7B226964223A226E33222C226661637473223A7B22686F73746E616D65223A226E332E6578616D706C65222C2261646472657373223A2231302E302E302E31222C2263707573223A36342C226D656D6F72795F6D6962223A3531323030302C2267707573223A5B7B2275756964223A224750552D6E332D30222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D2C7B2275756964223A224750552D6E332D31222C226D6F64656C223A224E56494449412048323030222C226D656D6F72795F6D6962223A3134333030302C226E756D615F6E6F6465223A6E756C6C2C226E766C696E6B223A5B5D2C22706F7765725F6C696D69745F6D696C6C697761747473223A3730303030307D5D2C227261636B223A227231222C22706F7765725F66656564223A6E756C6C2C226C6162656C73223A7B7D2C227461696E7473223A5B5D2C226167656E745F76657273696F6E223A22302E312E30222C2273696D756C61746564223A747275657D2C227374617465223A7B22737461747573223A227265616479222C226279223A226D7573746572222C22776879223A2272656769737465726564222C2273696E6365223A3530307D2C226770755F6865616C7468223A5B7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A3530302C22636F6F6C696E675F756E74696C223A6E756C6C7D2C7B22737461747573223A226865616C746879222C22776879223A22222C2273696E6365223A3530302C22636F6F6C696E675F756E74696C223A6E756C6C7D5D2C22726567697374657265645F6174223A3530302C226465636C61726564223A747275652C226F70657261746F72223A7B226C6162656C73223A7B227A6F6E65223A2262227D2C227461696E7473223A5B226E6577225D7D2C22637075735F68656C64223A302C226D656D6F72795F6D69625F68656C64223A302C226A6F6273223A5B5D2C22706C616365645F6174223A307D5D2C22617272617973223A5B5B342C7B2272756E6E696E675F6D6178223A6E756C6C2C226C697665223A312C22616374697665223A302C22616C6C5F646F6E65223A66616C73657D5D5D2C22666F72676F7474656E5F6265666F7265223A312C227472696D6D65645F6265666F7265223A322C22636C61696D73223A5B5D2C2277696E646F7773223A5B5D2C22746F6B656E73223A5B5D2C226C6564676572223A7B22726564223A7B2275736564223A7B226770755F6D73223A313830302C226370755F6D73223A373230302C226D656D6F72795F6769625F6D73223A31343430302C22636F73745F6D6963726F223A31302C22656E657267795F6D6A223A377D2C227375626D6974746564223A352C22646F6E65223A312C226661696C6564223A302C2263616E63656C6C6564223A317D7D2C2263616C6962726174696F6E223A7B226E6561725F6D696C6C69223A3434392C226661725F6D696C6C69223A313233372C22696E73696465223A5B302C302C302C302C302C302C302C305D2C22636F756E74223A317D2C22726563656E745F72756E74696D6573223A7B226E6577657374223A5B302C302C302C302C302C302C302C305D2C22636F756E74223A307D2C22776F726B6C6F61645F6D6978223A7B22636F756E7473223A5B5B7B2267707573223A312C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D2C335D2C5B7B2267707573223A322C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D2C325D5D2C22636F756E746564223A352C226E6578745F736E617073686F74223A31302C22736E617073686F74223A5B5B7B2267707573223A312C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D2C335D2C5B7B2267707573223A322C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D2C325D5D7D2C22706F6C6963696573223A5B7B226E756D626572223A312C2273636F7065223A22636C7573746572222C2262756E646C65223A7B2268617368223A226831222C2266696C6573223A7B22612E67736B79223A2278203D2031227D2C2272756C6573223A7B22706F6F6C73223A7B7D2C227363686564756C6573223A7B7D7D2C22686F6F6B73223A5B2261646D6974225D2C226D656E74696F6E73223A5B5D7D2C226279223A22616461222C22776879223A226E6967687473222C226174223A3530307D5D2C226C696D697473223A5B7B2274656E616E74223A22726564222C226C696D6974223A7B226770755F6D696C6C69223A363030302C22706F6F6C73223A7B2268323030223A343030307D7D2C22626C6F636B6564223A226120706F6C696379206661696C6564222C226661696C6564223A22612074696D656F7574227D5D7D7D0A7B225370656373223A5B7B226E616D65223A22747261696E2D31222C2274656E616E74223A22726564222C2275736572223A22616461222C227072696F72697479223A3130302C227461736B73223A5B7B226E616D65223A22776F726B6572222C22636F756E74223A312C2265616368223A7B2267707573223A322C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D7D5D2C22746F706F6C6F6779223A22616E79222C2274696D655F6C696D69745F6D73223A36303030302C2272657374617274223A7B226D61785F7265737461727473223A302C226D61785F7265717565756573223A357D2C226F6E5F6E6F64655F6C6F7374223A2277616974222C22636865636B706F696E74223A6E756C6C2C226166746572223A5B5D2C2273746172745F6166746572223A6E756C6C2C22706F6F6C223A6E756C6C2C226E6F64655F6C6162656C73223A7B7D2C2272756E223A7B22696D616765223A6E756C6C2C22736372697074223A6E756C6C2C22636F6D6D616E64223A5B2274727565225D2C2261726773223A5B5D2C22656E76223A7B7D2C226469726563746F7279223A6E756C6C7D2C226C6162656C73223A7B7D2C22616E6E6F746174696F6E73223A7B7D7D2C7B226E616D65223A2272656E616D6564222C2274656E616E74223A22726564222C2275736572223A22616461222C227072696F72697479223A3930302C227461736B73223A5B7B226E616D65223A22776F726B6572222C22636F756E74223A312C2265616368223A7B2267707573223A312C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D7D5D2C22746F706F6C6F6779223A22616E79222C2274696D655F6C696D69745F6D73223A36303030302C2272657374617274223A7B226D61785F7265737461727473223A302C226D61785F7265717565756573223A357D2C226F6E5F6E6F64655F6C6F7374223A2277616974222C22636865636B706F696E74223A6E756C6C2C226166746572223A5B7B226A6F62223A226A6F622D31222C227768656E223A22737563636565646564227D5D2C2273746172745F6166746572223A353030302C22706F6F6C223A6E756C6C2C226E6F64655F6C6162656C73223A7B7D2C2272756E223A7B22696D616765223A6E756C6C2C22736372697074223A6E756C6C2C22636F6D6D616E64223A5B2274727565225D2C2261726773223A5B5D2C22656E76223A7B7D2C226469726563746F7279223A6E756C6C7D2C226C6162656C73223A7B227465616D223A22766973696F6E227D2C22616E6E6F746174696F6E73223A7B226D75737465722E73696D2F72756E74696D65223A22323073227D7D2C7B226E616D65223A22747261696E2D34222C2274656E616E74223A22726564222C2275736572223A22616461222C227072696F72697479223A3130302C227461736B73223A5B7B226E616D65223A22776F726B6572222C22636F756E74223A312C2265616368223A7B2267707573223A312C226770755F6D6F64656C73223A5B5D2C226770755F6D656D6F72795F6D6962223A313030302C226770755F636F6D707574655F6D696C6C69223A313030302C2269736F6C6174696F6E223A226E6F6E65222C2263707573223A342C226D656D6F72795F6D6962223A383139327D7D5D2C22746F706F6C6F6779223A22616E79222C2274696D655F6C696D69745F6D73223A36303030302C2272657374617274223A7B226D61785F7265737461727473223A302C226D61785F7265717565756573223A357D2C226F6E5F6E6F64655F6C6F7374223A2277616974222C22636865636B706F696E74223A6E756C6C2C226166746572223A5B5D2C2273746172745F6166746572223A6E756C6C2C22706F6F6C223A6E756C6C2C226E6F64655F6C6162656C73223A7B7D2C2272756E223A7B22696D616765223A6E756C6C2C22736372697074223A6E756C6C2C22636F6D6D616E64223A5B2274727565225D2C2261726773223A5B5D2C22656E76223A7B7D2C226469726563746F7279223A6E756C6C7D2C226C6162656C73223A7B7D2C22616E6E6F746174696F6E73223A7B7D7D5D7D0A7B224A6F6273223A5B7B2273706563223A302C226964223A226A6F622D31222C227375626D69747465645F6174223A31312C227068617365223A7B227068617365223A22717565756564222C22707265656D70746564223A747275652C2272657475726E696E67223A66616C73652C2273696E6365223A313030307D2C22617474656D707473223A312C227265737461727473223A302C22707265656D7074696F6E73223A312C227265717565756573223A302C2272616E5F6D73223A3331302C22636C6173735F6E756D626572223A302C2277616B65735F6174223A393530307D2C7B2273706563223A312C226964223A226A6F622D32222C227375626D69747465645F6174223A31322C227068617365223A7B227068617365223A22717565756564222C22707265656D70746564223A66616C73652C2272657475726E696E67223A66616C73652C2273696E6365223A3530307D2C22617474656D707473223A302C227265737461727473223A302C22707265656D7074696F6E73223A302C227265717565756573223A302C2272616E5F6D73223A302C22636C6173735F6E756D626572223A302C226F70656E5F646570656E64656E63696573223A5B7B226A6F62223A226A6F622D31222C227768656E223A22737563636565646564227D5D7D2C7B2273706563223A322C226964223A226A6F622D342E31222C227375626D69747465645F6174223A31342C227068617365223A7B227068617365223A22717565756564222C22707265656D70746564223A66616C73652C2272657475726E696E67223A66616C73652C2273696E6365223A31347D2C22617474656D707473223A302C227265737461727473223A302C22707265656D7074696F6E73223A302C227265717565756573223A302C2272616E5F6D73223A302C22636C6173735F6E756D626572223A327D5D7D0A7B22456E646564223A5B5B226A6F622D33222C7B226F7574636F6D65223A22646F6E65222C226174223A313030307D5D2C5B226A6F622D342E30222C7B226F7574636F6D65223A2263616E63656C6C6564222C226174223A35307D5D5D7D0A7B224B657973223A5B5B22726564222C226B2D31222C7B226A6F62223A226A6F622D32222C22626F64795F68617368223A22616263222C226174223A31327D5D5D7D0A');
INSERT INTO tenants VALUES ('old', 'old', '', '', NULL, 'medium', 100, 1, 1, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, '{"name":"old","email":"","organization":"","parent":null,"maximum":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}}', 1, 500, 500);
INSERT INTO tenants VALUES ('red', 'red', '', '', NULL, 'medium', 100, 1, 1, 1, 6, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 6000, NULL, NULL, NULL, NULL, '{"name":"red","email":"","organization":"","parent":null,"maximum":{"gpus":6,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_per_user":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"guaranteed":{"gpus":null,"gpu_memory_mib":null,"cpus":null,"memory_mib":null,"jobs":null},"maximum_by_model":{},"guaranteed_by_model":{},"budget":{"gpu_ms":null,"cost_micro":null,"energy_mj":null},"tier":"medium","weight":100,"decay_milli_per_day":0,"may_be_preempted":true,"may_preempt":true,"preemptions_per_job_max":null,"preemption_loss_gpu_ms_per_day":null,"billed":false,"price_gpu_hour_micro":0,"active":true,"notify":{},"labels":{}}', 1, 2, NULL);
INSERT INTO specs VALUES (1, '{"name":"train-1","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}}');
INSERT INTO specs VALUES (2, '{"name":"eval","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[{"job":"job-1","when":"succeeded"}],"start_after":5000,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{"team":"vision"},"annotations":{"muster.sim/runtime":"20s"}}');
INSERT INTO specs VALUES (3, '{"name":"train-3","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":2,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}}');
INSERT INTO specs VALUES (4, '{"name":"train-4","tenant":"red","user":"ada","priority":100,"tasks":[{"name":"worker","count":1,"each":{"gpus":1,"gpu_models":[],"gpu_memory_mib":1000,"gpu_compute_milli":1000,"isolation":"none","cpus":4,"memory_mib":8192}}],"topology":"any","time_limit_ms":60000,"restart":{"max_restarts":0,"max_requeues":5},"on_node_lost":"wait","checkpoint":null,"after":[],"start_after":null,"pool":null,"node_labels":{},"run":{"image":null,"script":null,"command":["true"],"args":[],"env":{},"directory":null},"labels":{},"annotations":{}}');
INSERT INTO jobs VALUES (1, -1, 'job-1', 'red', 'ada', 'train-1', 100, 'preempted', 'Queued', 'preempted', NULL, 2, 2000, 4, 8192, 60000, 11, 100, 200, NULL, 9500, 1, '["n1"]', NULL, 15, 1, 0, 0, 900, 3600, 5, '{}', 2000);
INSERT INTO jobs VALUES (2, -1, 'job-2', 'red', 'ada', 'renamed', 900, 'pending', 'Queued', '', NULL, 1, 1000, 4, 8192, 60000, 12, NULL, NULL, NULL, NULL, 0, '[]', NULL, NULL, 0, 0, 0, 0, 0, 0, '{"team":"vision"}', 1000);
INSERT INTO jobs VALUES (3, -1, 'job-3', 'red', 'ada', 'train-3', 100, 'completed', 'Done', 'exit code 0', NULL, 2, 2000, 4, 8192, 60000, 13, 500, NULL, 1000, NULL, 1, '["n1"]', 0, NULL, 0, 0, 0, 900, 3600, 5, '{}', 2000);
INSERT INTO jobs VALUES (4, 0, 'job-4.0', 'red', 'ada', 'train-4', 100, 'cancelled', 'Cancelled', 'cancelled by ada', NULL, 1, 1000, 4, 8192, 60000, 14, NULL, NULL, 50, NULL, 0, '[]', NULL, NULL, 0, 0, 0, 0, 0, 0, '{}', 1000);
INSERT INTO jobs VALUES (4, 1, 'job-4.1', 'red', 'ada', 'train-4', 100, 'failed', 'Failed', 'no such image', NULL, 1, 1000, 4, 8192, 60000, 14, 100, NULL, 500, NULL, 1, '["n1"]', NULL, NULL, 0, 0, 0, 0, 0, 0, '{}', 1000);
INSERT INTO job_labels VALUES ('team', 'vision', 2);
INSERT INTO job_counts VALUES ('red', 'cancelled', 1);
INSERT INTO job_counts VALUES ('red', 'completed', 1);
INSERT INTO job_counts VALUES ('red', 'failed', 1);
INSERT INTO job_counts VALUES ('red', 'pending', 1);
INSERT INTO job_counts VALUES ('red', 'preempted', 1);
INSERT INTO job_counts VALUES ('red', 'running', 0);
INSERT INTO attempts VALUES (1, -1, 1, 'job-1', 32, 'red', 1, 'Preempted', 100, 200, 500, 1000, '{"cause":"preempted","by":"job-3"}', 'signal', NULL, 15, '', 2, '["n1"]', 900, 3600, 7200, 5, 900, 4, 8192, 60000, 20, 2000, 2000);
INSERT INTO attempts VALUES (3, -1, 1, 'job-3', 39, 'red', 1, 'Done', 500, NULL, NULL, 1000, NULL, 'code', 0, NULL, '', 2, '["n1"]', 900, 3600, 7200, 5, 1000, 4, 8192, NULL, NULL, 2000, 2000);
INSERT INTO attempts VALUES (4, 1, 1, 'job-4.1', 45, 'red', 1, 'Failed', 100, NULL, NULL, 500, NULL, 'not-started', NULL, NULL, 'no such image', 1, '["n1"]', 0, 0, 0, 0, 500, 4, 8192, NULL, NULL, 1000, 1000);
INSERT INTO nodes VALUES ('n1', 'n1.example', '10.0.0.1', 'Ready', 'muster', 'registered', 3, 64, 512000, 8, 'r1', NULL, '0.1.0', 1, '{"hostname":"n1.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n1-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-4","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-5","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-6","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n1-7","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true}', 3, 3, NULL, 0, NULL, NULL);
INSERT INTO nodes VALUES ('n2', 'n2.example', '10.0.0.1', 'Draining', 'ada', 'new fan', 500, 64, 512000, 4, 'r1', NULL, '0.1.0', 1, '{"hostname":"n2.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n2-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-2","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n2-3","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true}', 3, 500, 500, 0, NULL, NULL);
INSERT INTO nodes VALUES ('n3', 'n3.example', '10.0.0.1', 'Ready', 'muster', 'registered', 500, 64, 512000, 2, 'r1', NULL, '0.1.0', 1, '{"hostname":"n3.example","address":"10.0.0.1","cpus":64,"memory_mib":512000,"gpus":[{"uuid":"GPU-n3-0","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000},{"uuid":"GPU-n3-1","model":"NVIDIA H200","memory_mib":143000,"numa_node":null,"nvlink":[],"power_limit_milliwatts":700000}],"rack":"r1","power_feed":null,"labels":{},"taints":[],"agent_version":"0.1.0","simulated":true}', 500, 500, NULL, 1, '{"zone":"b"}', '["new"]');
INSERT INTO gpus VALUES ('n1', 0, 'GPU-n1-0', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n1', 1, 'GPU-n1-1', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n1', 2, 'GPU-n1-2', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n1', 3, 'GPU-n1-3', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n1', 4, 'GPU-n1-4', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n1', 5, 'GPU-n1-5', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n1', 6, 'GPU-n1-6', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, NULL, 0, '[{"profile":"1g.18gb","start":0}]');
INSERT INTO gpus VALUES ('n1', 7, 'GPU-n1-7', 'NVIDIA H200', 143000, 'degraded', '68 °C', 500, 9000, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n2', 0, 'GPU-n2-0', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO gpus VALUES ('n2', 1, 'GPU-n2-1', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO gpus VALUES ('n2', 2, 'GPU-n2-2', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO gpus VALUES ('n2', 3, 'GPU-n2-3', 'NVIDIA H200', 143000, 'healthy', '', 3, NULL, 0, 500, 0, '[]');
INSERT INTO gpus VALUES ('n3', 0, 'GPU-n3-0', 'NVIDIA H200', 143000, 'healthy', '', 500, NULL, 0, NULL, 0, '[]');
INSERT INTO gpus VALUES ('n3', 1, 'GPU-n3-1', 'NVIDIA H200', 143000, 'healthy', '', 500, NULL, 0, NULL, 0, '[]');
INSERT INTO claims VALUES (34, 3, -1, 'job-3', 'n1', '["n1/gpu-0","n1/gpu-1"]', '["job-1"]', 500, 60500, 500, 'its job has started');
INSERT INTO usage VALUES (1, -1, 1, 'job-1', 'red', 'ada', 2, 100, 900, 900, 3600, 7200, 5, 7);
INSERT INTO usage VALUES (3, -1, 1, 'job-3', 'red', 'ada', 2, 500, 1000, 900, 3600, 7200, 5, 0);
INSERT INTO usage VALUES (4, 1, 1, 'job-4.1', 'red', 'ada', 1, 100, 500, 0, 0, 0, 0, 0);
INSERT INTO tokens VALUES ('t-1', '5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8', 'ci', 'member', 'red', 4, 9000000, 500);
INSERT INTO audit VALUES (18, 500, 'ada', 'tenant.change', 'red', 'unknown-tenant', 2, 'token');
INSERT INTO settings VALUES ('cluster', '{"objective":"fair","default_priority":100,"queue_size_max":1000000,"tenant_jobs_max":200000,"aging_after_ms":300000,"aging_per_minute":10,"aging_max":500,"fair_share_max":400,"usage_half_life_ms":604800000,"max_wait_ms":43200000,"reservations":16,"reserve_one_node_in":8,"default_runtime_ms":3600000,"preemption":true,"preemption_min_runtime_ms":0,"preemption_cooldown_ms":600000,"stop_grace_ms":30000,"claim_ms":60000,"launch_backoff_ms":5000,"memory_ms":86400000,"remembered_max":100000,"gangs":true,"thermal":true,"thermal_limit_c":75,"cooling_ms":300000,"defragment":false,"weights":{"fragmentation":1000,"locality":1000,"health":1000,"policy":1000},"repartition":"propose","repartition_after_ms":60000,"repartition_cooldown_ms":600000,"policy_failure":"closed","utc_offset_minutes":0}', 500);
INSERT INTO waits VALUES (30, 'b-1', 500, '[{"reason":"Reservation","job":"job-1"}]');
INSERT INTO windows VALUES (16, 'repair', '["n3"]', 10, 20, 'red', 'a new fan', 'ada', 500, 500, 'over');
INSERT INTO leases VALUES (1, -1, 1, 0, 'n1', 0, 'job-1', 32, 'red', '', 1000, 1000, NULL, 100, 1000);
INSERT INTO leases VALUES (1, -1, 1, 0, 'n1', 1, 'job-1', 32, 'red', '', 1000, 1000, NULL, 100, 1000);
INSERT INTO leases VALUES (3, -1, 1, 0, 'n1', 0, 'job-3', 39, 'red', '', 1000, 1000, NULL, 500, 1000);
INSERT INTO leases VALUES (3, -1, 1, 0, 'n1', 1, 'job-3', 39, 'red', '', 1000, 1000, NULL, 500, 1000);
INSERT INTO leases VALUES (4, 1, 1, 0, 'n1', 2, 'job-4.1', 45, 'red', '', 1000, 1000, NULL, 100, 500);
INSERT INTO policies VALUES (1, 'cluster', 'h1', '{"a.gsky":"x = 1"}', '["admit"]', 'ada', 'nights', 500);
INSERT INTO submission_keys VALUES ('red', 'k-1', 2, 'abc', 12);
CREATE INDEX journal_by_job ON journal (job_number, seq) WHERE job_number IS NOT NULL;
CREATE INDEX jobs_by_state ON jobs (state, number, idx);
CREATE INDEX jobs_by_tenant_state ON jobs (tenant, state, number, idx);
CREATE INDEX jobs_by_user ON jobs (user_name, number, idx);
CREATE TRIGGER jobs_counted_on_update AFTER UPDATE OF state ON jobs WHEN OLD.state <> NEW.state BEGIN
    UPDATE job_counts SET jobs = jobs - 1 WHERE tenant = OLD.tenant AND state = OLD.state;
    INSERT INTO job_counts (tenant, state, jobs) VALUES (NEW.tenant, NEW.state, 1)
    ON CONFLICT (tenant, state) DO UPDATE SET jobs = jobs + 1;
END;
CREATE UNIQUE INDEX attempts_live ON attempts (number, idx) WHERE ended_at IS NULL;
CREATE INDEX attempts_live_by_seq ON attempts (seq) WHERE ended_at IS NULL;
CREATE INDEX attempts_by_tenant ON attempts (tenant, seq);
CREATE INDEX usage_by_end ON usage (to_ms);
CREATE INDEX usage_by_tenant ON usage (tenant, to_ms);
CREATE INDEX waits_by_bucket ON waits (bucket, at_ms);
CREATE UNIQUE INDEX windows_open ON windows (name) WHERE closed_at IS NULL;
CREATE UNIQUE INDEX leases_live ON leases (node, gpu, slot)
    WHERE to_ms IS NULL AND slot NOT IN ('mps', 'time-slice');
CREATE INDEX leases_by_node ON leases (node, seq);
CREATE TRIGGER jobs_stay_ended BEFORE UPDATE ON jobs WHEN OLD.ended_at IS NOT NULL BEGIN
    SELECT RAISE(ABORT, 'an ended job was changed');
END;
CREATE INDEX submission_keys_by_age ON submission_keys (at_ms);
CREATE UNIQUE INDEX claims_live ON claims (number, idx) WHERE ended_at IS NULL;
