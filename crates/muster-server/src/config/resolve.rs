//! From what was said to what the server sees, with the checks that need more than one key.

use std::net::SocketAddr;
use std::path::PathBuf;

use muster_core::NodeId;

use super::keys;
use super::problem::{ConfigError, Problem, ProblemKind};
use super::merged::{self, MergedConfig};
use super::settings;
use super::{
    AgentConfig, ApiConfig, AuthMode, Config, Cors, Database, LogConfig, LogFormat, MetricsConfig, PostgresPool, RawConfig, SecretUrl,
    TelemetryConfig, TlsConfig,
};

/// Requests per second and caller with tokens, when nobody says anything: the seed's promise.
const DEFAULT_RATE_LIMIT_RPS: u32 = 100;

/// Resolve everything, or say everything that is wrong.
pub(super) fn resolve(mut raw: RawConfig) -> Result<Config, ConfigError> {
    let mut problems = std::mem::take(&mut raw.problems);
    let said = merged::merge(&raw, &mut problems);
    let mut resolver = Resolver { merged: &said, problems, warnings: raw.warnings };
    let config = resolver.config();
    match resolver.problems {
        problems if problems.is_empty() => Ok(Config { warnings: resolver.warnings, merged: said, ..config }),
        problems => Err(ConfigError { problems }),
    }
}

struct Resolver<'a> {
    merged: &'a MergedConfig,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Resolver<'_> {
    fn config(&mut self) -> Config {
        let said = self.merged;
        let listen = self.listen();
        let data_dir = PathBuf::from(said.text("data_dir").unwrap_or("."));
        let auth = self.auth();
        let tls = self.tls();
        self.check_exposure(listen, auth, tls.as_ref());
        self.warn_unimplemented();
        Config {
            environment: said.text("environment").unwrap_or_default().to_string(),
            listen,
            grpc_listen: SocketAddr::new(listen.ip(), said.number("api.grpc_port")),
            database: self.database(&data_dir),
            data_dir,
            start_timeout_ms: Some(said.number("database.start_timeout_secs"))
                .filter(|seconds: &i64| *seconds > 0)
                .map(|seconds| seconds * 1_000),
            new_cluster: false,
            auth,
            tls,
            api: self.api(auth),
            settings: settings::settings_from(said),
            scheduling_interval_ms: said.number("scheduler.scheduling_interval_ms"),
            agent: self.agent(),
            metrics: self.metrics(listen),
            log: log(said),
            telemetry: self.telemetry(),
            cluster: said.text("cluster").map(PathBuf::from),
            policies_dir: said.text("policies.dir").map(PathBuf::from),
            warnings: Vec::new(),
            merged: said.clone(),
        }
    }

    fn warn_unimplemented(&mut self) {
        for (key, why) in keys::UNIMPLEMENTED_KEYS.iter().filter(|(key, _)| self.merged.is_set(key)) {
            self.warnings.push(format!("`{key}` has no effect: {why}"));
        }
    }

    fn push_problem(&mut self, key: &str, wrong: ProblemKind) {
        self.problems.push(Problem { source: self.merged.source(key).clone(), kind: wrong });
    }

    fn push_invalid_value(&mut self, key: &'static str, wanted: &str) {
        let said = self.merged.text(key).map(merged::without_password).unwrap_or_default();
        self.push_problem(key, ProblemKind::InvalidValue { key, value: said, expected: wanted.to_string() });
    }

    /// `listen` is ours, `api.http_port` the seed's word for a part of it. The stronger source wins; one source
    /// must not contradict itself.
    fn listen(&mut self) -> SocketAddr {
        let listen = self.merged.address("listen");
        let port: u16 = self.merged.number("api.http_port");
        let (whole, part) = (self.merged.source("listen").precedence(), self.merged.source("api.http_port").precedence());
        if part > whole {
            return SocketAddr::new(listen.ip(), port);
        }
        if part == whole && port != listen.port() {
            let wrong = ProblemKind::Conflict { key: "listen", other: "api.http_port", what: "the port" };
            self.push_problem("api.http_port", wrong);
        }
        listen
    }

    fn auth(&self) -> AuthMode {
        match self.merged.text("auth.mode") {
            Some("tokens") => AuthMode::Tokens,
            _ => AuthMode::Local,
        }
    }

    fn tls(&mut self) -> Option<TlsConfig> {
        const CERTIFICATE: &str = "api.tls_cert_path";
        const KEY: &str = "api.tls_key_path";
        let said = self.merged;
        let files = (said.text(CERTIFICATE), said.text(KEY));
        if !said.boolean("api.enable_tls") {
            if files != (None, None) {
                self.warnings.push(format!("`{CERTIFICATE}` has no effect: `api.enable_tls` is false"));
            }
            return None;
        }
        match files {
            (Some(certificate), Some(key)) => {
                return Some(TlsConfig::Files { certificate: certificate.into(), key: key.into() });
            }
            (Some(_), None) => {
                self.push_problem(CERTIFICATE, ProblemKind::HalfKeyPair { present: CERTIFICATE, missing: KEY })
            }
            (None, Some(_)) => self.push_problem(KEY, ProblemKind::HalfKeyPair { present: KEY, missing: CERTIFICATE }),
            (None, None) => {}
        }
        Some(TlsConfig::OwnCa)
    }

    /// Promise 10: nothing listens beyond loopback without TLS and tokens.
    fn check_exposure(&mut self, listen: SocketAddr, auth: AuthMode, tls: Option<&TlsConfig>) {
        let missing = match (auth, tls) {
            _ if listen.ip().is_loopback() => return,
            (AuthMode::Tokens, Some(_)) => return,
            (AuthMode::Tokens, None) => "TLS is off",
            (AuthMode::Local, Some(_)) => "tokens are off",
            (AuthMode::Local, None) => "tokens and TLS are off",
        };
        self.push_problem("listen", ProblemKind::Exposed { listen, missing });
    }

    /// An address or a host, whichever source is stronger; SQLite in the data folder when there is neither.
    fn database(&mut self, data_dir: &std::path::Path) -> Database {
        let said = self.merged;
        let (url, host) = (said.source("database.url").precedence(), said.source("database.host").precedence());
        match (said.text("database.url"), said.text("database.host")) {
            (Some(_), Some(_)) if url == host => {
                let what = "where the database is";
                let wrong = ProblemKind::Conflict { key: "database.url", other: "database.host", what };
                self.push_problem("database.host", wrong);
            }
            (Some(address), other) if other.is_none() || url > host => return self.database_from_url(address),
            (_, Some(host)) => {
                self.warn_few_connections();
                return Database::Postgres { url: postgres_url(said, host), pool: pool(said) };
            }
            _ => self.warn_idle_database_keys(),
        }
        Database::Sqlite { path: data_dir.join("muster.db") }
    }

    fn database_from_url(&mut self, url: &str) -> Database {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            self.warn_few_connections();
            return Database::Postgres { url: SecretUrl(url.to_string()), pool: pool(self.merged) };
        }
        let path = url.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
        if path.is_none_or(str::is_empty) {
            self.push_invalid_value("database.url", "`postgres://USER:PASSWORD@HOST/DATABASE` or `sqlite:PATH`");
        }
        Database::Sqlite { path: path.unwrap_or_default().into() }
    }

    fn warn_few_connections(&mut self) {
        let asked: u32 = self.merged.number("database.max_open_conns");
        if asked < POSTGRES_CONNECTIONS_MIN {
            self.warnings.push(format!(
                "`database.max_open_conns` is {asked}; a server needs {POSTGRES_CONNECTIONS_MIN} connections and opens that many"
            ));
        }
    }

    /// Somebody who names a port or a password believes that PostgreSQL is in use.
    fn warn_idle_database_keys(&mut self) {
        const POSTGRES_KEYS: [&str; 11] = [
            "database.port",
            "database.user",
            "database.password",
            "database.database",
            "database.sslmode",
            "database.sslrootcert",
            "database.sslcert",
            "database.sslkey",
            "database.max_open_conns",
            "database.max_idle_conns",
            "database.conn_max_lifetime_mins",
        ];
        for key in POSTGRES_KEYS.into_iter().filter(|key| self.merged.is_set(key)) {
            self.warnings.push(format!(
                "`{key}` has no effect: neither `database.host` nor `database.url` is set, so the state is kept in SQLite"
            ));
        }
    }

    fn api(&mut self, auth: AuthMode) -> ApiConfig {
        let usual = (auth == AuthMode::Tokens).then_some(DEFAULT_RATE_LIMIT_RPS);
        let asked = self.merged.number_or_none("api.rate_limit_rps");
        ApiConfig {
            allowed_hosts: self.merged.list("api.allowed_hosts"),
            cors: self.cors(auth),
            rate_limit_rps: asked.or(usual).filter(|limit| *limit > 0),
            connections_max: self.merged.number_or_none("api.max_connections"),
            connections_per_address_max: self.merged.number_or_none("api.max_connections_per_address"),
        }
    }

    fn cors(&mut self, auth: AuthMode) -> Cors {
        const KEY: &str = "api.cors_origins";
        let origins = self.merged.list(KEY);
        if !self.merged.boolean("api.cors_enabled") || origins.is_empty() {
            return Cors::SameOrigin;
        }
        if origins.iter().any(|origin| origin == "*") {
            if auth == AuthMode::Local {
                self.push_problem(KEY, ProblemKind::OpenCors);
            }
            return Cors::Any;
        }
        for origin in origins.iter().filter(|origin| !is_origin(origin)) {
            self.push_problem(KEY, ProblemKind::BadOrigin { origin: origin.clone() });
        }
        Cors::Origins(origins)
    }

    fn agent(&mut self) -> AgentConfig {
        const NODE: &str = "agent.node_id";
        let said = self.merged;
        let node_id = said.text(NODE).filter(|name| !name.is_empty()).map(str::to_string);
        if node_id.as_deref().is_some_and(|name| name.parse::<NodeId>().is_err()) {
            self.push_invalid_value(NODE, "a name of a-z, 0-9, `-`, `_` and `.`");
        }
        AgentConfig {
            node_id,
            heartbeat_ms: said.number("agent.heartbeat_interval_ms"),
            metrics_ms: said.number("agent.metrics_interval_ms"),
            health_check_ms: said.number("agent.health_check_interval_ms"),
            container_runtime: said.text("agent.container_runtime").unwrap_or_default().to_string(),
        }
    }

    fn metrics(&mut self, listen: SocketAddr) -> MetricsConfig {
        let said = self.merged;
        let path = said.text("metrics.path").unwrap_or_default().to_string();
        let namespace = said.text("metrics.namespace").unwrap_or_default().to_string();
        if !is_free_path(&path) {
            self.push_invalid_value("metrics.path", "a path of its own that begins with `/`, such as `/metrics`");
        }
        if !is_metric_name(&namespace) {
            self.push_invalid_value("metrics.namespace", "a name of letters, digits and `_` that begins with a letter");
        }
        let port = said.number_or_none("metrics.port").filter(|port| *port != listen.port());
        MetricsConfig {
            enabled: said.boolean("metrics.enabled"),
            listen: port.map(|port| SocketAddr::new(listen.ip(), port)),
            path,
            namespace,
        }
    }

    fn telemetry(&mut self) -> TelemetryConfig {
        const KEY: &str = "telemetry.otlp_endpoint";
        let said = self.merged;
        let endpoint = said.text(KEY).map(|text| text.trim_end_matches('/').to_string());
        let wanted = said.boolean("telemetry.tracing_enabled");
        if let Some(endpoint) = &endpoint
            && !endpoint.starts_with("http://")
        {
            self.push_invalid_value(
                KEY,
                "an address such as `http://127.0.0.1:4318`; put a collector beside the server for TLS",
            );
        }
        if wanted && said.is_set("telemetry.tracing_enabled") && endpoint.is_none() {
            self.warnings.push(format!("`telemetry.tracing_enabled` has no effect: `{KEY}` is not set"));
        }
        TelemetryConfig { otlp_endpoint: endpoint.filter(|_| wanted) }
    }
}

fn log(said: &MergedConfig) -> LogConfig {
    let format = match said.text("log.format") {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Console,
    };
    LogConfig { format, level: said.text("log.level").unwrap_or("info").to_string() }
}

/// The journal, the savepoints, and one reader.
const POSTGRES_CONNECTIONS_MIN: u32 = 3;

fn pool(said: &MergedConfig) -> PostgresPool {
    let lifetime_mins: i64 = said.number("database.conn_max_lifetime_mins");
    PostgresPool {
        connections_max: said.number::<u32>("database.max_open_conns").max(POSTGRES_CONNECTIONS_MIN),
        idle_max: said.number("database.max_idle_conns"),
        lifetime_ms_max: (lifetime_mins > 0).then_some(lifetime_mins * 60_000),
    }
}

fn postgres_url(said: &MergedConfig, host: &str) -> SecretUrl {
    let part = |key: &str| percent_encoded(said.text(key).unwrap_or_default());
    let user = match said.text("database.password") {
        Some(password) => format!("{}:{}", part("database.user"), percent_encoded(password)),
        None => part("database.user"),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { percent_encoded(host) };
    let port: u16 = said.number("database.port");
    let sslmode = said.text("database.sslmode").unwrap_or("disable");
    let files: String = ["sslrootcert", "sslcert", "sslkey"]
        .into_iter()
        .filter_map(|key| Some(format!("&{key}={}", percent_encoded(said.text(&format!("database.{key}"))?))))
        .collect();
    let database = part("database.database");
    SecretUrl(format!("postgres://{user}@{host}:{port}/{database}?sslmode={sslmode}{files}"))
}

/// What stands between the signs of an address must not contain them.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ', '@', '?', '#']))
}

/// Whether a path is plain and serves nothing else.
fn is_free_path(path: &str) -> bool {
    const RESERVED_PATHS: [&str; 4] = ["/", "/health", "/healthz", "/readyz"];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.starts_with('/')
        && path.bytes().all(is_plain)
        && !RESERVED_PATHS.contains(&path)
        && !path.starts_with("/api/")
        && !path.starts_with("/v1/")
}

fn is_metric_name(text: &str) -> bool {
    let begins_well = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins_well && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
