//! From raw arguments to resolved options: flags over variables over files over defaults.
//!
//! Commands see only what is in here; nothing else reads the environment.

mod address;
mod token;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use muster_server::identity::Secret;
use muster_server::tls::ca_path;

use crate::client::Client;
use crate::error::CliError;
pub use address::ServerAddress;

/// Where a server listens when nobody says anything.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:8080";
/// Folder of a server that was started here without further words.
const DEFAULT_DATA_DIR: &str = "./muster-data";

/// Flags that every verb takes, as they were written.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalArgs {
    /// Address of the server [env: MUSTER_SERVER] [default: http://127.0.0.1:8080]
    #[arg(long, global = true, value_name = "URL", help_heading = "Everywhere")]
    pub server: Option<String>,
    /// File that holds the token [env: MUSTER_TOKEN_FILE, or the token itself in MUSTER_TOKEN]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub token_file: Option<PathBuf>,
    /// Certificate authority of the server, in PEM [env: MUSTER_CA_FILE]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Everywhere")]
    pub ca_file: Option<PathBuf>,
    /// auto, always or never; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Everywhere")]
    #[arg(hide_possible_values = true)]
    pub color: When,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum When {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What the environment says, read once.
pub type Variables = BTreeMap<String, String>;

/// How to reach the server, resolved.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Where it is.
    pub server: ServerAddress,
    /// Who we are to it.
    pub token: Option<Secret>,
    /// Whose certificates to trust; the system's when `None`.
    pub ca_file: Option<PathBuf>,
}

/// Everything a command may know beyond its own arguments.
#[derive(Debug, Clone)]
pub struct Options {
    /// How to reach the server.
    pub connection: Connection,
    /// Whether standard output takes colours.
    pub color: bool,
    /// Whether standard output is a terminal.
    pub terminal: bool,
}

impl Options {
    /// Resolve the flags.
    pub fn resolve(args: GlobalArgs, variables: &Variables) -> Result<Options, CliError> {
        let terminal = std::io::stdout().is_terminal();
        let color = wants_color(args.color, variables, terminal);
        Ok(Options { connection: Connection::resolve(args, variables)?, color, terminal })
    }

    /// A client for the server.
    pub fn client(&self) -> Result<Client, CliError> {
        Client::new(&self.connection)
    }
}

impl Connection {
    /// Resolve the flags.
    pub fn resolve(args: GlobalArgs, variables: &Variables) -> Result<Connection, CliError> {
        let said = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
        let server = args.server.or_else(|| said("MUSTER_SERVER"));
        let server: ServerAddress = server.as_deref().unwrap_or(DEFAULT_SERVER).parse()?;
        let data_dir = PathBuf::from(said("MUSTER_DATA_DIR").unwrap_or_else(|| DEFAULT_DATA_DIR.to_string()));
        let token_file = args.token_file.or_else(|| said("MUSTER_TOKEN_FILE").map(PathBuf::from));
        let token = token::resolve(token_file, said("MUSTER_TOKEN"), &data_dir, &server)?;
        let named = args.ca_file.or_else(|| said("MUSTER_CA_FILE").map(PathBuf::from));
        let ca_file =
            named.or_else(|| Some(ca_path(&data_dir)).filter(|file| server.loopback && file.is_file()));
        Ok(Connection { server, token, ca_file })
    }
}

fn wants_color(when: When, variables: &Variables, terminal: bool) -> bool {
    let set = |name: &str| variables.get(name).is_some_and(|value| !value.is_empty());
    let dumb = variables.get("TERM").is_some_and(|term| term == "dumb");
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => terminal && !dumb && !set("NO_COLOR"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn flags_win_over_variables_over_defaults() {
        let resolve = |server: Option<&str>, pairs: &[(&str, &str)]| {
            let args = GlobalArgs { server: server.map(str::to_string), ..GlobalArgs::default() };
            Connection::resolve(args, &variables(pairs)).unwrap().server.text
        };
        assert_eq!(resolve(None, &[]), DEFAULT_SERVER);
        assert_eq!(resolve(None, &[("MUSTER_SERVER", "")]), DEFAULT_SERVER);
        assert_eq!(resolve(None, &[("MUSTER_SERVER", "http://a:1")]), "http://a:1");
        assert_eq!(resolve(Some("http://b:2"), &[("MUSTER_SERVER", "http://a:1")]), "http://b:2");
    }

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        assert!(wants_color(When::Auto, &variables(&[]), true));
        assert!(!wants_color(When::Auto, &variables(&[]), false));
        assert!(!wants_color(When::Auto, &variables(&[("NO_COLOR", "1")]), true));
        assert!(!wants_color(When::Auto, &variables(&[("TERM", "dumb")]), true));
        assert!(wants_color(When::Always, &variables(&[("NO_COLOR", "1")]), false));
    }
}
