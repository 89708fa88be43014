//! Every configuration key has an effect or a warning. The list of keys comes from the server, so a new key without an
//! entry here fails.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use muster_server::config::{Config, Database, RawConfig};
use muster_server::server::{self, InProcessNodes};
use serde_json::{Value, json};

use crate::test_server::{TWO_NODES, TestServer};

/// How a key takes effect.
enum KeyEffect {
    /// The value changes the settings of the core; `muster-core/tests/it/settings.rs` has a scenario for each of them.
    CoreSetting(&'static str),
    /// The value, with these other keys, changes a part of the resolved configuration.
    ResolvedConfig(&'static [(&'static str, &'static str)], &'static str, fn(&Config) -> String),
    /// A server with this value responds differently from one without.
    ServerResponse(&'static str, fn(&TestServer) -> String),
    /// This function checks the effect.
    CheckedBy(fn()),
    /// This file checks the effect, because the test needs more than a server.
    TestedIn(&'static str),
}

fn effect_of_key(key: &str) -> Option<KeyEffect> {
    use KeyEffect::{CheckedBy, CoreSetting, ResolvedConfig, ServerResponse, TestedIn};
    Some(match key {
        "environment" => ResolvedConfig(&[], "production", |config| config.environment.clone()),
        "listen" | "data_dir" => TestedIn("muster-server/tests/it/test_server.rs"),
        "cluster" => TestedIn("muster/tests/transcripts/topology.md"),
        "policies.dir" => TestedIn("muster/tests/it/policies.rs"),
        "secrets.key_file" => {
            ResolvedConfig(&[], "/etc/muster/secrets.key", |config| format!("{:?}", config.secrets_key_path()))
        }
        "auth.mode" => ServerResponse("tokens", |server| anonymous_status(server, "/api/v1/jobs")),
        "log.format" => ResolvedConfig(&[], "json", |config| format!("{:?}", config.log)),
        "log.level" => ResolvedConfig(&[], "debug", |config| format!("{:?}", config.log)),
        "scheduler.scheduling_interval_ms" => CheckedBy(planner_rounds_follow_the_configured_interval),
        "scheduler.default_priority" => ServerResponse("777", default_priority_of_a_job),
        "scheduler.objective" => CoreSetting("fast"),
        "scheduler.repartition" => CoreSetting("off"),
        "scheduler.ruleset" => CoreSetting("night"),
        "scheduler.policy_failure" => CoreSetting("open"),
        "scheduler.enable_preemption" | "scheduler.enable_gang_scheduling" | "scheduler.enable_thermal_aware" => {
            CoreSetting("false")
        }
        "scheduler.defragment" => CoreSetting("true"),
        "scheduler.thermal_threshold" => CoreSetting("88"),
        "scheduler.cooling"
        | "scheduler.repartition_after"
        | "scheduler.repartition_cooldown"
        | "scheduler.aging_after"
        | "scheduler.usage_half_life"
        | "scheduler.max_wait"
        | "scheduler.default_runtime"
        | "scheduler.min_runtime"
        | "scheduler.preemption_cooldown"
        | "scheduler.stop_grace"
        | "scheduler.claim"
        | "scheduler.launch_backoff"
        | "scheduler.memory" => CoreSetting("17s"),
        "database.sslrootcert" | "database.sslcert" | "database.sslkey" => TestedIn("muster-store/tests/it/tls.rs"),
        "database.start_timeout_secs" => TestedIn("muster-server/tests/it/server_start.rs"),
        "api.max_connections" | "api.max_connections_per_address" => ResolvedConfig(&[], "17", |config| {
            let limits = &config.api;
            format!("{limits:?}")
        }),
        "scheduler.max_queue_size"
        | "scheduler.max_jobs_per_tenant"
        | "scheduler.max_remembered_jobs"
        | "scheduler.utc_offset_minutes"
        | "scheduler.weight_fragmentation"
        | "scheduler.weight_locality"
        | "scheduler.weight_health"
        | "scheduler.aging_per_minute"
        | "scheduler.aging_max"
        | "scheduler.fair_share_max"
        | "scheduler.reservations"
        | "scheduler.reserve_one_node_in" => CoreSetting("17"),
        "agent.node_id" => CheckedBy(the_local_node_registers_under_the_configured_id),
        "agent.heartbeat_interval_ms" => {
            ServerResponse("3600000", |server| field_changes(server, "/api/v1/nodes/n01", "last_heartbeat"))
        }
        "agent.metrics_interval_ms" => ServerResponse("3600000", |server| {
            let hot = json!({"command": ["x"], "gpu_count": 4,
                "annotations": {"muster.sim/runtime": "1h", "muster.sim/temperature": "60"}});
            server.wait_for_state(&server.submit(hot), "running");
            field_changes(server, "/api/v1/gpus/n01/0", "last_health_check")
        }),
        "agent.health_check_interval_ms" => {
            ServerResponse("100", |server| field_changes(server, "/api/v1/gpus/n01/0", "last_health_check"))
        }
        "nodes.suspect_after" | "nodes.suspect_margin" | "nodes.unreachable_after" => {
            ResolvedConfig(&[("nodes.unreachable_after", "1h")], "17s", |config| format!("{:?}", config.silence))
        }
        "agent_link.listen" => ResolvedConfig(&[], "127.0.0.1:7", |config| format!("{:?}", config.agent_link)),
        "agent_link.advertise" => ResolvedConfig(&[], "head,10.0.0.2:7", |config| format!("{:?}", config.agent_link)),
        "nodes.self_fence" => CoreSetting("17m"),
        "nodes.master_ports" => CoreSetting("17000-17999"),
        "nodes.gang_start_timeout" => CoreSetting("17m"),
        "nodes.power_program" => ResolvedConfig(&[], "/etc/muster/power", |config| format!("{:?}", config.power)),
        "nodes.power_timeout" => ResolvedConfig(&[], "17s", |config| format!("{:?}", config.power)),
        "nodes.fence_with_program" => {
            ResolvedConfig(&[("nodes.power_program", "/etc/muster/power")], "true", |config| {
                format!("{:?}", config.power)
            })
        }
        "nodes.fence_margin" => CoreSetting("17s"),
        "nodes.fence_clock_drift" => CoreSetting("17"),
        "agent.container_runtime" => ResolvedConfig(&[], "podman", launcher_text),
        "agent.image_pull" => ResolvedConfig(&[], "never", launcher_text),
        "agent.image_mounts" => ResolvedConfig(&[], "/data", launcher_text),
        "agent.require" => CheckedBy(a_missing_protection_that_is_required_refuses_the_start),
        "agent.job_user" => ResolvedConfig(&[], "jobs", launcher_text),
        "agent.users" => ResolvedConfig(&[], "ann=1:1", launcher_text),
        "agent.allow_root" => ResolvedConfig(&[], "true", launcher_text),
        "agent.cgroup" | "agent.device_filter" => ResolvedConfig(&[], "off", launcher_text),
        "agent.devices" => ResolvedConfig(&[], "/dev/fuse", launcher_text),
        "agent.private_tmp" => ResolvedConfig(&[], "false", launcher_text),
        "agent.pids_max" | "agent.open_files_max" | "agent.log_max_mib" | "agent.image_cache_max_mib" => {
            ResolvedConfig(&[], "77", launcher_text)
        }
        "agent.cpu_limit" => ResolvedConfig(&[], "quota", launcher_text),
        "agent.prolog" | "agent.epilog" | "agent.health_program" | "agent.reboot_program" => {
            ResolvedConfig(&[], "/etc/site", launcher_text)
        }
        "agent.prolog_timeout"
        | "agent.epilog_timeout"
        | "agent.health_timeout"
        | "agent.health_interval"
        | "agent.unkillable_after" => ResolvedConfig(&[], "17s", launcher_text),
        "agent.program_user" => ResolvedConfig(&[], "job", launcher_text),
        "agent.health_after_job" => ResolvedConfig(&[], "true", launcher_text),
        "nodes.health_resume" => CoreSetting("true"),
        "agent.umask" => ResolvedConfig(&[], "077", launcher_text),
        "database.url" => TestedIn("muster-server/tests/it/test_server.rs"),
        "database.host" => ResolvedConfig(&[], "db", database_text),
        "database.port" => ResolvedConfig(&[("database.host", "db")], "5433", database_text),
        "database.user" => ResolvedConfig(&[("database.host", "db")], "ada", database_text),
        "database.password" => ResolvedConfig(&[("database.host", "db")], "secret", database_text),
        "database.database" => ResolvedConfig(&[("database.host", "db")], "jobs", database_text),
        "database.sslmode" => ResolvedConfig(&[("database.host", "db")], "prefer", database_text),
        "database.max_open_conns" | "database.max_idle_conns" => TestedIn("muster-store/tests/it/pool.rs"),
        "database.conn_max_lifetime_mins" => ResolvedConfig(&[("database.host", "db")], "17", database_text),
        "api.http_port" => ResolvedConfig(&[], "8181", |config| config.listen.to_string()),
        "api.grpc_port" => TestedIn("muster-server/tests/it/grpc.rs"),
        "api.enable_tls" => TestedIn("muster/tests/transcripts/tls.md"),
        "api.tls_cert_path" | "api.tls_key_path" => {
            const OTHER: &[(&str, &str)] =
                &[("api.enable_tls", "true"), ("api.tls_cert_path", "a"), ("api.tls_key_path", "a")];
            ResolvedConfig(OTHER, "b", |config| format!("{:?}", config.tls))
        }
        "api.cors_enabled" => {
            const ORIGINS: &[(&str, &str)] = &[("api.cors_origins", "https://a.example.org")];
            ResolvedConfig(ORIGINS, "false", |config| format!("{:?}", config.api.cors))
        }
        "api.cors_origins" | "api.allowed_hosts" | "api.rate_limit_rps" => TestedIn("muster-server/tests/it/access.rs"),
        "metrics.enabled" => ServerResponse("false", |server| anonymous_status(server, "/metrics")),
        "metrics.path" => {
            ServerResponse("/prom", |server| anonymous_status(server, "/metrics") + &anonymous_status(server, "/prom"))
        }
        "metrics.port" => CheckedBy(metrics_port_serves_only_metrics),
        "metrics.namespace" => ServerResponse("gpus", |server| {
            server.client().get("/metrics").text.contains("gpus_jobs_total").to_string()
        }),
        "telemetry.tracing_enabled" => {
            const COLLECTOR: &[(&str, &str)] = &[("telemetry.otlp_endpoint", "http://127.0.0.1:4318")];
            ResolvedConfig(COLLECTOR, "false", |config| format!("{:?}", config.telemetry))
        }
        "telemetry.otlp_endpoint" => {
            const TRACING: &[(&str, &str)] = &[("telemetry.tracing_enabled", "true")];
            ResolvedConfig(TRACING, "http://127.0.0.1:4318", |config| format!("{:?}", config.telemetry))
        }
        _ => return None,
    })
}

#[test]
fn every_configuration_key_has_an_effect_or_a_warning() {
    let keys: Vec<&'static str> = load(&[]).show().into_iter().map(|entry| entry.key).collect();
    assert!(keys.len() > 70, "{keys:?}");
    let wrong: Vec<String> = keys.iter().filter_map(|key| key_problem(key)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn key_problem(key: &'static str) -> Option<String> {
    let Some(effect) = effect_of_key(key) else {
        return Some(format!("`{key}`: add an entry to `effect_of_key`"));
    };
    let ok = match effect {
        KeyEffect::CoreSetting(value) => load(&[(key, value)]).settings != load(&[]).settings,
        KeyEffect::ResolvedConfig(beside, value, read) => {
            let with: Vec<_> = beside.iter().filter(|(other, _)| *other != key).copied().collect();
            read(&load(&[&with[..], &[(key, value)]].concat())) != read(&load(beside))
        }
        KeyEffect::ServerResponse(value, read) => {
            read(&two_node_server(&[(key, value)])) != read(&two_node_server(&[]))
        }
        KeyEffect::CheckedBy(check) => {
            check();
            true
        }
        KeyEffect::TestedIn(file) => file_mentions_key(file, key),
    };
    (!ok).then(|| format!("`{key}` has no visible effect"))
}

fn load(settings: &[(&'static str, &str)]) -> Config {
    let mut flags = RawConfig::default();
    settings.iter().for_each(|(key, value)| flags.flag(key, "test", value));
    Config::load(flags, [], None).unwrap_or_else(|error| panic!("{error}"))
}

fn two_node_server(settings: &[(&'static str, &str)]) -> TestServer {
    TestServer::with_settings(settings, Some(TWO_NODES)).wait_for_gpus(8)
}

/// Whether a file mentions a key, by its full name or the last part of it.
fn file_mentions_key(file: &str, key: &str) -> bool {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file));
    let last = key.rsplit('.').next().unwrap_or(key);
    text.is_ok_and(|text| text.contains(key) || text.contains(last) || text.contains(&last.replace('_', "-")))
}

fn anonymous_status(server: &TestServer, path: &str) -> String {
    server.client().anonymous().get_unchecked(path).status.to_string()
}

fn default_priority_of_a_job(server: &TestServer) -> String {
    let job = server.submit(json!({"script": "x", "hold": true}));
    server.get(&format!("/api/v1/jobs/{job}"))["priority"].to_string()
}

fn database_text(config: &Config) -> String {
    match &config.database {
        Database::Sqlite { path } => path.display().to_string(),
        Database::Postgres { url, pool } => format!("{} {pool:?}", url.reveal()),
    }
}

/// Whether the value of a field changes within 2.5 seconds.
fn field_changes(server: &TestServer, path: &str, field: &str) -> String {
    let read = || server.get(path)[field].clone();
    server.wait_until("a first value", |_| read() != Value::Null);
    let (first, end) = (read(), Instant::now() + Duration::from_millis(2_500));
    while read() == first && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    (read() != first).to_string()
}

fn planner_rounds_follow_the_configured_interval() {
    let rounds = |server: &TestServer| -> u64 {
        let text = server.client().get("/metrics").text;
        let line = text.lines().find(|line| line.starts_with("muster_schedule_round_seconds_count"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    };
    let often = two_node_server(&[("scheduler.scheduling_interval_ms", "20")]);
    let seldom = two_node_server(&[("scheduler.scheduling_interval_ms", "3600000")]);
    let before = rounds(&seldom);
    let wanted = rounds(&often) + before + 40;
    often.wait_until("forty rounds", |often| rounds(often) >= wanted);
    assert!(rounds(&seldom) < before + 20, "{} rounds after {before}", rounds(&seldom));
}

fn the_local_node_registers_under_the_configured_id() {
    let folder = std::env::temp_dir().join(format!("muster-named-{}", std::process::id()));
    let config =
        load(&[("listen", "127.0.0.1:0"), ("data_dir", &folder.display().to_string()), ("agent.node_id", "n-of-mine")]);
    let running = server::start(&config, InProcessNodes::Real { gpus: 1 }, Default::default()).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let is_known = || running.cluster().read(|state| state.nodes.contains_key(&"n-of-mine".parse().unwrap()));
    while !is_known() {
        assert!(Instant::now() < end, "the node did not register under its name");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.stop().unwrap();
    let _ = std::fs::remove_dir_all(folder);
}

/// The effect of these settings on jobs is tested in `muster-agent/tests/it/isolation.rs` and `hostile.rs`.
fn launcher_text(config: &Config) -> String {
    format!("{:?}", config.agent.launcher)
}

fn a_missing_protection_that_is_required_refuses_the_start() {
    let folder = std::env::temp_dir().join(format!("muster-required-{}", std::process::id()));
    let keys = [("listen", "127.0.0.1:0"), ("agent.cgroup", "off"), ("agent.require", "cgroup")];
    let mut config = load(&keys);
    config.data_dir = folder.clone();
    let refused = server::start(&config, InProcessNodes::Real { gpus: 1 }, Default::default());
    let message = refused.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("no protection `cgroup`"), "{message}");
    let _ = std::fs::remove_dir_all(folder);
}

fn metrics_port_serves_only_metrics() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _server = two_node_server(&[("metrics.port", &port.to_string())]);
    let alone = crate::client::Client::new(&format!("http://127.0.0.1:{port}"), None);
    assert_eq!(alone.get_unchecked("/metrics").status, 200);
    assert_eq!(alone.get_unchecked("/api/v1/jobs").status, 404);
}
