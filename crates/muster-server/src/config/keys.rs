//! The table of configuration keys: kind of value, default, description; and the aliases of keys.
//!
//! This is the only list of keys. Files, variables, `muster config show` and error messages use it.

use muster_core::objects::settings::PRIORITY_MAX;

use super::value::ValueKind;

pub(super) struct Key {
    /// With dots between the levels.
    pub name: &'static str,
    pub kind: ValueKind,
    /// As it would be written; empty if nothing is set.
    pub default: &'static str,
    /// For `muster config show`.
    pub description: &'static str,
}

const fn key(name: &'static str, kind: ValueKind, default: &'static str, description: &'static str) -> Key {
    Key { name, kind, default, description }
}

const fn at_least(min: i64) -> ValueKind {
    ValueKind::Integer { min, max: i64::MAX }
}

const fn between(min: i64, max: i64) -> ValueKind {
    ValueKind::Integer { min, max }
}

const PORT: ValueKind = between(0, 65_535);
/// At most an hour: a longer interval is a typing error.
const INTERVAL_RANGE_MS: ValueKind = between(1, 3_600_000);
/// Between the idle temperature of a GPU and its thermal shutdown.
const THERMAL_RANGE_C: ValueKind = ValueKind::Celsius { min: 40.0, max: 110.0 };
const LOG_LEVELS: ValueKind = ValueKind::Choice(&["error", "warn", "info", "debug", "trace"]);
const OBJECTIVES: ValueKind = ValueKind::Choice(&["fair", "fast"]);
const POLICY_FAILURE_MODES: ValueKind = ValueKind::Choice(&["closed", "open"]);
const REPARTITION_MODES: ValueKind = ValueKind::Choice(&["off", "propose", "apply"]);
const WEIGHT: ValueKind = between(0, 1_000_000);
const SSL_MODES: ValueKind = ValueKind::Choice(&["disable", "prefer", "require", "verify-ca", "verify-full"]);

/// All keys, by section.
pub(super) const KEYS: &[Key] = &[
    key(
        "environment",
        ValueKind::Text,
        "development",
        "name of this installation; sent to the trace collector as deployment.environment.name",
    ),
    key("listen", ValueKind::Address, "127.0.0.1:8080", "address and port of the HTTP server"),
    key("data_dir", ValueKind::Text, "./muster-data", "folder of the database, certificates and tokens"),
    key("cluster", ValueKind::Text, "", "file that describes a simulated cluster"),
    key(
        "secrets.key_file",
        ValueKind::Text,
        "",
        "file with the key that seals the secrets of jobs, readable by its owner only and the same on all servers of the cluster; \
         default: secrets.key in the data folder",
    ),
    key("policies.dir", ValueKind::Text, "", "folder of policy files; applied at start and whenever a file changes"),
    key(
        "auth.mode",
        ValueKind::Choice(&["local", "tokens"]),
        "local",
        "authentication: `local` accepts every user of this machine, `tokens` requires a token",
    ),
    key(
        "log.format",
        ValueKind::Choice(&["console", "json"]),
        "console",
        "format of log lines: `console` for people, `json` for programs",
    ),
    key("log.level", LOG_LEVELS, "info", "least severity that is logged; RUST_LOG takes precedence"),
    // The settings of the core.
    key("scheduler.scheduling_interval_ms", INTERVAL_RANGE_MS, "1000", "longest pause between two planning rounds"),
    key("scheduler.max_queue_size", at_least(1), "1000000", "most jobs waiting at once"),
    key(
        "scheduler.max_jobs_per_tenant",
        at_least(0),
        "200000",
        "most jobs of one tenant that have not ended; 0 for no limit",
    ),
    key("scheduler.enable_preemption", ValueKind::Bool, "true", "whether running jobs may be preempted"),
    key("scheduler.enable_gang_scheduling", ValueKind::Bool, "true", "whether jobs of several tasks are accepted"),
    key("scheduler.enable_thermal_aware", ValueKind::Bool, "true", "whether hot GPUs are avoided"),
    key(
        "scheduler.thermal_threshold",
        THERMAL_RANGE_C,
        "75",
        "temperature above which a GPU gets no new job until it has cooled",
    ),
    key("scheduler.default_priority", between(0, PRIORITY_MAX as i64), "100", "priority of a job without one"),
    key("scheduler.cooling", ValueKind::Duration, "5m", "time for which a GPU above the threshold gets no new job"),
    key(
        "scheduler.repartition",
        REPARTITION_MODES,
        "propose",
        "repartitioning of idle GPUs whose MIG layout fits no waiting job: `off`, `propose` or `apply`",
    ),
    key("scheduler.ruleset", ValueKind::Text, "", "active ruleset of the policies; if empty, the only one registered"),
    key(
        "scheduler.policy_failure",
        POLICY_FAILURE_MODES,
        "closed",
        "when a policy hook fails: the job waits (`closed`), or the hook is ignored (`open`)",
    ),
    key(
        "scheduler.utc_offset_minutes",
        between(-720, 840),
        "0",
        "offset of local time from UTC, for policies that use the hour",
    ),
    key(
        "scheduler.repartition_after",
        ValueKind::Duration,
        "1m",
        "least wait of a job before GPUs are repartitioned for it",
    ),
    key(
        "scheduler.repartition_cooldown",
        ValueKind::Duration,
        "10m",
        "least time between two repartitionings of a GPU",
    ),
    key(
        "scheduler.defragment",
        ValueKind::Bool,
        "false",
        "defragmentation: whether jobs that save checkpoints are moved so that a waiting job fits",
    ),
    key(
        "scheduler.weight_fragmentation",
        WEIGHT,
        "1000",
        "weight of fragmentation: free capacity that the workload mix cannot use",
    ),
    key("scheduler.weight_locality", WEIGHT, "1000", "weight of locality: slow links between the GPUs of a task"),
    key("scheduler.weight_health", WEIGHT, "1000", "weight of GPU health: warm GPUs and GPUs with errors"),
    key(
        "scheduler.objective",
        OBJECTIVES,
        "fair",
        "objective of the queue order: `fair` (fair share) or `fast` (least expected remaining GPU time)",
    ),
    key("scheduler.aging_after", ValueKind::Duration, "5m", "wait before aging begins to raise a job's priority"),
    key(
        "scheduler.aging_per_minute",
        between(0, PRIORITY_MAX as i64),
        "10",
        "priority gained per minute of waiting (aging)",
    ),
    key("scheduler.aging_max", between(0, PRIORITY_MAX as i64), "500", "most priority gained by aging"),
    key(
        "scheduler.fair_share_max",
        between(0, PRIORITY_MAX as i64),
        "400",
        "largest fair-share penalty on priority; half of it at exactly the fair share",
    ),
    key(
        "scheduler.usage_half_life",
        ValueKind::Duration,
        "7d",
        "half-life of decayed usage: past usage counts half after this time",
    ),
    key(
        "scheduler.max_wait",
        ValueKind::Duration,
        "12h",
        "wait after which a job is overdue: only jobs with a time limit may backfill ahead of it",
    ),
    key("scheduler.reservations", between(0, 1_000), "16", "most blocked jobs with a reservation"),
    key(
        "scheduler.reserve_one_node_in",
        between(1, 1_000_000),
        "8",
        "stop making reservations once they cover one node in N (this value)",
    ),
    key(
        "scheduler.default_runtime",
        ValueKind::Duration,
        "1h",
        "runtime estimate of a job without a time limit and without history",
    ),
    key("scheduler.min_runtime", ValueKind::Duration, "0s", "a job that has run for less is not preempted"),
    key(
        "scheduler.preemption_cooldown",
        ValueKind::Duration,
        "10m",
        "time for which a preempted job is not preempted again after it restarts",
    ),
    key("scheduler.stop_grace", ValueKind::Duration, "30s", "time between SIGTERM and SIGKILL"),
    key("scheduler.claim", ValueKind::Duration, "1m", "how long a claim holds freed space for the preemptor"),
    key("scheduler.launch_backoff", ValueKind::Duration, "5s", "pause after a failed launch, doubled each time"),
    key("scheduler.memory", ValueKind::Duration, "24h", "how long outcomes and idempotency keys are kept in memory"),
    key(
        "scheduler.max_remembered_jobs",
        at_least(0),
        "100000",
        "most ended jobs and idempotency keys kept in memory; older ones are read from the database",
    ),
    // The agent on this machine.
    key("agent.node_id", ValueKind::Text, "", "name of this node; if empty, the host name"),
    key(
        "agent.heartbeat_interval_ms",
        INTERVAL_RANGE_MS,
        "1000",
        "interval of heartbeats, which the agent tells the server",
    ),
    key("agent.metrics_interval_ms", INTERVAL_RANGE_MS, "1000", "interval of readings of GPUs in use"),
    key("agent.health_check_interval_ms", INTERVAL_RANGE_MS, "30000", "interval of readings of every GPU"),
    key(
        "agent.container_runtime",
        ValueKind::Text,
        "auto",
        "what runs images: `auto` (the first that works of podman, docker, nerdctl, apptainer), `off`, or the name or path of \
         one of them",
    ),
    key(
        "agent.image_pull",
        ValueKind::Choice(&["missing", "always", "never"]),
        "missing",
        "when the image of a job is pulled: if it is not on the node, always, or never",
    ),
    key(
        "agent.image_cache_max_mib",
        at_least(0),
        "0",
        "size of the images that the agent has pulled, beyond which those that no job uses are removed; 0 for no limit",
    ),
    key(
        "agent.image_mounts",
        ValueKind::List,
        "/",
        "jobs with an image may mount what is in these directories, if their user may read it",
    ),
    // The link to the agents of other machines.
    key(
        "agent_link.listen",
        ValueKind::Text,
        "auto",
        "address of the agent link: `ADDRESS:PORT`, `off`, or `auto` for port 50052 on the address of HTTP, unless the \
         server runs nodes itself",
    ),
    key(
        "agent_link.advertise",
        ValueKind::List,
        "",
        "addresses under which agents reach the agent link of every server of the cluster, this one first; if empty, the \
         address of `agent_link.listen`, or the host name",
    ),
    // How the agent of this machine isolates jobs.
    key(
        "agent.job_user",
        ValueKind::Text,
        "muster-job",
        "account that runs jobs if the agent runs as root; `nobody` if missing",
    ),
    key(
        "agent.users",
        ValueKind::List,
        "",
        "accounts of users: `user=uid:gid` or `user=uid:gid:group+group`; if set, other users run no jobs on this node",
    ),
    key("agent.allow_root", ValueKind::Bool, "false", "whether jobs may run with the rights of root"),
    key(
        "agent.require",
        ValueKind::List,
        "",
        "protections without which the agent does not start: `cgroup`, `device-filter`, `job-user`, `private-tmp`",
    ),
    key(
        "agent.cgroup",
        ValueKind::Choice(&["auto", "off"]),
        "auto",
        "whether the kernel limits memory, cores and processes of jobs",
    ),
    key(
        "agent.device_filter",
        ValueKind::Choice(&["auto", "bpf", "v1", "off"]),
        "auto",
        "how the kernel keeps jobs from devices of others: a BPF program, the v1 controller, or what is there",
    ),
    key("agent.devices", ValueKind::List, "", "devices, or folders of devices, that every job may open"),
    key("agent.private_tmp", ValueKind::Bool, "true", "whether each attempt has its own /tmp and /dev/shm"),
    key("agent.pids_max", between(16, 4_194_304), "4096", "most processes and threads of a task"),
    key(
        "agent.open_files_max",
        between(64, 1_048_576),
        "65536",
        "most open files of a process, within the limit of the agent",
    ),
    key(
        "agent.cpu_limit",
        ValueKind::Choice(&["weight", "quota"]),
        "weight",
        "cores of a task: a share while others want to run (`weight`), or never more (`quota`)",
    ),
    key(
        "agent.log_max_mib",
        between(0, 1_048_576),
        "1024",
        "size of each output stream of a task on disk, beyond which its beginning is discarded; 0 for no limit",
    ),
    key("agent.umask", ValueKind::Text, "027", "permissions that new files of jobs do not get, in octal"),
    key(
        "agent.unkillable_after",
        ValueKind::Duration,
        "60s",
        "how long processes may survive SIGKILL before the node is drained",
    ),
    // Programs of the site on this machine.
    key("agent.prolog", ValueKind::Text, "", "program that runs before the tasks of each attempt on this node"),
    key("agent.prolog_timeout", ValueKind::Duration, "5m", "time limit of the prolog"),
    key("agent.epilog", ValueKind::Text, "", "program that runs after the last process of each attempt on this node"),
    key("agent.epilog_timeout", ValueKind::Duration, "5m", "time limit of the epilog"),
    key(
        "agent.program_user",
        ValueKind::Choice(&["agent", "job"]),
        "agent",
        "account of prolog and epilog: that of the agent, or that of the job",
    ),
    key("agent.health_program", ValueKind::Text, "", "program that fails if this node should get no jobs"),
    key("agent.health_timeout", ValueKind::Duration, "1m", "time limit of the health program"),
    key("agent.health_interval", ValueKind::Duration, "5m", "pause between two runs of the health program"),
    key(
        "agent.health_after_job",
        ValueKind::Bool,
        "false",
        "whether the health program also runs after each attempt, before its resources are free again",
    ),
    key(
        "agent.reboot_program",
        ValueKind::Text,
        "",
        "program that reboots this node when it is idle (`muster node reboot`); if empty, `systemctl reboot`",
    ),
    // Silent and unhealthy nodes.
    key(
        "nodes.health_resume",
        ValueKind::Bool,
        "false",
        "whether a node that its health program has drained returns to service when the program succeeds",
    ),
    key(
        "nodes.suspect_after",
        ValueKind::Duration,
        "5s",
        "silence after which a node gets no new work; at least three heartbeat intervals and `nodes.suspect_margin`",
    ),
    key("nodes.suspect_margin", ValueKind::Duration, "2s", "delay of heartbeats that does not make a node suspect"),
    key(
        "nodes.unreachable_after",
        ValueKind::Duration,
        "30s",
        "silence after which a node is unreachable; at least ten heartbeat intervals",
    ),
    key(
        "nodes.self_fence",
        ValueKind::Duration,
        "5m",
        "time without the leader after which a node kills jobs with `on_node_lost: requeue`, at least ten heartbeat \
         intervals; 0s never",
    ),
    key(
        "nodes.fence_clock_drift",
        between(0, 1_000),
        "10",
        "how much the clock of a node may be slow, in thousandths, when a self-fence counts as proven",
    ),
    key(
        "nodes.master_ports",
        ValueKind::PortRange,
        "29500-29999",
        "ports of which each gang holds one on its first node, as `MASTER_PORT` of its tasks",
    ),
    key(
        "nodes.gang_start_timeout",
        ValueKind::Duration,
        "5m",
        "time after the start of the first node of a gang within which its other nodes must start, or the gang is stopped \
         and queued again; 0s never",
    ),
    key("nodes.fence_margin", ValueKind::Duration, "5s", "further time until a self-fence counts as proven"),
    key(
        "nodes.power_program",
        ValueKind::Text,
        "",
        "program on the servers that controls the power of nodes: `PROGRAM status|fence|reset|reboot|off|on NODE`; exit code 0 \
         means done and confirmed",
    ),
    key("nodes.power_timeout", ValueKind::Duration, "1m", "time limit of the power program"),
    key(
        "nodes.fence_with_program",
        ValueKind::Bool,
        "false",
        "whether unreachable nodes with jobs of `on_node_lost: requeue` are fenced by the power program, so that these jobs \
         queue again at once",
    ),
    // The database of journal, savepoints and tables.
    key("database.url", ValueKind::Url, "", "`postgres://…` or `sqlite:PATH`; if empty, SQLite in the data folder"),
    key("database.host", ValueKind::Text, "", "host of PostgreSQL; setting it chooses PostgreSQL"),
    key("database.port", between(1, 65_535), "5432", "port of PostgreSQL"),
    key("database.user", ValueKind::Text, "postgres", "user of PostgreSQL"),
    key("database.password", ValueKind::Secret, "", "password of that user"),
    key("database.database", ValueKind::Text, "gpu_scheduler", "name of the database"),
    key("database.sslmode", SSL_MODES, "disable", "whether connections are encrypted and the server is verified"),
    key(
        "database.sslrootcert",
        ValueKind::Text,
        "",
        "CA certificates to verify PostgreSQL with, in PEM; `system` for those of this machine",
    ),
    key("database.sslcert", ValueKind::Text, "", "client certificate of this server for PostgreSQL, in PEM"),
    key("database.sslkey", ValueKind::Text, "", "private key of that certificate, in PEM"),
    key(
        "database.start_timeout_secs",
        between(0, 86_400),
        "0",
        "how long a start waits for the database before it fails; 0 waits for ever",
    ),
    key(
        "database.max_open_conns",
        between(1, 10_000),
        "25",
        "most connections of this server to PostgreSQL, at least 3",
    ),
    key("database.max_idle_conns", between(0, 10_000), "5", "most connections that stay open while they are idle"),
    key(
        "database.conn_max_lifetime_mins",
        between(0, 525_600),
        "30",
        "age at which a connection is replaced; 0 is never",
    ),
    // The HTTP API.
    key("api.http_port", PORT, "8080", "port of `listen` (alternative name)"),
    key(
        "api.grpc_port",
        ValueKind::Text,
        "auto",
        "port of gRPC, on the host of `listen`: `auto` for 50051, and on loopback another free port if that one is in use; \
         `off`; or a port, 0 for a free one",
    ),
    key(
        "api.enable_tls",
        ValueKind::Bool,
        "false",
        "serve HTTPS; without certificate files, with a certificate of the server's own CA",
    ),
    key("api.tls_cert_path", ValueKind::Text, "", "certificate chain in PEM"),
    key("api.tls_key_path", ValueKind::Text, "", "private key of that certificate, in PEM"),
    key("api.cors_enabled", ValueKind::Bool, "true", "whether `cors_origins` is used"),
    key("api.cors_origins", ValueKind::List, "", "web origins that CORS allows besides the server's own"),
    key("api.allowed_hosts", ValueKind::List, "", "further host names accepted in the Host header"),
    key(
        "api.rate_limit_rps",
        between(0, 1_000_000),
        "",
        "requests per second and caller; 0 for no limit; if empty, 100 with `auth.mode: tokens`, else no limit",
    ),
    key("api.max_connections", at_least(16), "", "most open connections; if empty, what the descriptor limit allows"),
    key(
        "api.max_connections_per_address",
        at_least(4),
        "",
        "most connections from one address; if empty, a quarter of all",
    ),
    // Metrics and traces.
    key("metrics.enabled", ValueKind::Bool, "true", "whether metrics are served"),
    key("metrics.port", PORT, "", "separate port for metrics, on loopback only"),
    key("metrics.path", ValueKind::Text, "/metrics", "path of the metrics"),
    key(
        "metrics.namespace",
        ValueKind::Text,
        "gpu_scheduler",
        "prefix of the five compatibility metrics, e.g. gpu_scheduler_queue_size",
    ),
    key("telemetry.tracing_enabled", ValueKind::Bool, "true", "whether traces are sent to `otlp_endpoint`"),
    key("telemetry.otlp_endpoint", ValueKind::Url, "", "OpenTelemetry collector, such as http://127.0.0.1:4318"),
];

/// Other names of keys: the alias, then the key. A file or an environment that sets both to different values is refused.
pub(super) const ALIASES: &[(&str, &str)] = &[("scheduler.weight_waste", "scheduler.weight_fragmentation")];

/// Keys and sections that are accepted for compatibility and have no effect, and why.
const INERT_KEYS: &[(&str, &str)] = &[
    ("redis", "muster needs no cache beside its database"),
    ("kubernetes", "muster schedules without Kubernetes"),
    ("agent.dcgm_enabled", "real GPUs are not read in this version"),
    ("agent.dcgm_host_port", "real GPUs are not read in this version"),
    ("telemetry.jaeger_endpoint", "traces leave by OTLP, which Jaeger takes: set `telemetry.otlp_endpoint`"),
    ("telemetry.profiling_enabled", "there is no profiling port"),
    ("telemetry.profiling_port", "there is no profiling port"),
];

/// Keys that are checked and have no effect yet, and why.
pub(super) const UNIMPLEMENTED_KEYS: &[(&str, &str)] = &[];

/// The key with this name or alias.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key);
    KEYS.iter().find(|key| key.name == name)
}

/// The table's own spelling of the name or alias of a key.
pub(super) fn spelling(name: &str) -> Option<&'static str> {
    names().chain(ALIASES.iter().map(|(alias, _)| *alias)).find(|known| *known == name)
}

/// Whether keys begin with this name and a dot.
pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// An inert key or section that contains `name`, and why it has no effect; `None` for every other name.
pub(super) fn find_inert(name: &str) -> Option<(&'static str, &'static str)> {
    let within = |whole: &str| name.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    INERT_KEYS.iter().find(|(whole, _)| within(whole)).copied()
}

/// All keys by name, without aliases.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    KEYS.iter().map(|key| key.name)
}
