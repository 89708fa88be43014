//! The configuration of a server: what it would be, and who says so.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_server::config::{Config, RawConfig, Shown};
use serde::Serialize;

use super::{Code, Ending};
use crate::error::CliError;
use crate::options::Options;
use crate::output::{self, Column, ListArgs};

/// `muster config …`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Show every key, its value, and where the value comes from
    Show(KeysArgs),
    /// Check a file without starting anything
    Check(CheckArgs),
}

/// `muster config show`.
#[derive(Debug, Args)]
pub struct KeysArgs {
    /// The file; without one, variables and defaults
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Only keys that somebody has set
    #[arg(long)]
    set: bool,
    #[command(flatten)]
    list: ListArgs,
}

/// `muster config check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE")]
    config: PathBuf,
}

/// All of them, as machines read it.
#[derive(Serialize)]
struct Whole<'a> {
    keys: &'a [Shown],
}

const COLUMNS: [Column<Shown>; 4] = [
    Column::new("KEY", |shown| shown.key.into()),
    Column::new("VALUE", |shown| shown.value.as_str().into()),
    Column::new("SOURCE", |shown| shown.source.as_str().into()),
    Column::wide("ABOUT", |shown| shown.about.into()),
];

/// Do one of them.
pub fn run(verb: Verb, options: &Options) -> Ending {
    match verb {
        Verb::Show(args) => {
            let config = load(RawConfig::default(), args.config.as_deref())?;
            let wanted = |shown: &Shown| !args.set || shown.source != "default";
            let shown: Vec<Shown> = config.show().into_iter().filter(wanted).collect();
            output::list(&args.list, options.color, &COLUMNS, shown.clone(), &Whole { keys: &shown })?;
        }
        Verb::Check(args) => {
            load(RawConfig::default(), Some(&args.config))?;
            output::talk(&format!("`{}` is in order", args.config.display()));
        }
    }
    Ok(Code::DONE)
}

/// Resolve the configuration, and say what the person should know.
pub fn load(flags: RawConfig, file: Option<&std::path::Path>) -> Result<Config, CliError> {
    let config =
        Config::load(flags, std::env::vars(), file).map_err(|error| CliError::usage(error.to_string()))?;
    for warning in &config.warnings {
        output::talk(&format!("warning: {warning}"));
    }
    Ok(config)
}
