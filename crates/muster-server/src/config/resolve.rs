//! From the merged values to the [`Config`], with the checks that involve several keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use muster_core::NodeId;
use muster_wire::join_url::{SERVERS_MAX, with_port};

use super::keys;
use super::launcher;
use super::merged::{self, MergedConfig};
use super::problem::{ConfigError, Problem, ProblemKind};
use super::settings;
use super::{
    AgentConfig, ApiConfig, AuthMode, Config, Cors, Database, LogConfig, LogFormat, MetricsConfig, PostgresPool,
    PowerConfig, RawConfig, SecretUrl, SilenceConfig, TelemetryConfig, TlsConfig,
};
use super::{AgentLinkConfig, AgentLinkListen, GrpcPort};

/// Requests per second and caller in token mode, unless configured.
const DEFAULT_RATE_LIMIT_RPS: u32 = 100;

/// Resolve everything, or return all problems.
pub(super) fn resolve(mut raw: RawConfig) -> Result<Config, ConfigError> {
    let mut problems = std::mem::take(&mut raw.problems);
    let merged = merged::merge(&raw, &mut problems);
    let mut resolver = Resolver { merged: &merged, problems, warnings: raw.warnings };
    let config = resolver.config();
    match resolver.problems {
        problems if problems.is_empty() => Ok(Config { warnings: resolver.warnings, merged, ..config }),
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
        let merged = self.merged;
        let listen = self.listen();
        let data_dir = PathBuf::from(merged.text("data_dir").unwrap_or("."));
        let auth = self.auth();
        let tls = self.tls();
        self.check_exposure(listen, auth, tls.as_ref());
        self.warn_unimplemented();
        Config {
            environment: merged.text("environment").unwrap_or_default().to_string(),
            listen,
            grpc_port: self.grpc_port(),
            database: self.database(&data_dir),
            data_dir,
            secrets_key_file: merged.text("secrets.key_file").map(PathBuf::from),
            start_timeout_ms: Some(merged.number("database.start_timeout_secs"))
                .filter(|seconds: &i64| *seconds > 0)
                .map(|seconds| seconds * 1_000),
            new_cluster: false,
            auth,
            tls,
            api: self.api(auth),
            settings: settings::settings_from(merged),
            scheduling_interval_ms: merged.number("scheduler.scheduling_interval_ms"),
            agent: self.agent(),
            agent_link: self.agent_link(),
            silence: self.silence(),
            power: self.power(),
            metrics: self.metrics(listen),
            log: log(merged),
            telemetry: self.telemetry(),
            cluster: merged.text("cluster").map(PathBuf::from),
            policies_dir: merged.text("policies.dir").map(PathBuf::from),
            warnings: Vec::new(),
            merged: merged.clone(),
        }
    }

    fn warn_unimplemented(&mut self) {
        for (key, why) in keys::UNIMPLEMENTED_KEYS.iter().filter(|(key, _)| self.merged.is_set(key)) {
            self.warnings.push(format!("`{key}` has no effect: {why}"));
        }
    }

    fn push_problem(&mut self, key: &str, kind: ProblemKind) {
        self.problems.push(Problem { source: self.merged.source(key).clone(), kind });
    }

    fn push_invalid_value(&mut self, key: &'static str, expected: &str) {
        let value = self.merged.text(key).map(merged::without_password).unwrap_or_default();
        self.push_problem(key, ProblemKind::InvalidValue { key, value, expected: expected.to_string() });
    }

    /// `api.http_port` is another name for the port of `listen`. The source with the higher precedence counts; one source
    /// must not contradict itself.
    fn listen(&mut self) -> SocketAddr {
        let listen = self.merged.address("listen");
        let port: u16 = self.merged.number("api.http_port");
        let (whole, part) =
            (self.merged.source("listen").precedence(), self.merged.source("api.http_port").precedence());
        if part > whole {
            return SocketAddr::new(listen.ip(), port);
        }
        if part == whole && port != listen.port() {
            let conflict = ProblemKind::Conflict { key: "listen", other: "api.http_port", what: "the port" };
            self.push_problem("api.http_port", conflict);
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
        let merged = self.merged;
        let files = (merged.text(CERTIFICATE), merged.text(KEY));
        if !merged.boolean("api.enable_tls") {
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

    /// Nothing listens beyond loopback without TLS and tokens.
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

    /// From `database.url` or `database.host`, whichever source has the higher precedence; without both, SQLite in the data
    /// folder.
    fn database(&mut self, data_dir: &std::path::Path) -> Database {
        let merged = self.merged;
        let (url, host) = (merged.source("database.url").precedence(), merged.source("database.host").precedence());
        match (merged.text("database.url"), merged.text("database.host")) {
            (Some(_), Some(_)) if url == host => {
                let what = "where the database is";
                let conflict = ProblemKind::Conflict { key: "database.url", other: "database.host", what };
                self.push_problem("database.host", conflict);
            }
            (Some(address), other) if other.is_none() || url > host => {
                return self.database_from_url(address);
            }
            (_, Some(host)) => {
                self.warn_few_connections();
                return Database::Postgres { url: postgres_url(merged, host), pool: pool(merged) };
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
        let configured: u32 = self.merged.number("database.max_open_conns");
        if configured < POSTGRES_CONNECTIONS_MIN {
            self.warnings.push(format!(
                "`database.max_open_conns` is {configured}; a server needs {POSTGRES_CONNECTIONS_MIN} connections and opens that many"
            ));
        }
    }

    /// A port or a password without a host suggests that the operator expects PostgreSQL.
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
        let default = (auth == AuthMode::Tokens).then_some(DEFAULT_RATE_LIMIT_RPS);
        let configured = self.merged.number_or_none("api.rate_limit_rps");
        ApiConfig {
            allowed_hosts: self.merged.list("api.allowed_hosts"),
            cors: self.cors(auth),
            rate_limit_rps: configured.or(default).filter(|limit| *limit > 0),
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
        let merged = self.merged;
        let node_id = merged.text(NODE).filter(|name| !name.is_empty()).map(str::to_string);
        if node_id.as_deref().is_some_and(|name| name.parse::<NodeId>().is_err()) {
            self.push_invalid_value(NODE, "a name of a-z, 0-9, `-`, `_` and `.`");
        }
        let (launcher, wrong) = launcher::launcher_from(merged);
        for (key, expected) in wrong {
            let value = merged.shown_text(key);
            self.push_problem(key, ProblemKind::InvalidValue { key, value, expected });
        }
        AgentConfig {
            node_id,
            launcher,
            heartbeat_ms: merged.number("agent.heartbeat_interval_ms"),
            metrics_ms: merged.number("agent.metrics_interval_ms"),
            health_check_ms: merged.number("agent.health_check_interval_ms"),
        }
    }

    fn grpc_port(&mut self) -> GrpcPort {
        const KEY: &str = "api.grpc_port";
        match self.merged.text(KEY).unwrap_or("auto") {
            "auto" => GrpcPort::Auto,
            "off" => GrpcPort::Off,
            port => port.parse().map(GrpcPort::At).unwrap_or_else(|_| {
                self.push_invalid_value(KEY, "`auto`, `off`, or a port from 0 to 65535");
                GrpcPort::Off
            }),
        }
    }

    fn agent_link(&mut self) -> AgentLinkConfig {
        const LISTEN: &str = "agent_link.listen";
        const ADVERTISE: &str = "agent_link.advertise";
        let listen = match self.merged.text(LISTEN).unwrap_or("auto") {
            "auto" | "" => AgentLinkListen::Auto,
            "off" => AgentLinkListen::Off,
            address => match address.parse() {
                Ok(address) => AgentLinkListen::At(address),
                Err(_) => {
                    self.push_invalid_value(LISTEN, "`auto`, `off`, or an address such as `0.0.0.0:50052`");
                    AgentLinkListen::Off
                }
            },
        };
        let advertised = self.merged.list(ADVERTISE);
        let advertise: Vec<String> = advertised.iter().filter_map(|address| with_port(address)).collect();
        if advertise.len() != advertised.len() || advertise.len() > SERVERS_MAX {
            self.push_invalid_value(ADVERTISE, "at most 16 host names or addresses, each with or without a port");
        }
        AgentLinkConfig { listen, advertise }
    }

    fn silence(&mut self) -> SilenceConfig {
        const UNREACHABLE: &str = "nodes.unreachable_after";
        let merged = self.merged;
        let suspect_after_ms = merged.number("nodes.suspect_after");
        let unreachable_after_ms = merged.number(UNREACHABLE);
        if unreachable_after_ms <= suspect_after_ms {
            self.push_invalid_value(UNREACHABLE, "a longer time than `nodes.suspect_after`");
        }
        let suspect_margin_ms = merged.number("nodes.suspect_margin");
        SilenceConfig { suspect_after_ms, suspect_margin_ms, unreachable_after_ms }
    }

    fn power(&mut self) -> PowerConfig {
        const FENCE: &str = "nodes.fence_with_program";
        let merged = self.merged;
        let program = merged.text("nodes.power_program").map(PathBuf::from);
        let fences = merged.boolean(FENCE);
        if fences && program.is_none() {
            self.push_invalid_value(FENCE, "`false`, or `nodes.power_program` must name the program");
        }
        PowerConfig { program, timeout_ms: merged.number("nodes.power_timeout"), fences }
    }

    fn metrics(&mut self, listen: SocketAddr) -> MetricsConfig {
        let merged = self.merged;
        let path = merged.text("metrics.path").unwrap_or_default().to_string();
        let namespace = merged.text("metrics.namespace").unwrap_or_default().to_string();
        if !is_free_path(&path) {
            self.push_invalid_value("metrics.path", "a path of its own that begins with `/`, such as `/metrics`");
        }
        if !is_metric_name(&namespace) {
            self.push_invalid_value("metrics.namespace", "a name of letters, digits and `_` that begins with a letter");
        }
        let port = merged.number_or_none("metrics.port").filter(|port| *port != listen.port());
        MetricsConfig {
            enabled: merged.boolean("metrics.enabled"),
            listen: port.map(|port| SocketAddr::new(listen.ip(), port)),
            path,
            namespace,
        }
    }

    fn telemetry(&mut self) -> TelemetryConfig {
        const KEY: &str = "telemetry.otlp_endpoint";
        let merged = self.merged;
        let endpoint = merged.text(KEY).map(|text| text.trim_end_matches('/').to_string());
        let enabled = merged.boolean("telemetry.tracing_enabled");
        if let Some(endpoint) = &endpoint
            && !endpoint.starts_with("http://")
        {
            self.push_invalid_value(
                KEY,
                "an address such as `http://127.0.0.1:4318`; put a collector beside the server for TLS",
            );
        }
        if enabled && merged.is_set("telemetry.tracing_enabled") && endpoint.is_none() {
            self.warnings.push(format!("`telemetry.tracing_enabled` has no effect: `{KEY}` is not set"));
        }
        TelemetryConfig { otlp_endpoint: endpoint.filter(|_| enabled) }
    }
}

fn log(merged: &MergedConfig) -> LogConfig {
    let format = match merged.text("log.format") {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Console,
    };
    LogConfig { format, level: merged.text("log.level").unwrap_or("info").to_string() }
}

/// One connection each for the journal, the savepoints and a reader.
const POSTGRES_CONNECTIONS_MIN: u32 = 3;

fn pool(merged: &MergedConfig) -> PostgresPool {
    let lifetime_mins: i64 = merged.number("database.conn_max_lifetime_mins");
    PostgresPool {
        connections_max: merged.number::<u32>("database.max_open_conns").max(POSTGRES_CONNECTIONS_MIN),
        idle_max: merged.number("database.max_idle_conns"),
        lifetime_ms_max: (lifetime_mins > 0).then_some(lifetime_mins * 60_000),
    }
}

fn postgres_url(merged: &MergedConfig, host: &str) -> SecretUrl {
    let part = |key: &str| percent_encoded(merged.text(key).unwrap_or_default());
    let user = match merged.text("database.password") {
        Some(password) => format!("{}:{}", part("database.user"), percent_encoded(password)),
        None => part("database.user"),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { percent_encoded(host) };
    let port: u16 = merged.number("database.port");
    let sslmode = merged.text("database.sslmode").unwrap_or("disable");
    let files: String = ["sslrootcert", "sslcert", "sslkey"]
        .into_iter()
        .filter_map(|key| Some(format!("&{key}={}", percent_encoded(merged.text(&format!("database.{key}"))?))))
        .collect();
    let database = part("database.database");
    SecretUrl(format!("postgres://{user}@{host}:{port}/{database}?sslmode={sslmode}{files}"))
}

/// Escape a part of a URL.
fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}

fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*', ' ', '@', '?', '#']))
}

/// Whether a path has only plain characters and serves nothing else.
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
