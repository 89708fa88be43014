//! Every key there is: its kind, what it is when nobody says anything, and what it means.
//!
//! The table is the only list. Files, variables, `muster config show` and the messages are made from it.

use muster_core::settings::PRIORITY_MAX;

use super::value::Kind;

/// One key.
pub(super) struct Key {
    /// With dots between the levels.
    pub name: &'static str,
    pub kind: Kind,
    /// As it would be written; empty when nothing is set.
    pub default: &'static str,
    /// For `muster config show`.
    pub about: &'static str,
}

const fn key(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default, about }
}

const fn from(min: i64) -> Kind {
    Kind::Integer { min, max: i64::MAX }
}

const fn between(min: i64, max: i64) -> Kind {
    Kind::Integer { min, max }
}

const PORT: Kind = between(0, 65_535);
/// An hour: a longer pause between two looks at the same thing is a typing error.
const PAUSE_MS: Kind = between(1, 3_600_000);
/// Below lies the idle temperature of a GPU, above its shutdown.
const THERMAL: Kind = Kind::Celsius { min: 40.0, max: 110.0 };
const LEVELS: Kind = Kind::Word(&["error", "warn", "info", "debug", "trace"]);
const OBJECTIVES: Kind = Kind::Word(&["fair", "fast"]);
const FAILURES: Kind = Kind::Word(&["closed", "open"]);
const REPARTITIONS: Kind = Kind::Word(&["off", "propose", "apply"]);
const WEIGHT: Kind = between(0, 1_000_000);
const SSL_MODES: Kind = Kind::Word(&["disable", "prefer", "require", "verify-ca", "verify-full"]);

/// Every key of this version. Sorted by section as people meet them.
pub(super) const KEYS: &[Key] = &[
    key(
        "environment",
        Kind::Text,
        "development",
        "a name for this installation, told to the trace collector",
    ),
    key("listen", Kind::Address, "127.0.0.1:8080", "where HTTP is served"),
    key("data_dir", Kind::Text, "./muster-data", "folder of the database, certificates and tokens"),
    key("cluster", Kind::Text, "", "file that describes a simulated cluster"),
    key(
        "policies.dir",
        Kind::Text,
        "",
        "folder of policies that are in force as it has them, whenever it changes",
    ),
    key(
        "auth.mode",
        Kind::Word(&["local", "tokens"]),
        "local",
        "who may ask: everybody on this machine, or tokens",
    ),
    key("log.format", Kind::Word(&["console", "json"]), "console", "how log lines look"),
    key("log.level", LEVELS, "info", "least severity that is logged; RUST_LOG refines it"),
    // The planner and the guards.
    key("scheduler.scheduling_interval_ms", PAUSE_MS, "1000", "longest pause between two plans"),
    key("scheduler.max_queue_size", from(1), "1000000", "most jobs waiting at once"),
    key(
        "scheduler.max_jobs_per_tenant",
        from(0),
        "200000",
        "most jobs of one tenant that have not ended; 0 for no limit",
    ),
    key("scheduler.enable_preemption", Kind::Flag, "true", "whether running jobs may be displaced"),
    key("scheduler.enable_gang_scheduling", Kind::Flag, "true", "whether jobs of several tasks are accepted"),
    key("scheduler.enable_thermal_aware", Kind::Flag, "true", "whether hot GPUs are avoided"),
    key("scheduler.thermal_threshold", THERMAL, "75", "temperature above which a GPU cools first"),
    key(
        "scheduler.default_priority",
        between(0, PRIORITY_MAX as i64),
        "100",
        "priority of a job that names none",
    ),
    key("scheduler.cooling", Kind::Duration, "5m", "how long a hot GPU cools"),
    key(
        "scheduler.repartition",
        REPARTITIONS,
        "propose",
        "what is done about idle GPUs that are partitioned otherwise than needed: `off`, `propose` or `apply`",
    ),
    key(
        "scheduler.ruleset",
        Kind::Text,
        "",
        "the ruleset of the policies that counts; the only one where none is named",
    ),
    key(
        "scheduler.policy_failure",
        FAILURES,
        "closed",
        "what a policy that fails means: its jobs wait (`closed`), or as if it had not been asked (`open`)",
    ),
    key(
        "scheduler.utc_offset_minutes",
        between(-720, 840),
        "0",
        "how far the clocks are ahead of UTC, for policies that look at the hour",
    ),
    key("scheduler.repartition_after", Kind::Duration, "1m", "only for jobs that have waited this long"),
    key(
        "scheduler.repartition_cooldown",
        Kind::Duration,
        "10m",
        "a GPU that was partitioned stays so this long",
    ),
    key(
        "scheduler.defragment",
        Kind::Flag,
        "false",
        "whether jobs that save their work are moved so that others fit, where that pays",
    ),
    key("scheduler.weight_waste", WEIGHT, "1000", "what GPU that is going to be left over counts in a score"),
    key("scheduler.weight_locality", WEIGHT, "1000", "what slow links between the GPUs of a task count"),
    key("scheduler.weight_health", WEIGHT, "1000", "what GPUs that are warm or have had errors count"),
    key(
        "scheduler.objective",
        OBJECTIVES,
        "fair",
        "what the order is for: `fair` shares, or jobs done `fast`",
    ),
    key("scheduler.aging_after", Kind::Duration, "5m", "wait before a job's priority begins to grow"),
    key(
        "scheduler.aging_per_minute",
        between(0, PRIORITY_MAX as i64),
        "10",
        "priority gained per minute of waiting",
    ),
    key("scheduler.aging_max", between(0, PRIORITY_MAX as i64), "500", "most that waiting can add"),
    key(
        "scheduler.fair_share_max",
        between(0, PRIORITY_MAX as i64),
        "400",
        "priority lost by who has far more than their fair share; half of it at just the share",
    ),
    key("scheduler.usage_half_life", Kind::Duration, "7d", "past usage counts half after this time"),
    key(
        "scheduler.max_wait",
        Kind::Duration,
        "12h",
        "wait after which only jobs with a time limit may pass a job",
    ),
    key(
        "scheduler.reservations",
        between(0, 1_000),
        "16",
        "how many blocked jobs have a place in the future",
    ),
    key(
        "scheduler.reserve_one_node_in",
        between(1, 1_000_000),
        "8",
        "no more of them once one node in so many is needed for those there are",
    ),
    key(
        "scheduler.default_runtime",
        Kind::Duration,
        "1h",
        "how long a job without a time limit is expected to run while nothing is known",
    ),
    key("scheduler.min_runtime", Kind::Duration, "0s", "a job that ran for less is not displaced"),
    key(
        "scheduler.preemption_cooldown",
        Kind::Duration,
        "10m",
        "a job that was displaced runs this long undisturbed when it is back",
    ),
    key(
        "scheduler.stop_grace",
        Kind::Duration,
        "30s",
        "time that processes have to stop before they are killed",
    ),
    key("scheduler.claim", Kind::Duration, "1m", "how long freed space is held for the job it was freed for"),
    key("scheduler.launch_backoff", Kind::Duration, "5s", "pause after a failed launch, doubled each time"),
    key("scheduler.memory", Kind::Duration, "24h", "how long outcomes and idempotency keys are remembered"),
    key(
        "scheduler.max_remembered_jobs",
        from(0),
        "100000",
        "how many ended jobs and keys are kept in memory; older ones are read from the database",
    ),
    // The agent on this machine.
    key("agent.node_id", Kind::Text, "", "name of this node; the host name when empty"),
    key("agent.heartbeat_interval_ms", PAUSE_MS, "1000", "pause between two heartbeats"),
    key("agent.metrics_interval_ms", PAUSE_MS, "1000", "pause between two readings of GPUs in use"),
    key("agent.health_check_interval_ms", PAUSE_MS, "30000", "pause between two readings of every GPU"),
    key("agent.container_runtime", Kind::Text, "docker", "program that runs images"),
    // Where the journal lives.
    key(
        "database.url",
        Kind::Url,
        "",
        "`postgres://…` or `sqlite:PATH`; SQLite in the data folder when empty",
    ),
    key("database.host", Kind::Text, "", "host of PostgreSQL; setting it chooses PostgreSQL"),
    key("database.port", between(1, 65_535), "5432", "port of PostgreSQL"),
    key("database.user", Kind::Text, "postgres", "role in PostgreSQL"),
    key("database.password", Kind::Secret, "", "its password"),
    key("database.database", Kind::Text, "gpu_scheduler", "name of the database"),
    key(
        "database.sslmode",
        SSL_MODES,
        "disable",
        "whether connections are encrypted and the server is verified",
    ),
    key(
        "database.sslrootcert",
        Kind::Text,
        "",
        "certificates of the CAs to verify with, in PEM; `system` for this machine's",
    ),
    key("database.sslcert", Kind::Text, "", "certificate of this server for PostgreSQL, in PEM"),
    key("database.sslkey", Kind::Text, "", "its private key in PEM"),
    key(
        "database.start_timeout_secs",
        between(0, 86_400),
        "0",
        "how long a start waits for the database before it gives up; 0 waits for ever",
    ),
    key(
        "database.max_open_conns",
        between(1, 10_000),
        "25",
        "most connections of this server at once, at least 3",
    ),
    key("database.max_idle_conns", between(0, 10_000), "5", "most connections kept open for later"),
    key(
        "database.conn_max_lifetime_mins",
        between(0, 525_600),
        "30",
        "age at which a connection is replaced; 0 is never",
    ),
    // The doors.
    key("api.http_port", PORT, "8080", "port of `listen`, as the seed names it"),
    key("api.grpc_port", PORT, "50051", "port of gRPC, on the same host"),
    key("api.enable_tls", Kind::Flag, "false", "serve HTTPS, with our own CA when no files are named"),
    key("api.tls_cert_path", Kind::Text, "", "certificate chain in PEM"),
    key("api.tls_key_path", Kind::Text, "", "its private key in PEM"),
    key("api.cors_enabled", Kind::Flag, "true", "whether `cors_origins` is looked at"),
    key("api.cors_origins", Kind::List, "", "web origins beside our own that may call"),
    key("api.allowed_hosts", Kind::List, "", "names beside the loopback ones by which we may be called"),
    key("api.rate_limit_rps", between(0, 1_000_000), "", "requests per second and caller; 0 is none"),
    key("api.max_connections", from(16), "", "most open connections; what the descriptors allow when empty"),
    key("api.max_connections_per_address", from(4), "", "most from one address; a quarter of all when empty"),
    // What we say about ourselves.
    key("metrics.enabled", Kind::Flag, "true", "whether metrics are served"),
    key("metrics.port", PORT, "", "a port of their own beside `listen`"),
    key("metrics.path", Kind::Text, "/metrics", "their path"),
    key("metrics.namespace", Kind::Text, "gpu_scheduler", "prefix of the names the seed promised"),
    key("telemetry.tracing_enabled", Kind::Flag, "true", "whether traces go to `otlp_endpoint`"),
    key("telemetry.otlp_endpoint", Kind::Url, "", "OpenTelemetry collector, such as http://127.0.0.1:4318"),
];

/// Keys and sections of the seeds that do nothing here, and why.
const INERT: &[(&str, &str)] = &[
    ("redis", "muster needs no cache beside its database"),
    ("kubernetes", "muster schedules without Kubernetes"),
    ("agent.dcgm_enabled", "real GPUs are not read in this version"),
    ("agent.dcgm_host_port", "real GPUs are not read in this version"),
    ("telemetry.jaeger_endpoint", "traces leave by OTLP, which Jaeger takes: set `telemetry.otlp_endpoint`"),
    ("telemetry.profiling_enabled", "there is no profiling port"),
    ("telemetry.profiling_port", "there is no profiling port"),
];

/// Keys that are checked and have no effect in this version, and why.
pub(super) const NOT_YET: &[(&str, &str)] = &[
    ("api.grpc_port", "gRPC is not served in this version"),
    ("agent.container_runtime", "images are not run in this version"),
];

/// The key of that name.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// Whether keys begin with this name and a dot.
pub(super) fn is_section(name: &str) -> bool {
    KEYS.iter().any(|key| key.name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
}

/// Why a key of the seeds has no effect; `None` for every other name. The second part is what to name in the
/// warning: the whole section where all of it is inert.
pub(super) fn inert(name: &str) -> Option<(&'static str, &'static str)> {
    let within =
        |whole: &str| name.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    INERT.iter().find(|(whole, _)| within(whole)).copied()
}

/// Every name, for looking up what somebody meant.
pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
    KEYS.iter().map(|key| key.name)
}
