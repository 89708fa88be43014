//! The configuration of a server, from flags, environment variables, a YAML file and defaults.
//!
//! Each source fills a [`RawConfig`]. [`Config::load`] merges them: flags take precedence over `MUSTER_*` variables, those
//! over variables with compatibility names, those over the file, and the file over the defaults. The rest of the server
//! sees only the resolved [`Config`]. Nothing is opened or created here but the configuration file.

mod example;
mod file;
mod keys;
mod launcher;
mod merged;
mod problem;
mod resolve;
mod settings;
mod value;
mod variables;

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use muster_core::Settings;
use serde::Serialize;

pub use example::commented_keys;
use merged::MergedConfig;
pub(crate) use muster_core::nearest::nearest;
pub use problem::{ConfigError, FilePosition, Problem, ProblemKind, ValueSource};
pub use settings::override_setting;
use value::RawValue;

/// The resolved configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Name of this installation, for traces.
    pub environment: String,
    /// Address of HTTP.
    pub listen: SocketAddr,
    /// Port of gRPC, on the same host.
    pub grpc_port: GrpcPort,
    /// Folder of the database, certificates and tokens.
    pub data_dir: PathBuf,
    pub database: Database,
    /// File with the key that seals secrets; `None` for one in the data folder.
    pub secrets_key_file: Option<PathBuf>,
    /// How long a start waits for the database; `None` is for ever.
    pub start_timeout_ms: Option<i64>,
    /// Whether a new cluster may begin in a used data folder (`--new-cluster`). Never set by a file: it is for one start.
    pub new_cluster: bool,
    pub auth: AuthMode,
    /// `None` for plain HTTP.
    pub tls: Option<TlsConfig>,
    pub api: ApiConfig,
    /// Settings of the core; `Command::Configure` puts them into the state.
    pub settings: Settings,
    /// Longest pause between two planning rounds.
    pub scheduling_interval_ms: i64,
    pub agent: AgentConfig,
    pub agent_link: AgentLinkConfig,
    pub silence: SilenceConfig,
    pub power: PowerConfig,
    pub metrics: MetricsConfig,
    pub log: LogConfig,
    pub telemetry: TelemetryConfig,
    /// File of a simulated cluster to run in this process.
    pub cluster: Option<PathBuf>,
    /// Folder of policies that are applied at start and whenever a file changes.
    pub policies_dir: Option<PathBuf>,
    /// For the operator; no warning stops the start.
    pub warnings: Vec<String>,
    merged: MergedConfig,
}

/// Where gRPC is served, on the host of `listen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrpcPort {
    /// On the default port; on loopback, on a free port if that one is in use.
    Auto,
    Off,
    /// On this port; on a free port if it is 0.
    At(u16),
}

/// The link to the agents of other machines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentLinkConfig {
    pub listen: AgentLinkListen,
    /// `HOST:PORT` of the link on each server of the cluster, this one first; empty for the address it listens on.
    pub advertise: Vec<String>,
}

/// Where the agent link listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentLinkListen {
    /// On the default port, if the server runs no nodes itself.
    Auto,
    Off,
    At(SocketAddr),
}

/// The database of journal, savepoints and tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite {
        path: PathBuf,
    },
    /// A PostgreSQL server, which several servers may share.
    Postgres {
        /// `postgres://…`, with the password.
        url: SecretUrl,
        pool: PostgresPool,
    },
}

/// A URL that may hold a password; printing it hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

/// The connection pool of PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PostgresPool {
    pub connections_max: u32,
    /// Most connections that stay open while they are idle.
    pub idle_max: u32,
    /// Age at which a connection is replaced; `None` is never.
    pub lifetime_ms_max: Option<i64>,
}

/// How callers are authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Every caller on the loopback address is the administrator.
    Local,
    /// Every caller needs a token.
    Tokens,
}

/// The certificate of HTTPS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsConfig {
    /// Files that the site supplies.
    Files {
        /// Certificate chain in PEM.
        certificate: PathBuf,
        /// Its private key in PEM.
        key: PathBuf,
    },
    /// A certificate of the server's own CA, generated in the data folder.
    OwnCa,
}

/// Limits and allowed origins of the HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiConfig {
    /// Accepted host names of the Host header besides those of loopback.
    pub allowed_hosts: Vec<String>,
    pub cors: Cors,
    /// Requests per second and caller; `None` for no limit.
    pub rate_limit_rps: Option<u32>,
    /// Most open connections; `None` for as many as the descriptor limit of the process allows.
    pub connections_max: Option<u32>,
    /// Most open connections from one address; `None` for a quarter of all.
    pub connections_per_address_max: Option<u32>,
}

/// Web origins that may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cors {
    SameOrigin,
    /// The server's own origin and these.
    Origins(Vec<String>),
    /// All origins; only with tokens.
    Any,
}

/// The agent of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentConfig {
    /// Name of this node; `None` for the host name.
    pub node_id: Option<String>,
    /// Interval of heartbeats.
    pub heartbeat_ms: i64,
    /// Interval of readings of GPUs in use.
    pub metrics_ms: i64,
    /// Interval of readings of every GPU.
    pub health_check_ms: i64,
    /// How jobs are isolated from this machine and from each other.
    pub launcher: muster_agent::LauncherConfig,
}

/// After which silence a node is lost. The self-fence is one of the core's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SilenceConfig {
    pub suspect_after_ms: i64,
    pub suspect_margin_ms: i64,
    pub unreachable_after_ms: i64,
}

/// The power program of the site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PowerConfig {
    pub program: Option<PathBuf>,
    pub timeout_ms: i64,
    /// Unreachable nodes with jobs that may be requeued are fenced by the program.
    pub fences: bool,
}

/// How metrics are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    pub enabled: bool,
    /// A separate address, besides `Config::listen`.
    pub listen: Option<SocketAddr>,
    pub path: String,
    /// Prefix of the compatibility metrics.
    pub namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    pub format: LogFormat,
    /// Least severity: `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    Console,
    /// One JSON object per line.
    Json,
}

/// Export of traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetryConfig {
    /// Base address of an OTLP collector; `None` disables traces.
    pub otlp_endpoint: Option<String>,
}

/// One line of `muster config show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownKey {
    /// With dots between the levels.
    pub key: &'static str,
    /// As written, with secrets hidden; empty if nothing is set.
    pub value: String,
    /// `default`, a file with its line, a variable, or a flag.
    pub source: String,
    /// Description of the key.
    pub about: &'static str,
}

/// The values of one or several sources, before they are merged and checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RawConfig {
    entries: Vec<RawEntry>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct RawEntry {
    /// As written: the name of the key or an alias.
    key: &'static str,
    raw: RawValue,
    source: ValueSource,
}

impl RawConfig {
    /// Add the value of a command-line flag: `raw.flag("listen", "--listen", "127.0.0.1:9000")`. Panics at the start if the
    /// key is not in the table of keys.
    pub fn flag(&mut self, key: &'static str, flag: &str, value: impl fmt::Display) {
        self.set(key, RawValue::One(value.to_string()), ValueSource::Flag(flag.to_string()));
    }

    fn set(&mut self, key: &'static str, raw: RawValue, source: ValueSource) {
        self.entries.push(RawEntry { key, raw, source });
    }

    /// Warn once per section, however many of its keys appear.
    fn warn_inert(&mut self, name: &str, why: &str) {
        let warning = format!("`{name}` has no effect: {why}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn extend(&mut self, other: RawConfig) {
        self.entries.extend(other.entries);
        self.problems.extend(other.problems);
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

impl Config {
    /// The file with the key that seals secrets.
    pub fn secrets_key_path(&self) -> PathBuf {
        self.secrets_key_file.clone().unwrap_or_else(|| self.data_dir.join("secrets.key"))
    }

    /// Merge and resolve all sources. The defaults alone start a local server.
    ///
    /// `variables` is the environment, normally `std::env::vars()`.
    pub fn load(
        flags: RawConfig,
        variables: impl IntoIterator<Item = (String, String)>,
        file: Option<&Path>,
    ) -> Result<Config, ConfigError> {
        let mut raw = file.map(file::read).unwrap_or_default();
        raw.extend(variables::read(variables));
        raw.extend(flags);
        resolve::resolve(raw)
    }

    /// Every key with its value and the source of the value, for `muster config show`.
    pub fn show(&self) -> Vec<ShownKey> {
        self.merged.show()
    }
}

impl fmt::Display for ShownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_empty() { "-" } else { &self.value };
        write!(f, "{} = {value}  ({})", self.key, self.source)
    }
}

impl SecretUrl {
    /// The URL with its password.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&merged::without_password(&self.0))
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&merged::without_password(&self.0))
    }
}
