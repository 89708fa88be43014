//! Connection settings for PostgreSQL, and their notation as a URL. Names and defaults are those of specification
//! 004.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::config::Host;

use crate::error::StoreError;

/// Connection settings. Also parsed from
/// `postgres://user:password@host:port/database?sslmode=verify-full&sslrootcert=FILE`.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Host name, address, or the folder of a Unix socket.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Empty for none.
    pub password: String,
    /// Must exist.
    pub database: String,
    pub sslmode: SslMode,
    /// CA certificates in PEM that the server certificate is verified against; `system` for the CAs of this machine.
    pub sslrootcert: Option<PathBuf>,
    /// Client certificate, in PEM.
    pub sslcert: Option<PathBuf>,
    /// Private key of the client certificate, in PEM.
    pub sslkey: Option<PathBuf>,
    /// Maximum number of connections: one for the journal, one for savepoints, the others for readers.
    pub max_open_conns: usize,
    /// Idle reader connections that are kept open.
    pub max_idle_conns: usize,
    /// Age at which a reader connection is replaced; 0 for never.
    pub conn_max_lifetime_mins: u64,
}

/// Encryption of connections and verification of the server. As in libpq, connections over a Unix socket are never
/// encrypted.
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
    /// Like `VerifyCa`, and the certificate is for the host name of the connection.
    VerifyFull,
}

impl SslMode {
    /// Spelling in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            SslMode::Disable => "disable",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        }
    }
}

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
    /// Configuration of the driver; `name` is shown in `pg_stat_activity`.
    pub(crate) fn driver_config(&self, name: &str) -> tokio_postgres::Config {
        let mut config = tokio_postgres::Config::new();
        config
            .host(&self.host)
            .port(self.port)
            .user(&self.user)
            .dbname(&self.database)
            .application_name(name)
            .ssl_mode(self.driver_ssl_mode())
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(Duration::from_secs(15))
            .tcp_user_timeout(Duration::from_secs(30));
        if !self.password.is_empty() {
            config.password(&self.password);
        }
        config
    }

    /// Maximum number of reader connections: without those of the journal and the savepoints, at least one.
    pub(crate) fn readers_max(&self) -> usize {
        self.max_open_conns.saturating_sub(2).max(1)
    }

    fn driver_ssl_mode(&self) -> tokio_postgres::config::SslMode {
        use tokio_postgres::config::SslMode as Mode;
        match self.sslmode {
            // PostgreSQL has no TLS over Unix sockets.
            _ if self.host.starts_with('/') => Mode::Disable,
            SslMode::Disable => Mode::Disable,
            SslMode::Prefer => Mode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => Mode::Require,
        }
    }

    /// For messages.
    pub(crate) fn location(&self) -> String {
        format!("PostgreSQL database `{}` at {}:{}", self.database, self.host, self.port)
    }

    fn set_option(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        let number =
            || value.parse::<u64>().map_err(|_| StoreError::Misconfigured(format!("{key} `{value}` is not a number")));
        match key {
            "sslmode" => self.sslmode = value.parse()?,
            "sslrootcert" => self.sslrootcert = decode_path(value),
            "sslcert" => self.sslcert = decode_path(value),
            "sslkey" => self.sslkey = decode_path(value),
            "max_open_conns" => self.max_open_conns = number()? as usize,
            "max_idle_conns" => self.max_idle_conns = number()? as usize,
            "conn_max_lifetime_mins" => self.conn_max_lifetime_mins = number()?,
            _ => {
                return Err(StoreError::Misconfigured(format!("`{key}` is not a setting of a PostgreSQL URL")));
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
        // The driver parses these two, with all their notations and encodings.
        let (driver_pairs, option_pairs): (Vec<&str>, Vec<&str>) = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .partition(|pair| pair.starts_with("host=") || pair.starts_with("port="));
        for pair in option_pairs {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            config.set_option(key, value)?;
        }
        // Without the error of the driver, which may quote the URL with the password.
        let parsed: tokio_postgres::Config = format!("{address}?{}", driver_pairs.join("&"))
            .parse()
            .map_err(|_| StoreError::Misconfigured(format!("not a PostgreSQL URL; write `{URL_EXAMPLE}`")))?;
        config.copy_from_driver_config(&parsed);
        Ok(config)
    }
}

const URL_EXAMPLE: &str = "postgres://user:password@host:5432/database";

impl PostgresConfig {
    fn copy_from_driver_config(&mut self, parsed: &tokio_postgres::Config) {
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

/// Path in a URL, with percent-encoding resolved; `None` if it is empty.
fn decode_path(value: &str) -> Option<PathBuf> {
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

    fn from_str(name: &str) -> Result<SslMode, StoreError> {
        let refuse = |why: String| Err(StoreError::Misconfigured(why));
        match name {
            "disable" => Ok(SslMode::Disable),
            "allow" | "prefer" => Ok(SslMode::Prefer),
            "require" => Ok(SslMode::Require),
            "verify-ca" => Ok(SslMode::VerifyCa),
            "verify-full" => Ok(SslMode::VerifyFull),
            _ => refuse(format!(
                "`{name}` is not an sslmode; use `disable`, `prefer`, `require`, `verify-ca` or `verify-full`"
            )),
        }
    }
}

impl fmt::Debug for PostgresConfig {
    /// Without the password: settings are logged.
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
    fn a_url_can_set_every_option() {
        let url = "postgres://ada:s%40cret@db.example:6432/muster?sslmode=verify-full&sslrootcert=/etc/muster%20ca/root.crt&sslcert=c.pem&sslkey=k.pem&max_open_conns=9&max_idle_conns=2&conn_max_lifetime_mins=7";
        let config: PostgresConfig = url.parse().unwrap();
        let expected = PostgresConfig {
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
        assert_eq!(config, expected);
        assert!(!format!("{config:?}").contains("cret"));
    }

    #[test]
    fn a_host_that_is_a_path_means_a_unix_socket() {
        let config: PostgresConfig = "postgresql://ada@/muster?host=/run/pg&port=6000".parse().unwrap();
        assert_eq!((config.host.as_str(), config.port), ("/run/pg", 6000));
    }

    #[test]
    fn an_invalid_url_is_refused_without_showing_secrets() {
        for (url, part) in [
            ("postgres://ada@db/muster?sslmode=maybe", "not an sslmode"),
            ("postgres://ada@db/muster?max_open_conns=many", "not a number"),
            ("postgres://ada@db/muster?colour=blue", "`colour`"),
            ("mysql://secret@db/muster", "not a PostgreSQL URL"),
        ] {
            let message = url.parse::<PostgresConfig>().unwrap_err().to_string();
            assert!(message.contains(part) && !message.contains("secret"), "{message}");
        }
    }
}
