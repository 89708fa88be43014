//! From what was said to what the server sees, with the checks that need more than one key.

use std::net::SocketAddr;
use std::path::PathBuf;

use muster_core::NodeId;

use super::keys;
use super::problem::{ConfigError, Problem, Wrong};
use super::said::{self, Said};
use super::settings;
use super::{
    Agent, Api, AuthMode, Config, Cors, Database, Log, LogFormat, Metrics, Pool, RawConfig, SecretUrl,
    Telemetry, Tls,
};

/// Requests per second and caller with tokens, when nobody says anything: the seed's promise.
const RATE_LIMIT_RPS: u32 = 100;

/// Resolve everything, or say everything that is wrong.
pub(super) fn resolve(mut raw: RawConfig) -> Result<Config, ConfigError> {
    let mut problems = std::mem::take(&mut raw.problems);
    let said = said::merge(&raw, &mut problems);
    let mut resolver = Resolver { said: &said, problems, warnings: raw.warnings };
    let config = resolver.config();
    match resolver.problems {
        problems if problems.is_empty() => Ok(Config { warnings: resolver.warnings, said, ..config }),
        problems => Err(ConfigError { problems }),
    }
}

struct Resolver<'a> {
    said: &'a Said,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Resolver<'_> {
    fn config(&mut self) -> Config {
        let said = self.said;
        let listen = self.listen();
        let data_dir = PathBuf::from(said.text("data_dir").unwrap_or("."));
        let auth = self.auth();
        let tls = self.tls();
        self.guard_exposure(listen, auth, tls.as_ref());
        self.warn_not_yet();
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
            settings: settings::all(said),
            scheduling_interval_ms: said.number("scheduler.scheduling_interval_ms"),
            agent: self.agent(),
            metrics: self.metrics(listen),
            log: log(said),
            telemetry: self.telemetry(),
            cluster: said.text("cluster").map(PathBuf::from),
            policies_dir: said.text("policies.dir").map(PathBuf::from),
            warnings: Vec::new(),
            said: said.clone(),
        }
    }

    fn warn_not_yet(&mut self) {
        for (key, why) in keys::NOT_YET.iter().filter(|(key, _)| self.said.is_said(key)) {
            self.warnings.push(format!("`{key}` has no effect: {why}"));
        }
    }

    fn wrong(&mut self, key: &str, wrong: Wrong) {
        self.problems.push(Problem { place: self.said.place(key).clone(), wrong });
    }

    fn unfit(&mut self, key: &'static str, wanted: &str) {
        let said = self.said.text(key).map(said::without_password).unwrap_or_default();
        self.wrong(key, Wrong::Unfit { key, said, wanted: wanted.to_string() });
    }

    /// `listen` is ours, `api.http_port` the seed's word for a part of it. The stronger source wins; one source
    /// must not contradict itself.
    fn listen(&mut self) -> SocketAddr {
        let listen = self.said.address("listen");
        let port: u16 = self.said.number("api.http_port");
        let (whole, part) = (self.said.place("listen").rank(), self.said.place("api.http_port").rank());
        if part > whole {
            return SocketAddr::new(listen.ip(), port);
        }
        if part == whole && port != listen.port() {
            let wrong = Wrong::Conflict { key: "listen", other: "api.http_port", what: "the port" };
            self.wrong("api.http_port", wrong);
        }
        listen
    }

    fn auth(&self) -> AuthMode {
        match self.said.text("auth.mode") {
            Some("tokens") => AuthMode::Tokens,
            _ => AuthMode::Local,
        }
    }

    fn tls(&mut self) -> Option<Tls> {
        const CERTIFICATE: &str = "api.tls_cert_path";
        const KEY: &str = "api.tls_key_path";
        let said = self.said;
        let files = (said.text(CERTIFICATE), said.text(KEY));
        if !said.flag("api.enable_tls") {
            if files != (None, None) {
                self.warnings.push(format!("`{CERTIFICATE}` has no effect: `api.enable_tls` is false"));
            }
            return None;
        }
        match files {
            (Some(certificate), Some(key)) => {
                return Some(Tls::Files { certificate: certificate.into(), key: key.into() });
            }
            (Some(_), None) => {
                self.wrong(CERTIFICATE, Wrong::HalfKeyPair { present: CERTIFICATE, missing: KEY })
            }
            (None, Some(_)) => self.wrong(KEY, Wrong::HalfKeyPair { present: KEY, missing: CERTIFICATE }),
            (None, None) => {}
        }
        Some(Tls::OwnCa)
    }

    /// Promise 10: nothing listens beyond loopback without TLS and tokens.
    fn guard_exposure(&mut self, listen: SocketAddr, auth: AuthMode, tls: Option<&Tls>) {
        let missing = match (auth, tls) {
            _ if listen.ip().is_loopback() => return,
            (AuthMode::Tokens, Some(_)) => return,
            (AuthMode::Tokens, None) => "TLS is off",
            (AuthMode::Local, Some(_)) => "tokens are off",
            (AuthMode::Local, None) => "tokens and TLS are off",
        };
        self.wrong("listen", Wrong::Exposed { listen, missing });
    }

    /// An address or a host, whichever source is stronger; SQLite in the data folder when there is neither.
    fn database(&mut self, data_dir: &std::path::Path) -> Database {
        let said = self.said;
        let (url, host) = (said.place("database.url").rank(), said.place("database.host").rank());
        match (said.text("database.url"), said.text("database.host")) {
            (Some(_), Some(_)) if url == host => {
                let what = "where the database is";
                let wrong = Wrong::Conflict { key: "database.url", other: "database.host", what };
                self.wrong("database.host", wrong);
            }
            (Some(address), other) if other.is_none() || url > host => return self.database_at(address),
            (_, Some(host)) => {
                self.warn_few_connections();
                return Database::Postgres { url: postgres_url(said, host), pool: pool(said) };
            }
            _ => self.warn_idle_database_keys(),
        }
        Database::Sqlite { path: data_dir.join("muster.db") }
    }

    fn database_at(&mut self, url: &str) -> Database {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            self.warn_few_connections();
            return Database::Postgres { url: SecretUrl(url.to_string()), pool: pool(self.said) };
        }
        let path = url.strip_prefix("sqlite:").map(|rest| rest.strip_prefix("//").unwrap_or(rest));
        if path.is_none_or(str::is_empty) {
            self.unfit("database.url", "`postgres://USER:PASSWORD@HOST/DATABASE` or `sqlite:PATH`");
        }
        Database::Sqlite { path: path.unwrap_or_default().into() }
    }

    fn warn_few_connections(&mut self) {
        let asked: u32 = self.said.number("database.max_open_conns");
        if asked < CONNECTIONS_MIN {
            self.warnings.push(format!(
                "`database.max_open_conns` is {asked}; a server needs {CONNECTIONS_MIN} connections and opens that many"
            ));
        }
    }

    /// Somebody who names a port or a password believes that PostgreSQL is in use.
    fn warn_idle_database_keys(&mut self) {
        const OF_POSTGRES: [&str; 11] = [
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
        for key in OF_POSTGRES.into_iter().filter(|key| self.said.is_said(key)) {
            self.warnings.push(format!(
                "`{key}` has no effect: neither `database.host` nor `database.url` is set, so the state is kept in SQLite"
            ));
        }
    }

    fn api(&mut self, auth: AuthMode) -> Api {
        let usual = (auth == AuthMode::Tokens).then_some(RATE_LIMIT_RPS);
        let asked = self.said.number_or_none("api.rate_limit_rps");
        Api {
            allowed_hosts: self.said.list("api.allowed_hosts"),
            cors: self.cors(auth),
            rate_limit_rps: asked.or(usual).filter(|limit| *limit > 0),
            connections_max: self.said.number_or_none("api.max_connections"),
            connections_per_address_max: self.said.number_or_none("api.max_connections_per_address"),
        }
    }

    fn cors(&mut self, auth: AuthMode) -> Cors {
        const KEY: &str = "api.cors_origins";
        let origins = self.said.list(KEY);
        if !self.said.flag("api.cors_enabled") || origins.is_empty() {
            return Cors::SameOrigin;
        }
        if origins.iter().any(|origin| origin == "*") {
            if auth == AuthMode::Local {
                self.wrong(KEY, Wrong::OpenCors);
            }
            return Cors::Any;
        }
        for origin in origins.iter().filter(|origin| !is_origin(origin)) {
            self.wrong(KEY, Wrong::BadOrigin { origin: origin.clone() });
        }
        Cors::Origins(origins)
    }

    fn agent(&mut self) -> Agent {
        const NODE: &str = "agent.node_id";
        let said = self.said;
        let node_id = said.text(NODE).filter(|name| !name.is_empty()).map(str::to_string);
        if node_id.as_deref().is_some_and(|name| name.parse::<NodeId>().is_err()) {
            self.unfit(NODE, "a name of a-z, 0-9, `-`, `_` and `.`");
        }
        Agent {
            node_id,
            heartbeat_ms: said.number("agent.heartbeat_interval_ms"),
            metrics_ms: said.number("agent.metrics_interval_ms"),
            health_check_ms: said.number("agent.health_check_interval_ms"),
            container_runtime: said.text("agent.container_runtime").unwrap_or_default().to_string(),
        }
    }

    fn metrics(&mut self, listen: SocketAddr) -> Metrics {
        let said = self.said;
        let path = said.text("metrics.path").unwrap_or_default().to_string();
        let namespace = said.text("metrics.namespace").unwrap_or_default().to_string();
        if !is_free_path(&path) {
            self.unfit("metrics.path", "a path of its own that begins with `/`, such as `/metrics`");
        }
        if !is_metric_name(&namespace) {
            self.unfit("metrics.namespace", "a name of letters, digits and `_` that begins with a letter");
        }
        let port = said.number_or_none("metrics.port").filter(|port| *port != listen.port());
        Metrics {
            enabled: said.flag("metrics.enabled"),
            listen: port.map(|port| SocketAddr::new(listen.ip(), port)),
            path,
            namespace,
        }
    }

    fn telemetry(&mut self) -> Telemetry {
        const KEY: &str = "telemetry.otlp_endpoint";
        let said = self.said;
        let endpoint = said.text(KEY).map(|text| text.trim_end_matches('/').to_string());
        let wanted = said.flag("telemetry.tracing_enabled");
        if let Some(endpoint) = &endpoint
            && !endpoint.starts_with("http://")
        {
            self.unfit(
                KEY,
                "an address such as `http://127.0.0.1:4318`; put a collector beside the server for TLS",
            );
        }
        if wanted && said.is_said("telemetry.tracing_enabled") && endpoint.is_none() {
            self.warnings.push(format!("`telemetry.tracing_enabled` has no effect: `{KEY}` is not set"));
        }
        Telemetry { otlp_endpoint: endpoint.filter(|_| wanted) }
    }
}

fn log(said: &Said) -> Log {
    let format = match said.text("log.format") {
        Some("json") => LogFormat::Json,
        _ => LogFormat::Console,
    };
    Log { format, level: said.text("log.level").unwrap_or("info").to_string() }
}

/// The journal, the savepoints, and one reader.
const CONNECTIONS_MIN: u32 = 3;

fn pool(said: &Said) -> Pool {
    let lifetime_mins: i64 = said.number("database.conn_max_lifetime_mins");
    Pool {
        connections_max: said.number::<u32>("database.max_open_conns").max(CONNECTIONS_MIN),
        idle_max: said.number("database.max_idle_conns"),
        lifetime_ms_max: (lifetime_mins > 0).then_some(lifetime_mins * 60_000),
    }
}

fn postgres_url(said: &Said, host: &str) -> SecretUrl {
    let part = |key: &str| escaped(said.text(key).unwrap_or_default());
    let user = match said.text("database.password") {
        Some(password) => format!("{}:{}", part("database.user"), escaped(password)),
        None => part("database.user"),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { escaped(host) };
    let port: u16 = said.number("database.port");
    let sslmode = said.text("database.sslmode").unwrap_or("disable");
    let files: String = ["sslrootcert", "sslcert", "sslkey"]
        .into_iter()
        .filter_map(|key| Some(format!("&{key}={}", escaped(said.text(&format!("database.{key}"))?))))
        .collect();
    let database = part("database.database");
    SecretUrl(format!("postgres://{user}@{host}:{port}/{database}?sslmode={sslmode}{files}"))
}

/// What stands between the signs of an address must not contain them.
fn escaped(text: &str) -> String {
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
    const TAKEN: [&str; 4] = ["/", "/health", "/healthz", "/readyz"];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.starts_with('/')
        && path.bytes().all(is_plain)
        && !TAKEN.contains(&path)
        && !path.starts_with("/api/")
        && !path.starts_with("/v1/")
}

fn is_metric_name(text: &str) -> bool {
    let begins_well = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins_well && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}
