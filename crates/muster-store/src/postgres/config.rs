//! Where the PostgreSQL server is. The words and defaults are those of seed 004.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::Host;

use crate::error::StoreError;

/// How to reach a PostgreSQL server. Also read from `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=FILE`.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Host name, address, or the folder of a unix socket.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password; empty for none.
    pub password: String,
    /// Database; it must exist.
    pub database: String,
    /// Whether each connection is encrypted, and how the server is verified.
    pub sslmode: SslMode,
    /// Certificates of the CAs that the server's certificate is verified against, in PEM; `system` for those of this
    /// machine.
    pub sslrootcert: Option<PathBuf>,
    /// Certificate of this client, in PEM.
    pub sslcert: Option<PathBuf>,
    /// Its private key, in PEM.
    pub sslkey: Option<PathBuf>,
    /// Most connections at once. The journal has one, savepoints have one, the others are for reading.
    pub max_open_conns: usize,
    /// Connections kept open while nobody reads.
    pub max_idle_conns: usize,
    /// A connection for reading is replaced when it is this old; 0 is never.
    pub conn_max_lifetime_mins: u64,
}

/// Whether each connection is encrypted, and how the server is verified. As in libpq, connections over a unix socket
/// are never encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Never encrypted.
    #[default]
    Disable,
    /// Encrypted if the server offers it; the server is not verified.
    Prefer,
    /// Encrypted. The server is verified only if `sslrootcert` is set, as by `verify-ca`.
    Require,
    /// Encrypted, and the certificate of the server is signed by a CA in `sslrootcert`.
    VerifyCa,
    /// The same, and the certificate is for the host name of the connection.
    VerifyFull,
}

impl SslMode {
    /// As it is written in a URL.
    pub fn word(self) -> &'static str {
        match self {
            SslMode::Disable => "disable",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        }
    }
}

/// A server that does not answer in this time is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Default for PostgresConfig {
    fn default() -> PostgresConfig {
        PostgresConfig {
            host: "localhost".to_string(),
            port: 5432,
            user: "postgres".to_string(),
            password: "postgres".to_string(),
            database: "gpu_scheduler".to_string(),
            sslmode: SslMode::Disable,
            sslrootcert: None,
            sslcert: None,
            sslkey: None,
            max_open_conns: 25,
            max_idle_conns: 5,
            conn_max_lifetime_mins: 30,
        }
    }
}

impl PostgresConfig {
    /// The same in the words of the driver; `name` is shown in `pg_stat_activity`.
    pub(crate) fn driver(&self, name: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config
            .host(&self.host)
            .port(self.port)
            .user(&self.user)
            .dbname(&self.database)
            .application_name(name)
            .ssl_mode(self.driver_mode())
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(Duration::from_secs(15))
            .tcp_user_timeout(Duration::from_secs(30));
        if !self.password.is_empty() {
            config.password(&self.password);
        }
        config
    }

    /// Connections for reading: those that the journal and the savepoints leave, at least one.
    pub(crate) fn readers_max(&self) -> usize {
        self.max_open_conns.saturating_sub(2).max(1)
    }

    fn driver_mode(&self) -> tokio_postgres::config::SslMode {
        use tokio_postgres::config::SslMode as Mode;
        match self.sslmode {
            // A unix socket, where PostgreSQL speaks no TLS.
            _ if self.host.starts_with('/') => Mode::Disable,
            SslMode::Disable => Mode::Disable,
            SslMode::Prefer => Mode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Mode::Require,
        }
    }

    /// Where it is, for messages.
    pub(crate) fn place(&self) -> String {
        format!("PostgreSQL database `{}` at {}:{}", self.database, self.host, self.port)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| StoreError::Misconfigured(format!("{key} `{value}` is not a number")))
        };
        match key {
            "sslmode" => self.sslmode = value.parse()?,
            "sslrootcert" => self.sslrootcert = file(value),
            "sslcert" => self.sslcert = file(value),
            "sslkey" => self.sslkey = file(value),
            "max_open_conns" => self.max_open_conns = number()? as usize,
            "max_idle_conns" => self.max_idle_conns = number()? as usize,
            "conn_max_lifetime_mins" => self.conn_max_lifetime_mins = number()?,
            _ => {
                return Err(StoreError::Misconfigured(format!(
                    "`{key}` is not a setting of a PostgreSQL URL"
                )));
            }
        }
        Ok(())
    }
}

impl FromStr for PostgresConfig {
    type Err = StoreError;

    fn from_str(url: &str) -> Result<PostgresConfig, StoreError> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut config = PostgresConfig { password: String::new(), ..PostgresConfig::default() };
        // The driver knows these two, in any spelling and encoding.
        let (known, ours): (Vec<&str>, Vec<&str>) = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .partition(|pair| pair.starts_with("host=") || pair.starts_with("port="));
        for pair in ours {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            config.set(key, value)?;
        }
        // The error of the driver may quote the URL, and with it the password.
        let parsed: tokio_postgres::Config = format!("{address}?{}", known.join("&"))
            .parse()
            .map_err(|_| StoreError::Misconfigured(format!("not a PostgreSQL URL; write `{EXAMPLE}`")))?;
        config.take(&parsed);
        Ok(config)
    }
}

const EXAMPLE: &str = "postgres://user:password@host:5432/database";

impl PostgresConfig {
    fn take(&mut self, parsed: &tokio_postgres::Config) {
        match parsed.get_hosts().first() {
            Some(Host::Tcp(host)) => self.host.clone_from(host),
            Some(Host::Unix(folder)) => self.host = folder.display().to_string(),
            None => {}
        }
        self.port = parsed.get_ports().first().copied().unwrap_or(self.port);
        if let Some(user) = parsed.get_user() {
            self.user = user.to_string();
        }
        if let Some(password) = parsed.get_password() {
            self.password = String::from_utf8_lossy(password).into_owned();
        }
        if let Some(database) = parsed.get_dbname() {
            self.database = database.to_string();
        }
    }
}

/// The file that a setting of a URL names, with its `%20` and the like resolved.
fn file(value: &str) -> Option<PathBuf> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let code = more.get(..2).filter(|_| first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let decoded = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(decoded.unwrap_or(first));
        rest = if decoded.is_some() { &more[2..] } else { more };
    }
    let path = String::from_utf8_lossy(&bytes).into_owned();
    Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty())
}

impl FromStr for SslMode {
    type Err = StoreError;

    fn from_str(word: &str) -> Result<SslMode, StoreError> {
        let refuse = |why: String| Err(StoreError::Misconfigured(why));
        match word {
            "disable" => Ok(SslMode::Disable),
            "allow" | "prefer" => Ok(SslMode::Prefer),
            "require" => Ok(SslMode::Require),
            "verify-ca" => Ok(SslMode::VerifyCa),
            "verify-full" => Ok(SslMode::VerifyFull),
            _ => refuse(format!(
                "`{word}` is not an sslmode; use `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"
            )),
        }
    }
}

impl fmt::Debug for PostgresConfig {
    /// Without the password: settings end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("database", &self.database)
            .field("sslmode", &self.sslmode)
            .field("sslrootcert", &self.sslrootcert)
            .field("sslcert", &self.sslcert)
            .field("sslkey", &self.sslkey)
            .field("max_open_conns", &self.max_open_conns)
            .field("max_idle_conns", &self.max_idle_conns)
            .field("conn_max_lifetime_mins", &self.conn_max_lifetime_mins)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_all_there_is_to_say() {
        let url = "postgres://ada:s%40cret@db.example:6432/muster?sslmode=verify-full&sslrootcert=/etc/muster%20ca/root.crt&sslcert=c.pem&sslkey=k.pem&max_open_conns=9&max_idle_conns=2&conn_max_lifetime_mins=7";
        let config: PostgresConfig = url.parse().unwrap();
        let wanted = PostgresConfig {
            host: "db.example".to_string(),
            port: 6432,
            user: "ada".to_string(),
            password: "s@cret".to_string(),
            database: "muster".to_string(),
            sslmode: SslMode::VerifyFull,
            sslrootcert: Some("/etc/muster ca/root.crt".into()),
            sslcert: Some("c.pem".into()),
            sslkey: Some("k.pem".into()),
            max_open_conns: 9,
            max_idle_conns: 2,
            conn_max_lifetime_mins: 7,
        };
        assert_eq!(config, wanted);
        assert!(!format!("{config:?}").contains("cret"));
    }

    #[test]
    fn a_unix_socket_is_a_folder() {
        let config: PostgresConfig = "postgresql://ada@/muster?host=/run/pg&port=6000".parse().unwrap();
        assert_eq!((config.host.as_str(), config.port), ("/run/pg", 6000));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (url, word) in [
            ("postgres://ada@db/muster?sslmode=maybe", "not an sslmode"),
            ("postgres://ada@db/muster?max_open_conns=many", "not a number"),
            ("postgres://ada@db/muster?colour=blue", "`colour`"),
            ("mysql://secret@db/muster", "not a PostgreSQL URL"),
        ] {
            let said = url.parse::<PostgresConfig>().unwrap_err().to_string();
            assert!(said.contains(word) && !said.contains("secret"), "{said}");
        }
    }
}
