//! The configuration: what flags, variables and a file say, and what the server makes of it.
//!
//! A source fills a [`RawConfig`]; [`Config::load`] lays flags over `MUSTER_*` variables over the seeds'
//! variables over the file over the defaults, and everything behind this door sees only the resolved
//! [`Config`]. Nothing is opened or created here but the file itself.

mod file;
mod keys;
mod problem;
mod resolve;
mod said;
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

pub(crate) use muster_core::nearest::nearest;
pub use problem::{ConfigError, Mark, Place, Problem, Wrong};
use said::Said;
pub use settings::amend;
use value::Raw;

/// Everything the server needs to know before it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// A name for this installation.
    pub environment: String,
    /// Where HTTP is served.
    pub listen: SocketAddr,
    /// Where gRPC is served, on the same host.
    pub grpc_listen: SocketAddr,
    /// Folder of the database, certificates and tokens.
    pub data_dir: PathBuf,
    /// Where the journal lives.
    pub database: Database,
    /// How long a start waits for the database; `None` is for ever.
    pub start_timeout_ms: Option<i64>,
    /// Whether a new cluster may begin in a used data folder (`--new-cluster`). Never set by a file: it is for one start.
    pub new_cluster: bool,
    /// Who may ask.
    pub auth: AuthMode,
    /// How connections are encrypted; `None` for plain HTTP.
    pub tls: Option<Tls>,
    /// What the HTTP door lets in.
    pub api: Api,
    /// What the planner and the guards read. Enters the state by `Command::Configure`.
    pub settings: Settings,
    /// Longest pause between two plans.
    pub scheduling_interval_ms: i64,
    /// How the agent of this machine behaves.
    pub agent: Agent,
    /// What is told to Prometheus.
    pub metrics: Metrics,
    /// How log lines look.
    pub log: Log,
    /// Where traces go.
    pub telemetry: Telemetry,
    /// A simulated cluster to run.
    pub cluster: Option<PathBuf>,
    /// A folder of policies to keep in force.
    pub policies_dir: Option<PathBuf>,
    /// What the person who starts the server should know; nothing of it stops the start.
    pub warnings: Vec<String>,
    said: Said,
}

/// Where the journal lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    /// One file on this machine.
    Sqlite {
        /// Which.
        path: PathBuf,
    },
    /// A PostgreSQL server, which several of us may share.
    Postgres {
        /// `postgres://…`, with the password.
        url: SecretUrl,
        /// How many connections.
        pool: Pool,
    },
}

/// An address that may hold a password, and so never prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretUrl(String);

/// How connections to PostgreSQL are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Most at once.
    pub connections_max: u32,
    /// Most kept open for later.
    pub idle_max: u32,
    /// Age at which one is replaced; `None` is never.
    pub lifetime_ms_max: Option<i64>,
}

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Everybody who reaches the loopback address is the administrator.
    Local,
    /// Whoever brings a token.
    Tokens,
}

/// How connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tls {
    /// With a certificate that the site brings.
    Files {
        /// Certificate chain in PEM.
        certificate: PathBuf,
        /// Its private key in PEM.
        key: PathBuf,
    },
    /// With a certificate from our own CA, made in the data folder.
    OwnCa,
}

/// What the HTTP door lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// Names beside the loopback ones by which we may be called.
    pub allowed_hosts: Vec<String>,
    /// Which web pages may call.
    pub cors: Cors,
    /// Requests per second and caller; `None` is without limit.
    pub rate_limit_rps: Option<u32>,
    /// Most open connections; `None` for what the descriptors of the process allow.
    pub connections_max: Option<u32>,
    /// Most open connections from one address; `None` for a quarter of all.
    pub connections_per_address_max: Option<u32>,
}

/// Which web pages may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cors {
    /// Our own.
    SameOrigin,
    /// Our own and these.
    Origins(Vec<String>),
    /// All; only with tokens.
    Any,
}

/// How the agent of this machine behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Name of this node; the host name when `None`.
    pub node_id: Option<String>,
    /// Pause between two signs of life.
    pub heartbeat_ms: i64,
    /// Pause between two readings of the GPUs.
    pub metrics_ms: i64,
    /// Pause between two health checks.
    pub health_check_ms: i64,
    /// Program that runs images.
    pub container_runtime: String,
}

/// What is told to Prometheus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metrics {
    /// Whether at all.
    pub enabled: bool,
    /// An address of their own, beside `listen`.
    pub listen: Option<SocketAddr>,
    /// Their path.
    pub path: String,
    /// Prefix of the names that the seed promised.
    pub namespace: String,
}

/// How log lines look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// For eyes or for machines.
    pub format: LogFormat,
    /// Least severity: `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
}

/// For whom log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For eyes.
    Console,
    /// One JSON object per line.
    Json,
}

/// Where traces go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Telemetry {
    /// Base address of an OTLP collector; `None` makes no traces.
    pub otlp_endpoint: Option<String>,
}

/// One line of `muster config show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// With dots between the levels.
    pub key: &'static str,
    /// As written, secrets hidden; empty when nothing is set.
    pub value: String,
    /// `default`, a file with its line, a variable, or a flag.
    pub source: String,
    /// What it means.
    pub about: &'static str,
}

/// What one or several sources say. Nothing in it has been checked against anything else.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RawConfig {
    words: Vec<Word>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Word {
    key: &'static str,
    raw: Raw,
    place: Place,
}

impl RawConfig {
    /// Note what the command line says: `raw.flag("listen", "--listen", "127.0.0.1:9000")`. The key is one of the
    /// table; naming another is a bug and stops the first start that tries.
    pub fn flag(&mut self, key: &'static str, flag: &str, value: impl fmt::Display) {
        self.say(key, Raw::One(value.to_string()), Place::Flag(flag.to_string()));
    }

    fn say(&mut self, key: &'static str, raw: Raw, place: Place) {
        self.words.push(Word { key, raw, place });
    }

    /// Said once for a whole section, however many of its keys appear.
    fn warn_inert(&mut self, name: &str, why: &str) {
        let warning = format!("`{name}` has no effect: {why}");
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn add(&mut self, other: RawConfig) {
        self.words.extend(other.words);
        self.problems.extend(other.problems);
        for warning in other.warnings {
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}

impl Config {
    /// Resolve what all sources say. Without a file and without flags the defaults start a server.
    ///
    /// `variables` is the environment, normally `std::env::vars()`.
    pub fn load(
        flags: RawConfig,
        variables: impl IntoIterator<Item = (String, String)>,
        file: Option<&Path>,
    ) -> Result<Config, ConfigError> {
        let mut raw = file.map(file::read).unwrap_or_default();
        raw.add(variables::read(variables));
        raw.add(flags);
        resolve::resolve(raw)
    }

    /// Every key, its value and who set it, for `muster config show`.
    pub fn show(&self) -> Vec<Shown> {
        self.said.show()
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.value.is_empty() { "-" } else { &self.value };
        write!(f, "{} = {value}  ({})", self.key, self.source)
    }
}

impl SecretUrl {
    /// With the password, to connect.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&said::without_password(&self.0))
    }
}

impl fmt::Display for SecretUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&said::without_password(&self.0))
    }
}
