//! Where the PostgreSQL server is. The words and defaults are those of seed 004.

use crate::error::StoreError;

/// How to reach a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// Host name, address, or the folder of a unix socket.
    pub host: String,
    /// Port.
    pub port: u16,
    /// User.
    pub user: String,
    /// Password; empty for none.
    pub password: String,
    /// Database.
    pub database: String,
    /// Whether the connection must be encrypted.
    pub sslmode: SslMode,
    /// Most connections at once, the writer's not counted.
    pub max_open_conns: usize,
    /// Connections kept open while nobody reads.
    pub max_idle_conns: usize,
    /// A connection is replaced when it is this old.
    pub conn_max_lifetime_mins: u64,
}

/// Whether the connection must be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SslMode {
    /// Never.
    #[default]
    Disable,
    /// If the server offers it; for now the same as never.
    Prefer,
}

impl Default for PostgresConfig {
    fn default() -> PostgresConfig {
        PostgresConfig {
            host: "localhost".to_string(),
            port: 5432,
            user: "postgres".to_string(),
            password: "postgres".to_string(),
            database: "gpu_scheduler".to_string(),
            sslmode: SslMode::Disable,
            max_open_conns: 25,
            max_idle_conns: 5,
            conn_max_lifetime_mins: 30,
        }
    }
}

impl std::str::FromStr for SslMode {
    type Err = StoreError;

    fn from_str(word: &str) -> Result<SslMode, StoreError> {
        match word {
            "disable" => Ok(SslMode::Disable),
            "prefer" | "allow" => Ok(SslMode::Prefer),
            "require" | "verify-ca" | "verify-full" => Err(StoreError::Misconfigured(format!(
                "sslmode `{word}` is not supported yet: use `disable` and keep the connection on a trusted network or a unix socket"
            ))),
            _ => Err(StoreError::Misconfigured(format!(
                "`{word}` is not an sslmode; use `disable` or `prefer`"
            ))),
        }
    }
}
