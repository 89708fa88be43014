//! Every key of the configuration has an effect, or is warned about. The list of keys is the product's own, so a new key
//! without an entry here fails.

use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use muster_server::config::{Config, Database, RawConfig};
use muster_server::server::{self, Nodes};
use serde_json::{Value, json};

use crate::house::{House, TWO_NODES};

/// How it shows that a key is read.
enum Shown {
    /// A start with this value prints a warning that names the key.
    Warning(&'static str),
    /// A decision of the core depends on it: the settings differ, and `muster-core/tests/it/settings.rs` has a story for
    /// each of their fields.
    Decision(&'static str),
    /// With these keys beside it, what the server is made from differs.
    Resolved(&'static [(&'static str, &'static str)], &'static str, fn(&Config) -> String),
    /// A server with this value answers otherwise than one without.
    Answer(&'static str, fn(&House) -> String),
    /// This function tries it.
    Tried(fn()),
    /// This file tries it: tests that need more than a server.
    Elsewhere(&'static str),
}

fn table(key: &str) -> Option<Shown> {
    use Shown::{Answer, Decision, Elsewhere, Resolved, Tried, Warning};
    Some(match key {
        "environment" => Resolved(&[], "production", |config| config.environment.clone()),
        "listen" | "data_dir" => Elsewhere("muster-server/tests/it/house.rs"),
        "cluster" => Elsewhere("muster/tests/transcripts/topology.md"),
        "policies.dir" => Elsewhere("muster/tests/it/policies.rs"),
        "auth.mode" => Answer("tokens", |house| status(house, "/api/v1/jobs")),
        "log.format" => Resolved(&[], "json", |config| format!("{:?}", config.log)),
        "log.level" => Resolved(&[], "debug", |config| format!("{:?}", config.log)),
        "scheduler.scheduling_interval_ms" => Tried(rounds_come_at_the_interval),
        "scheduler.default_priority" => Answer("777", priority_of_a_job),
        "scheduler.objective" => Decision("fast"),
        "scheduler.repartition" => Decision("off"),
        "scheduler.ruleset" => Decision("night"),
        "scheduler.policy_failure" => Decision("open"),
        "scheduler.enable_preemption"
        | "scheduler.enable_gang_scheduling"
        | "scheduler.enable_thermal_aware" => Decision("false"),
        "scheduler.defragment" => Decision("true"),
        "scheduler.thermal_threshold" => Decision("88"),
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
        | "scheduler.memory" => Decision("17s"),
        "database.sslrootcert" | "database.sslcert" | "database.sslkey" => {
            Elsewhere("muster-store/tests/it/tls.rs")
        }
        "database.start_timeout_secs" => Elsewhere("muster-server/tests/it/start.rs"),
        "api.max_connections" | "api.max_connections_per_address" => Resolved(&[], "17", |config| {
            let limits = &config.api;
            format!("{limits:?}")
        }),
        "scheduler.max_queue_size"
        | "scheduler.max_jobs_per_tenant"
        | "scheduler.max_remembered_jobs"
        | "scheduler.utc_offset_minutes"
        | "scheduler.weight_waste"
        | "scheduler.weight_locality"
        | "scheduler.weight_health"
        | "scheduler.aging_per_minute"
        | "scheduler.aging_max"
        | "scheduler.fair_share_max"
        | "scheduler.reservations"
        | "scheduler.reserve_one_node_in" => Decision("17"),
        "agent.node_id" => Tried(the_node_of_this_machine_has_its_name),
        "agent.heartbeat_interval_ms" => {
            Answer("3600000", |house| changes(house, "/api/v1/nodes/n01", "last_heartbeat"))
        }
        "agent.metrics_interval_ms" => Answer("3600000", |house| {
            let hot = json!({"command": ["x"], "gpu_count": 4,
                "annotations": {"muster.sim/runtime": "1h", "muster.sim/temperature": "60"}});
            house.until_state(&house.submit(hot), "running");
            changes(house, "/api/v1/gpus/n01/0", "last_health_check")
        }),
        "agent.health_check_interval_ms" => {
            Answer("100", |house| changes(house, "/api/v1/gpus/n01/0", "last_health_check"))
        }
        "agent.container_runtime" => Warning("podman"),
        "database.url" => Elsewhere("muster-server/tests/it/house.rs"),
        "database.host" => Resolved(&[], "db", database),
        "database.port" => Resolved(&[("database.host", "db")], "5433", database),
        "database.user" => Resolved(&[("database.host", "db")], "ada", database),
        "database.password" => Resolved(&[("database.host", "db")], "secret", database),
        "database.database" => Resolved(&[("database.host", "db")], "jobs", database),
        "database.sslmode" => Resolved(&[("database.host", "db")], "prefer", database),
        "database.max_open_conns" | "database.max_idle_conns" => Elsewhere("muster-store/tests/it/pool.rs"),
        "database.conn_max_lifetime_mins" => Resolved(&[("database.host", "db")], "17", database),
        "api.http_port" => Resolved(&[], "8181", |config| config.listen.to_string()),
        "api.grpc_port" => Warning("9090"),
        "api.enable_tls" => Elsewhere("muster/tests/transcripts/tls.md"),
        "api.tls_cert_path" | "api.tls_key_path" => {
            const OTHER: &[(&str, &str)] =
                &[("api.enable_tls", "true"), ("api.tls_cert_path", "a"), ("api.tls_key_path", "a")];
            Resolved(OTHER, "b", |config| format!("{:?}", config.tls))
        }
        "api.cors_enabled" => {
            const ORIGINS: &[(&str, &str)] = &[("api.cors_origins", "https://a.example.org")];
            Resolved(ORIGINS, "false", |config| format!("{:?}", config.api.cors))
        }
        "api.cors_origins" | "api.allowed_hosts" | "api.rate_limit_rps" => {
            Elsewhere("muster-server/tests/it/access.rs")
        }
        "metrics.enabled" => Answer("false", |house| status(house, "/metrics")),
        "metrics.path" => Answer("/prom", |house| status(house, "/metrics") + &status(house, "/prom")),
        "metrics.port" => Tried(metrics_have_a_port_of_their_own),
        "metrics.namespace" => Answer("gpus", |house| {
            house.client().get("/metrics").text.contains("gpus_jobs_total").to_string()
        }),
        "telemetry.tracing_enabled" => {
            const COLLECTOR: &[(&str, &str)] = &[("telemetry.otlp_endpoint", "http://127.0.0.1:4318")];
            Resolved(COLLECTOR, "false", |config| format!("{:?}", config.telemetry))
        }
        "telemetry.otlp_endpoint" => {
            const TRACING: &[(&str, &str)] = &[("telemetry.tracing_enabled", "true")];
            Resolved(TRACING, "http://127.0.0.1:4318", |config| format!("{:?}", config.telemetry))
        }
        _ => return None,
    })
}

#[test]
fn every_key_has_an_effect_or_a_warning() {
    let keys: Vec<&'static str> = load(&[]).show().into_iter().map(|shown| shown.key).collect();
    assert!(keys.len() > 70, "{keys:?}");
    let wrong: Vec<String> = keys.iter().filter_map(|key| problem(key)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn problem(key: &'static str) -> Option<String> {
    let Some(shown) = table(key) else { return Some(format!("`{key}`: say here how it shows")) };
    let ok = match shown {
        Shown::Warning(value) => {
            let named = |warning: &String| warning.starts_with(&format!("`{key}` has no effect"));
            load(&[(key, value)]).warnings.iter().any(named)
        }
        Shown::Decision(value) => load(&[(key, value)]).settings != load(&[]).settings,
        Shown::Resolved(beside, value, look) => {
            let with: Vec<_> = beside.iter().filter(|(other, _)| *other != key).copied().collect();
            look(&load(&[&with[..], &[(key, value)]].concat())) != look(&load(beside))
        }
        Shown::Answer(value, look) => look(&house(&[(key, value)])) != look(&house(&[])),
        Shown::Tried(try_it) => {
            try_it();
            true
        }
        Shown::Elsewhere(file) => speaks_of(file, key),
    };
    (!ok).then(|| format!("`{key}` has no effect that shows"))
}

fn load(settings: &[(&'static str, &str)]) -> Config {
    let mut flags = RawConfig::default();
    settings.iter().for_each(|(key, value)| flags.flag(key, "test", value));
    Config::load(flags, [], None).unwrap_or_else(|error| panic!("{error}"))
}

fn house(settings: &[(&'static str, &str)]) -> House {
    House::with(settings, Some(TWO_NODES)).with_gpus(8)
}

/// Whether a file speaks of a key, by its own name or the last part of it.
fn speaks_of(file: &str, key: &str) -> bool {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file));
    let last = key.rsplit('.').next().unwrap_or(key);
    text.is_ok_and(|text| text.contains(key) || text.contains(last) || text.contains(&last.replace('_', "-")))
}

fn status(house: &House, path: &str) -> String {
    house.client().anonymous().get_unchecked(path).status.to_string()
}

fn priority_of_a_job(house: &House) -> String {
    let job = house.submit(json!({"script": "x", "hold": true}));
    house.get(&format!("/api/v1/jobs/{job}"))["priority"].to_string()
}

fn database(config: &Config) -> String {
    match &config.database {
        Database::Sqlite { path } => path.display().to_string(),
        Database::Postgres { url, pool } => format!("{} {pool:?}", url.reveal()),
    }
}

/// Whether a field takes another value within a second or two.
fn changes(house: &House, path: &str, field: &str) -> String {
    let read = || house.get(path)[field].clone();
    house.until("a first value", |_| read() != Value::Null);
    let (first, end) = (read(), Instant::now() + Duration::from_millis(2_500));
    while read() == first && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
    (read() != first).to_string()
}

fn rounds_come_at_the_interval() {
    let rounds = |house: &House| -> u64 {
        let text = house.client().get("/metrics").text;
        let line = text.lines().find(|line| line.starts_with("muster_schedule_round_seconds_count"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
    };
    let often = house(&[("scheduler.scheduling_interval_ms", "20")]);
    let seldom = house(&[("scheduler.scheduling_interval_ms", "3600000")]);
    let before = rounds(&seldom);
    let wanted = rounds(&often) + before + 40;
    often.until("forty rounds", |often| rounds(often) >= wanted);
    assert!(rounds(&seldom) < before + 20, "{} rounds after {before}", rounds(&seldom));
}

fn the_node_of_this_machine_has_its_name() {
    let folder = std::env::temp_dir().join(format!("muster-named-{}", std::process::id()));
    let config = load(&[
        ("listen", "127.0.0.1:0"),
        ("data_dir", &folder.display().to_string()),
        ("agent.node_id", "n-of-mine"),
    ]);
    let running = server::start(&config, Nodes::Real { gpus: 1 }, Default::default()).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let is_known = || running.cluster().read(|state| state.nodes.contains_key(&"n-of-mine".parse().unwrap()));
    while !is_known() {
        assert!(Instant::now() < end, "the node did not register under its name");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.stop().unwrap();
    let _ = std::fs::remove_dir_all(folder);
}

fn metrics_have_a_port_of_their_own() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _house = house(&[("metrics.port", &port.to_string())]);
    let alone = crate::client::Client::new(&format!("http://127.0.0.1:{port}"), None);
    assert_eq!(alone.get_unchecked("/metrics").status, 200);
    assert_eq!(alone.get_unchecked("/api/v1/jobs").status, 404);
}
