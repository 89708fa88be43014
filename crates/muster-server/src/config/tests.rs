//! Precedence of sources, every key of the compatibility file, and the message of every kind of invalid input.

use std::path::Path;

use muster_core::Settings;

use super::*;

/// A file with every compatibility key. Values differ from the defaults wherever that is visible.
const COMPAT_FILE: &str = r#"
environment: production
scheduler:
  scheduling_interval_ms: 500
  max_queue_size: 20000
  enable_preemption: false
  enable_gang_scheduling: false
  enable_thermal_aware: false
  thermal_threshold: 80.5
  default_priority: 200
agent:
  node_id: n1
  heartbeat_interval_ms: 1000
  metrics_interval_ms: 2000
  health_check_interval_ms: 3000
  dcgm_enabled: true
  dcgm_host_port: localhost:5555
  container_runtime: podman
database:
  host: db.example.org
  port: 5433
  user: sched
  password: "p@ss/word"
  database: jobs
  sslmode: require
  max_open_conns: 50
  max_idle_conns: 7
  conn_max_lifetime_mins: 15
redis:
  host: localhost
  port: 6379
  password: ""
  db: 0
kubernetes:
  in_cluster: false
  kubeconfig_path: ""
  namespace: gpu-system
api:
  grpc_port: 9090
  http_port: 8088
  enable_tls: true
  tls_cert_path: /tls/server.pem
  tls_key_path: /tls/server.key
  cors_enabled: true
  cors_origins: ["https://a.example.org", "https://b.example.org:8443"]
  rate_limit_rps: 150
metrics:
  enabled: false
  port: 9091
  path: /prom
  namespace: gpus
telemetry:
  tracing_enabled: false
  jaeger_endpoint: http://localhost:14268/api/traces
  profiling_enabled: false
  profiling_port: 6060
"#;

/// Load from a file named `c.yaml`, variables and flags, all given as text.
fn load(text: &str, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, ConfigError> {
    let mut raw = file::parse(Path::new("c.yaml"), text);
    raw.extend(variables::read(variables.iter().map(|(name, value)| (name.to_string(), value.to_string()))));
    for (key, value) in flags {
        raw.flag(key, &format!("--{key}"), value);
    }
    resolve::resolve(raw)
}

fn load_valid(text: &str) -> Config {
    load(text, &[], &[]).unwrap_or_else(|error| panic!("{error}"))
}

fn load_error(text: &str) -> String {
    load(text, &[], &[]).map(|_| ()).unwrap_err().to_string()
}

fn source(config: &Config, key: &str) -> String {
    config.show().into_iter().find(|shown| shown.key == key).unwrap().source
}

#[test]
fn an_empty_configuration_starts_a_local_server() {
    for text in ["", "# only a comment\n", "scheduler:\n", "api: ~\nredis:\n"] {
        let config = load_valid(text);
        assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
        assert_eq!(config.grpc_port, GrpcPort::Auto);
        assert_eq!(config.database, Database::Sqlite { path: "./muster-data/muster.db".into() });
        assert_eq!(config.auth, AuthMode::Local);
        assert_eq!(config.tls, None);
        let (allowed_hosts, cors) = (vec![], Cors::SameOrigin);
        let (connections_max, connections_per_address_max) = (None, None);
        let api = ApiConfig { allowed_hosts, cors, rate_limit_rps: None, connections_max, connections_per_address_max };
        assert_eq!(config.api, api);
        assert_eq!(config.settings, Settings::default(), "the defaults of the table are those of the core");
        assert_eq!(config.telemetry.otlp_endpoint, None);
    }
}

#[test]
fn the_file_we_ship_loads_and_needs_no_database_server() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/scheduler-config.yaml"));
    let config = Config::load(RawConfig::default(), [], Some(path)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(config.database, Database::Sqlite { path: "./muster-data/muster.db".into() });
    assert_eq!(config.settings, Settings::default());
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn every_commented_key_of_the_file_we_ship_exists() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/scheduler-config.yaml");
    let mut section = String::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let bare = line.trim_start_matches(['#', ' ']);
        let Some((word, _)) = bare.split_once(':').filter(|(word, _)| !word.contains([' ', ',', '*'])) else {
            continue;
        };
        let is_indented = line.starts_with("  ") || line.starts_with("#   ");
        let name = if is_indented { format!("{section}.{word}") } else { word.to_string() };
        assert!(keys::find(&name).is_some() || keys::is_section(&name), "{line}");
        if !is_indented {
            section = name;
        }
    }
}

#[test]
fn every_key_of_the_compat_file_is_read() {
    let config = load_valid(COMPAT_FILE);
    assert_eq!(config.environment, "production");
    let expected = Settings {
        queue_size_max: 20_000,
        preemption: false,
        gangs: false,
        thermal: false,
        thermal_limit_c: 80,
        default_priority: 200,
        ..Settings::default()
    };
    assert_eq!((config.settings, config.scheduling_interval_ms), (expected, 500));
    let agent = AgentConfig {
        node_id: Some("n1".into()),
        heartbeat_ms: 1_000,
        metrics_ms: 2_000,
        health_check_ms: 3_000,
        launcher: muster_agent::LauncherConfig {
            container_runtime: "podman".into(),
            ..muster_agent::LauncherConfig::default()
        },
    };
    assert_eq!(config.agent, agent);
    let url = "postgres://sched:p%40ss%2Fword@db.example.org:5433/jobs?sslmode=require";
    let pool = PostgresPool { connections_max: 50, idle_max: 7, lifetime_ms_max: Some(900_000) };
    assert_eq!(config.database, Database::Postgres { url: SecretUrl(url.into()), pool });
    assert_eq!(config.listen.to_string(), "127.0.0.1:8088");
    assert_eq!(config.grpc_port, GrpcPort::At(9090));
    let files = TlsConfig::Files { certificate: "/tls/server.pem".into(), key: "/tls/server.key".into() };
    assert_eq!(config.tls, Some(files));
    let origins = vec!["https://a.example.org".to_string(), "https://b.example.org:8443".to_string()];
    assert_eq!(config.api.cors, Cors::Origins(origins));
    assert_eq!(config.api.rate_limit_rps, Some(150));
    let listen = Some("127.0.0.1:9091".parse().unwrap());
    let metrics = MetricsConfig { enabled: false, listen, path: "/prom".into(), namespace: "gpus".into() };
    assert_eq!(config.metrics, metrics);
}

#[test]
fn inert_keys_of_the_compat_file_warn_once() {
    let expected = [
        "`agent.dcgm_enabled` has no effect: real GPUs are not read in this version",
        "`agent.dcgm_host_port` has no effect: real GPUs are not read in this version",
        "`redis` has no effect: muster needs no cache beside its database",
        "`kubernetes` has no effect: muster schedules without Kubernetes",
        "`telemetry.jaeger_endpoint` has no effect: traces leave by OTLP, which Jaeger takes: \
         set `telemetry.otlp_endpoint`",
        "`telemetry.profiling_enabled` has no effect: there is no profiling port",
        "`telemetry.profiling_port` has no effect: there is no profiling port",
    ];
    assert_eq!(load_valid(COMPAT_FILE).warnings, expected);
    let config = load("", &[("GPU_SCHEDULER_REDIS_HOST", "r"), ("GPU_SCHEDULER_REDIS_PORT", "1")], &[]).unwrap();
    assert_eq!(config.warnings, [expected[2]]);
}

#[test]
fn the_strongest_source_wins() {
    let file = "scheduler: {default_priority: 1}\n";
    let compat = ("GPU_SCHEDULER_SCHEDULER_DEFAULT_PRIORITY", "2");
    let muster = ("MUSTER_SCHEDULER__DEFAULT_PRIORITY", "3");
    let flag = ("scheduler.default_priority", "4");
    type Case<'a> = (&'a str, Vec<(&'a str, &'a str)>, Vec<(&'static str, &'a str)>, u32, &'a str);
    let cases: [Case; 5] = [
        ("", vec![], vec![], 100, "default"),
        (file, vec![], vec![], 1, "c.yaml:1:31"),
        (file, vec![compat], vec![], 2, "GPU_SCHEDULER_SCHEDULER_DEFAULT_PRIORITY"),
        (file, vec![compat, muster], vec![], 3, "MUSTER_SCHEDULER__DEFAULT_PRIORITY"),
        (file, vec![compat, muster], vec![flag], 4, "--scheduler.default_priority"),
    ];
    for (text, variables, flags, expected, by) in cases {
        let config = load(text, &variables, &flags).unwrap();
        assert_eq!(config.settings.default_priority, expected);
        assert_eq!(source(&config, "scheduler.default_priority"), by);
    }
}

#[test]
fn every_key_can_be_set_by_both_kinds_of_variable() {
    for key in keys::names().chain(keys::ALIASES.iter().map(|(alias, _)| *alias)) {
        let muster = format!("MUSTER_{}", key.replace('.', "__").to_uppercase());
        let compat = format!("GPU_SCHEDULER_{}", key.replace('.', "_").to_uppercase());
        for name in [muster, compat] {
            let raw = variables::read([(name.clone(), "1".to_string())]);
            let keys: Vec<_> = raw.entries.iter().map(|entry| entry.key).collect();
            assert_eq!(keys, [key], "{name}");
        }
    }
}

#[test]
fn an_alias_sets_its_key_in_every_source() {
    let weight = |text: &str, variables: &[(&str, &str)]| {
        load(text, variables, &[]).unwrap_or_else(|error| panic!("{error}")).settings.weights.fragmentation
    };
    let (by_name, by_alias) = ("scheduler: {weight_fragmentation: 3}", "scheduler: {weight_waste: 4}");
    assert_eq!((weight(by_name, &[]), weight(by_alias, &[])), (3, 4));
    assert_eq!(weight(by_name, &[("MUSTER_SCHEDULER__WEIGHT_WASTE", "5")]), 5, "a variable overrides the file");
    assert_eq!(weight("", &[("GPU_SCHEDULER_SCHEDULER_WEIGHT_WASTE", "6")]), 6);
    assert_eq!(weight("scheduler: {weight_fragmentation: 3, weight_waste: 3}", &[]), 3, "the same value twice");
    let config = load_valid(by_alias);
    assert_eq!(source(&config, "scheduler.weight_fragmentation"), "c.yaml:1:27");
    assert!(config.show().iter().all(|shown| shown.key != "scheduler.weight_waste"));
    assert_eq!(
        load_error("scheduler:\n  weight_fragmentation: 3\n  weight_waste: 4\n"),
        "c.yaml:3:17: `scheduler.weight_waste` and `scheduler.weight_fragmentation` disagree about the value; keep one \
         of them\n  |\n3 |   weight_waste: 4\n  |                 ^"
    );
}

#[test]
fn variables_accept_lists_durations_and_flags() {
    let variables = [
        ("MUSTER_LISTEN", "localhost:9000"),
        ("MUSTER_DATA_DIR", "/var/lib/muster"),
        ("MUSTER_API__ALLOWED_HOSTS", "a.example.org, b.example.org"),
        ("MUSTER_SCHEDULER__MAX_WAIT", "1h30m"),
        ("MUSTER_METRICS__ENABLED", "no"),
        ("MUSTER_LOG", "DEBUG"),
        ("MUSTER_AGENT__NODE_ID", ""),
        ("GPU_PLATFORM_SCHEDULER__MAX_QUEUE_SIZE", "77"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/"),
    ];
    let config = load("agent: {node_id: n7}", &variables, &[]).unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:9000");
    assert_eq!(config.database, Database::Sqlite { path: "/var/lib/muster/muster.db".into() });
    assert_eq!(config.api.allowed_hosts, ["a.example.org", "b.example.org"]);
    assert_eq!(config.settings.max_wait_ms, 5_400_000);
    assert!(!config.metrics.enabled);
    assert_eq!(config.log.level, "debug");
    assert_eq!(config.agent.node_id.as_deref(), Some("n7"), "an empty variable sets nothing");
    assert_eq!(config.settings.queue_size_max, 77);
    assert_eq!(config.telemetry.otlp_endpoint.as_deref(), Some("http://127.0.0.1:4318"));
    assert_eq!(config.warnings, Vec::<String>::new());
}

#[test]
fn unknown_variables_warn_and_unrelated_ones_are_ignored() {
    let variables = [
        ("MUSTER_API__HTP_PORT", "1"),
        ("GPU_SCHEDULER_API_HTTP_PORTS", "1"),
        ("MUSTER_FAVOURITE_COLOUR", "blue"),
        ("MUSTER_TOKEN", "mst_x"),
        ("MUSTER_JOB_ID", "job-1"),
        ("MUSTER_LOCAL_RANK", "0"),
        ("MUSTER_MASTER", "n1"),
        ("MUSTER_CHECKPOINT_DIR", "/ckpt"),
        ("MUSTER_PORT", "tcp://10.0.0.1:8080"),
        ("MUSTER_SERVICE_HOST", "10.0.0.1"),
        ("GPU_SCHEDULER_METRICS_PORT", "tcp://10.0.0.1:9091"),
        ("PATH", "/bin"),
    ];
    let expected = [
        "the variable `GPU_SCHEDULER_API_HTTP_PORTS` is not known and has no effect; \
         did you mean `GPU_SCHEDULER_API_HTTP_PORT`?",
        "the variable `MUSTER_API__HTP_PORT` is not known and has no effect; did you mean `MUSTER_API__HTTP_PORT`?",
        "the variable `MUSTER_FAVOURITE_COLOUR` is not known and has no effect; `muster config show` lists the keys",
    ];
    assert_eq!(load("", &variables, &[]).unwrap().warnings, expected);
}

#[test]
fn the_port_of_the_stronger_source_wins_over_the_port_of_listen() {
    let address = |text: &str, variables: &[(&str, &str)]| load(text, variables, &[]).unwrap().listen.to_string();
    assert_eq!(address("api: {http_port: 9000}", &[]), "127.0.0.1:9000");
    assert_eq!(address("listen: '[::1]:80'", &[("GPU_SCHEDULER_API_HTTP_PORT", "81")]), "[::1]:81");
    assert_eq!(address("api: {http_port: 9000}", &[("MUSTER_LISTEN", "127.0.0.1:7000")]), "127.0.0.1:7000");
    assert_eq!(address("listen: 127.0.0.1:9000\napi: {http_port: 9000}", &[]), "127.0.0.1:9000");
}

#[test]
fn the_database_is_chosen_by_url_or_by_host() {
    let database = |text: &str, variables: &[(&str, &str)]| match load(text, variables, &[]).unwrap().database {
        Database::Sqlite { path } => format!("sqlite {}", path.display()),
        Database::Postgres { url, .. } => url.reveal().to_string(),
    };
    let host = "database: {host: db}";
    assert_eq!(database("data_dir: /d", &[]), "sqlite /d/muster.db");
    assert_eq!(database("database: {url: 'sqlite:/d/x.db'}", &[]), "sqlite /d/x.db");
    assert_eq!(database("database: {url: 'sqlite://x.db'}", &[]), "sqlite x.db");
    assert_eq!(database("database: {url: 'postgresql://u:p@h/d'}", &[]), "postgresql://u:p@h/d");
    assert_eq!(database(host, &[]), "postgres://postgres@db:5432/gpu_scheduler?sslmode=disable");
    assert_eq!(database(host, &[("MUSTER_DATABASE_URL", "sqlite:y.db")]), "sqlite y.db");
    let by_compat_name = [("GPU_SCHEDULER_DATABASE_HOST", "::1"), ("GPU_SCHEDULER_DATABASE_PORT", "1")];
    let url = "postgres://postgres@[::1]:1/gpu_scheduler?sslmode=disable";
    assert_eq!(database("database: {url: 'sqlite:x.db'}", &by_compat_name), url);
    assert_eq!(
        load_valid("database: {password: x}").warnings,
        ["`database.password` has no effect: neither `database.host` nor `database.url` is set, \
          so the state is kept in SQLite"]
    );
}

#[test]
fn listening_beyond_loopback_requires_tokens_and_tls() {
    let with =
        |auth: &str, tls: &str| format!("listen: 0.0.0.0:8080\nauth: {{mode: {auth}}}\napi: {{enable_tls: {tls}}}\n");
    for (auth, tls, missing) in [
        ("local", "false", "tokens and TLS are off"),
        ("local", "true", "tokens are off"),
        ("tokens", "false", "TLS is off"),
    ] {
        let expected = format!(
            "c.yaml:1:9: `listen` is `0.0.0.0:8080`, which other machines can reach, but {missing}: anyone there \
             could run jobs here; set `auth.mode: tokens` and `api.enable_tls: true`, or listen on 127.0.0.1\n  \
             |\n1 | listen: 0.0.0.0:8080\n  |         ^"
        );
        assert_eq!(load_error(&with(auth, tls)), expected);
    }
    let config = load_valid(&with("tokens", "true"));
    assert_eq!((config.tls, config.api.rate_limit_rps), (Some(TlsConfig::OwnCa), Some(100)));
    assert!(load_error("listen: '[::]:80'").contains("can reach"));
    load_valid("listen: '[::1]:80'");
}

#[test]
fn the_cors_wildcard_is_refused_without_tokens() {
    let text = "api:\n  cors_origins: \"*\"\n";
    let expected = "c.yaml:2:17: `api.cors_origins` has `*` while tokens are off: any web page that you visit could \
                    run jobs here; name the origins, or set `auth.mode: tokens`\n  \
                    |\n2 |   cors_origins: \"*\"\n  |                 ^";
    assert_eq!(load_error(text), expected);
    assert_eq!(load_valid(&format!("{text}auth: {{mode: tokens}}")).api.cors, Cors::Any);
    assert_eq!(load_valid(&format!("{text}  cors_enabled: false")).api.cors, Cors::SameOrigin);
}

#[test]
fn invalid_values_are_reported_with_the_expected_form() {
    let cases = [
        ("scheduler.thermal_threshold", "200", "it must be a number from 40 to 110 (°C)"),
        ("scheduler.thermal_threshold", "NaN", "it must be a number from 40 to 110 (°C)"),
        ("scheduler.default_priority", "10001", "it must be a whole number from 0 to 10000"),
        ("scheduler.max_queue_size", "0", "it must be a whole number from 1"),
        ("scheduler.max_queue_size", "many", "it must be a whole number from 1"),
        ("scheduler.enable_preemption", "maybe", "it must be `true` or `false`"),
        ("scheduler.max_wait", "30", "it must be a duration with its unit, such as `500ms`, `30s`, `5m` or `1h30m`"),
        ("scheduler.max_wait", "-5m", "it must be a duration with its unit, such as `500ms`, `30s`, `5m` or `1h30m`"),
        ("listen", "8080", "it must be an address with a port, such as `127.0.0.1:8080` or `[::1]:8080`"),
        ("auth.mode", "open", "it must be `local` or `tokens`"),
        ("log.level", "loud", "it must be `error`, `warn`, `info`, `debug` or `trace`"),
        ("api.http_port", "70000", "it must be a whole number from 0 to 65535"),
        ("database.sslmode", "verify", "it must be `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"),
        ("metrics.path", "prom", "it must be a path of its own that begins with `/`, such as `/metrics`"),
        ("metrics.namespace", "9a", "it must be a name of letters, digits and `_` that begins with a letter"),
        (
            "database.url",
            "mysql://me:secret@x/y",
            "it must be `postgres://USER:PASSWORD@HOST/DATABASE` or `sqlite:PATH`",
        ),
    ];
    for (key, value, expected) in cases {
        let error = load("", &[], &[(key, value)]).map(|_| ()).unwrap_err().to_string();
        let shown = value.replace("secret", "***");
        assert_eq!(error, format!("--{key}: `{key}` is `{shown}`; {expected}"));
    }
}

#[test]
fn file_errors_are_reported_with_line_and_caret() {
    let cases = [
        (
            "scheduler:\n  max_queue_sise: 10\n",
            "c.yaml:2:3: there is no key `scheduler.max_queue_sise`; did you mean `scheduler.max_queue_size`?\n  \
             |\n2 |   max_queue_sise: 10\n  |   ^",
        ),
        (
            "http_port: 80\n",
            "c.yaml:1:1: there is no key `http_port`; did you mean `api.http_port`?\n  |\n1 | http_port: 80\n  | ^",
        ),
        (
            "colour: {a: 1}\n",
            "c.yaml:1:1: there is no key `colour`; `muster config show` lists the keys\n  \
             |\n1 | colour: {a: 1}\n  | ^",
        ),
        (
            "api:\n  http_port: eighty\n",
            "c.yaml:2:14: `api.http_port` is `eighty`; it must be a whole number from 0 to 65535\n  \
             |\n2 |   http_port: eighty\n  |              ^",
        ),
        (
            "api:\n  http_port: [80]\n",
            "c.yaml:2:14: a single value is expected here, not a list or a section\n  \
             |\n2 |   http_port: [80]\n  |              ^",
        ),
        (
            "api: 80\n",
            "c.yaml:1:6: a section is expected here: indented lines of `key: value`\n  |\n1 | api: 80\n  |      ^",
        ),
        (
            "api:\n  http_port: 80\n  http_port: 81\n",
            "c.yaml:3:3: the key `http_port` is written twice; keep one\n  \
             |\n3 |   http_port: 81\n  |   ^",
        ),
        (
            "api: {cors_origins: [https://a/b]}\n",
            "c.yaml:1:21: `api.cors_origins` has `https://a/b`; write an origin such as \
             `https://grafana.example.org`, without a path\n  \
             |\n1 | api: {cors_origins: [https://a/b]}\n  |                     ^",
        ),
        (
            "api:\n  enable_tls: true\n  tls_key_path: a.key\n",
            "c.yaml:3:17: `api.tls_key_path` is set and `api.tls_cert_path` is not; name both files, or neither to \
             have a certificate generated\n  |\n3 |   tls_key_path: a.key\n  |                 ^",
        ),
        (
            "listen: 127.0.0.1:80\napi: {http_port: 81}\n",
            "c.yaml:2:18: `listen` and `api.http_port` disagree about the port; keep one of them\n  \
             |\n2 | api: {http_port: 81}\n  |                  ^",
        ),
        (
            "database: {host: a, url: 'sqlite:b'}\n",
            "c.yaml:1:18: `database.url` and `database.host` disagree about where the database is; keep one of \
             them\n  |\n1 | database: {host: a, url: 'sqlite:b'}\n  |                  ^",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(load_error(text), expected);
    }
}

#[test]
fn all_problems_are_reported_at_once() {
    let error = load("a: 1\nlog: {level: loud}", &[("MUSTER_LISTEN", "x")], &[]).unwrap_err();
    let sources: Vec<String> = error.problems.iter().map(|problem| problem.source.to_string()).collect();
    assert_eq!(sources, ["c.yaml:1:1", "c.yaml:2:14", "MUSTER_LISTEN"]);
}

#[test]
fn a_missing_file_is_reported() {
    let error = Config::load(RawConfig::default(), [], Some(Path::new("/no/such.yaml"))).unwrap_err();
    let expected = "/no/such.yaml: cannot read the configuration: No such file or directory (os error 2); \
                    check the path and its permissions";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn passwords_are_never_shown() {
    let config = load_valid("database: {host: db, password: hunter2}");
    let url = load("", &[("MUSTER_DATABASE_URL", "postgres://me:hunter2@db/x?password=hunter2&a=b")], &[]).unwrap();
    for config in [&config, &url] {
        let shown: Vec<String> = config.show().iter().map(ShownKey::to_string).collect();
        let text = format!("{}\n{:?}", shown.join("\n"), config.database);
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(shown.len(), keys::KEYS.len());
    }
    let shown: Vec<String> = url.show().iter().map(ShownKey::to_string).collect();
    let line = "database.url = postgres://me:***@db/x?password=***&a=b  (MUSTER_DATABASE_URL)";
    assert!(shown.iter().any(|shown| shown == line), "{shown:?}");
    assert!(shown.iter().any(|shown| shown == "api.http_port = 8080  (default)"));
    assert!(!load_error("database: {host: db, password: [hunter2]}").contains("is `hunter2`"));
}
