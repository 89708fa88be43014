//! `muster config`: the configuration a server would start with, and the source of each value.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_server::config::{Config, RawConfig, ShownKey};
use serde::Serialize;

use super::{CommandResult, ExitStatus};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Column, ListArgs};

/// `muster config …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show every key, its value, and where the value comes from
    Show(ConfigShowArgs),
    /// Check a configuration file without starting a server
    Check(ConfigCheckArgs),
}

/// `muster config show`.
#[derive(Debug, Args)]
pub struct ConfigShowArgs {
    /// Configuration file [default: environment variables and defaults only]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Show only keys that are set by a file, variable or flag
    #[arg(long)]
    set: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster config check`.
#[derive(Debug, Args)]
pub struct ConfigCheckArgs {
    /// Configuration file
    #[arg(value_name = "FILE")]
    config: PathBuf,
}

/// The output of `-o json`.
#[derive(Serialize)]
struct ConfigReport<'a> {
    keys: &'a [ShownKey],
}

const COLUMNS: [Column<ShownKey>; 4] = [
    Column::new("KEY", |shown| shown.key.into()),
    Column::new("VALUE", |shown| shown.value.as_str().into()),
    Column::new("SOURCE", |shown| shown.source.as_str().into()),
    Column::wide("ABOUT", |shown| shown.about.into()),
];

pub fn run(verb: Verb, options: &Options) -> CommandResult {
    match verb {
        Verb::Show(args) => {
            let config = load_config(RawConfig::default(), args.config.as_deref())?;
            let selected = |shown: &ShownKey| !args.set || shown.source != "default";
            let shown: Vec<ShownKey> = config.show().into_iter().filter(selected).collect();
            output::list(&args.list, options.color, &COLUMNS, shown.clone(), &ConfigReport { keys: &shown })?;
        }
        Verb::Check(args) => {
            load_config(RawConfig::default(), Some(&args.config))?;
            output::print_stderr(&format!("`{}` is valid", args.config.display()));
        }
    }
    Ok(ExitStatus::SUCCESS)
}

/// Resolves the configuration and prints its warnings.
pub fn load_config(flags: RawConfig, file: Option<&std::path::Path>) -> Result<Config, CliError> {
    let config = Config::load(flags, std::env::vars(), file).map_err(|error| CliError::usage(error.to_string()))?;
    for warning in &config.warnings {
        output::print_stderr(&format!("warning: {warning}"));
    }
    Ok(config)
}
