//! How to reach the server: its address, the token, and the certificate authority to trust.
//!
//! Each is resolved from flags, then environment variables, then the data folder of a server on this machine.

mod address;
mod token;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use muster_server::identity::Secret;
use muster_server::tls::ca_path;

use crate::error::CliError;
pub use address::ServerAddress;

/// The address of a server with the default configuration.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// The data folder of a server that was started in this directory with the default configuration.
const DEFAULT_DATA_DIR: &str = "./muster-data";

/// The flags that describe the connection, before they are resolved.
#[derive(Debug, Clone, Default, Args)]
pub struct ConnectionArgs {
    /// Address of the server [env: MUSTER_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub server: Option<String>,
    /// File that holds the token [env: MUSTER_TOKEN_FILE, or the token itself in MUSTER_TOKEN]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub token_file: Option<PathBuf>,
    /// Certificate authority of the server, in PEM [env: MUSTER_CA_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub ca_file: Option<PathBuf>,
}

/// Environment variables, read once.
pub type Variables = BTreeMap<String, String>;

/// A resolved connection.
#[derive(Debug, Clone)]
pub struct Connection {
    pub server: ServerAddress,
    pub token: Option<Secret>,
    /// The certificate authority to trust; the system's authorities if `None`.
    pub ca_file: Option<PathBuf>,
}

impl Connection {
    /// Flags take precedence over variables, and variables over defaults. An empty variable counts as unset.
    pub fn resolve(args: ConnectionArgs, variables: &Variables) -> Result<Connection, CliError> {
        let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let server = args.server.or_else(|| variable("MUSTER_SERVER"));
        let server: ServerAddress = server.as_deref().unwrap_or(DEFAULT_SERVER).parse()?;
        let data_dir = PathBuf::from(variable("MUSTER_DATA_DIR").unwrap_or_else(|| DEFAULT_DATA_DIR.to_string()));
        let token_file = args.token_file.or_else(|| variable("MUSTER_TOKEN_FILE").map(PathBuf::from));
        let token = token::resolve(token_file, variable("MUSTER_TOKEN"), &data_dir, &server)?;
        let named = args.ca_file.or_else(|| variable("MUSTER_CA_FILE").map(PathBuf::from));
        let ca_file = named.or_else(|| Some(ca_path(&data_dir)).filter(|file| server.loopback && file.is_file()));
        Ok(Connection { server, token, ca_file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_variables_over_defaults() {
        let resolve = |server: Option<&str>, variables: &[(&str, &str)]| {
            let args = ConnectionArgs { server: server.map(str::to_string), ..ConnectionArgs::default() };
            let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            Connection::resolve(args, &variables.collect()).unwrap().server.text
        };
        assert_eq!(resolve(None, &[]), DEFAULT_SERVER);
        assert_eq!(resolve(None, &[("MUSTER_SERVER", "")]), DEFAULT_SERVER);
        assert_eq!(resolve(None, &[("MUSTER_SERVER", "http://a:1")]), "http://a:1");
        assert_eq!(resolve(Some("http://b:2"), &[("MUSTER_SERVER", "http://a:1")]), "http://b:2");
    }
}
