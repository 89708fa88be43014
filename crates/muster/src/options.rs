//! The options of a run, resolved: flags take precedence over environment variables, and those over defaults.
//!
//! Commands see only these options and their own arguments; the environment is read nowhere else.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};

use crate::client::Client;
use crate::connection::{Connection, ConnectionArgs, Variables};
use crate::error::CliError;

/// The flags of every verb, before they are resolved.
#[derive(Debug, Clone, Default, Args)]
pub struct GlobalArgs {
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// auto, always or never; NO_COLOR is honoured
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Everywhere")]
    #[arg(hide_possible_values = true)]
    pub color: ColorMode,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ColorMode {
    /// On a terminal.
    #[default]
    Auto,
    /// Also where the output is redirected.
    Always,
    Never,
}

/// Everything a command may know beyond its own arguments.
#[derive(Debug, Clone)]
pub struct Options {
    pub connection: Connection,
    /// Whether standard output takes colours.
    pub color: bool,
    /// Whether standard output is a terminal.
    pub terminal: bool,
}

impl Options {
    pub fn resolve(args: GlobalArgs, variables: &Variables) -> Result<Options, CliError> {
        let terminal = std::io::stdout().is_terminal();
        let color = wants_color(args.color, variables, terminal);
        Ok(Options { connection: Connection::resolve(args.connection, variables)?, color, terminal })
    }

    /// A client for the server of these options.
    pub fn client(&self) -> Result<Client, CliError> {
        Client::new(&self.connection)
    }
}

fn wants_color(when: ColorMode, variables: &Variables, terminal: bool) -> bool {
    let is_set = |name: &str| variables.get(name).is_some_and(|value| !value.is_empty());
    let dumb = variables.get("TERM").is_some_and(|term| term == "dumb");
    match when {
        ColorMode::Always => true,
        ColorMode::Never => false,
        ColorMode::Auto => terminal && !dumb && !is_set("NO_COLOR"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn colours_follow_the_flag_the_terminal_and_no_color() {
        assert!(wants_color(ColorMode::Auto, &variables(&[]), true));
        assert!(!wants_color(ColorMode::Auto, &variables(&[]), false));
        assert!(!wants_color(ColorMode::Auto, &variables(&[("NO_COLOR", "1")]), true));
        assert!(!wants_color(ColorMode::Auto, &variables(&[("TERM", "dumb")]), true));
        assert!(wants_color(ColorMode::Always, &variables(&[("NO_COLOR", "1")]), false));
    }
}
