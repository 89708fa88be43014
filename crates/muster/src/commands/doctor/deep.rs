//! `muster doctor --deep`: the whole database, verified against its own journal, without a server.
//!
//! Reads only. The server may go on meanwhile: all of it is read as of one moment.

use std::path::PathBuf;

use muster_core::State;
use muster_server::config::RawConfig;
use muster_server::server;
use muster_store::deep::{self, Damage};

use super::{Finding, bad, good, warn};
use crate::commands::config;
use crate::error::CliError;
use crate::units;

/// Damage listed one by one; the rest is counted.
const LISTED_MAX: usize = 1_000;

const RESTORE: &str = "stop the servers, keep a copy of the database, and restore it from a backup";
const RECOMPUTE: &str =
    "find out who changed it; restore the database, or the cell, to what the journal says";

/// Where the database is, in the words of `muster serve`.
#[derive(Debug, clap::Args)]
pub struct DeepArgs {
    /// Verify the whole database against its journal; reads the database itself, not a server
    #[arg(long)]
    pub deep: bool,
    /// With `--deep`: configuration file of the server, in YAML
    #[arg(long, value_name = "FILE", requires = "deep")]
    pub config: Option<PathBuf>,
    /// With `--deep`: data folder of the server [default: ./muster-data]
    #[arg(long, value_name = "DIR", requires = "deep")]
    pub data_dir: Option<PathBuf>,
    /// With `--deep`: `postgres://…` or `sqlite:PATH` [default: SQLite in the data folder]
    #[arg(long, value_name = "URL", requires = "deep")]
    pub database: Option<String>,
}

/// Everything that is not as it was written.
pub fn examine(args: &DeepArgs) -> Result<Vec<Finding>, CliError> {
    let config = config::load(flags(args), args.config.as_deref())?;
    let failed = |error: String| CliError::failed(format!("the database cannot be verified: {error}"));
    let store = server::store_config(&config).map_err(|error| failed(error.to_string()))?;
    let mut state = State::empty();
    let (mut damages, mut count) = (Vec::new(), 0_usize);
    let mut note = |damage: Damage| {
        count += 1;
        if damages.len() < LISTED_MAX {
            damages.push(damage);
        }
    };
    let examined = deep::examine(&store, &mut |entry| state.apply(&entry.event), &mut note)
        .map_err(|error| failed(error.to_string()))?;
    let mut findings: Vec<Finding> = damages.iter().map(finding).collect();
    if count > damages.len() {
        findings.push(bad("more", format!("{} more places differ", count - damages.len()), ""));
    }
    findings.extend(state.check().iter().map(|law| bad("laws", law.to_string(), RESTORE)));
    findings.extend(summary(&examined, count == 0));
    Ok(findings)
}

fn flags(args: &DeepArgs) -> RawConfig {
    let mut raw = RawConfig::default();
    if let Some(folder) = &args.data_dir {
        raw.flag("data_dir", "--data-dir", folder.display());
    }
    if let Some(url) = &args.database {
        raw.flag("database.url", "--database", url);
    }
    raw
}

fn finding(damage: &Damage) -> Finding {
    let found = format!("{} {}", damage.place(), damage.problem());
    match damage {
        Damage::Record { .. } => bad("journal", found, RESTORE),
        Damage::Savepoint { .. } => {
            warn("savepoint", found, "none: the next start reads more of the journal and saves again")
        }
        Damage::Cell { .. } | Damage::MissingRow { .. } | Damage::ExtraRow { .. } => {
            bad("tables", found, RECOMPUTE)
        }
    }
}

/// What was read, so that nobody takes an empty database for a whole one.
fn summary(examined: &deep::Examined, whole: bool) -> Vec<Finding> {
    let old = examined.records - examined.chained;
    let older =
        if old > 0 { format!(", {old} of them from before records were chained") } else { String::new() };
    let read = format!("{} read{older}", units::count(examined.records, "record"));
    match (whole, examined.compared) {
        (true, _) => vec![
            good("journal", read),
            good("tables", format!("{} as the journal says", units::count(examined.rows, "row"))),
        ],
        (false, true) => vec![good("journal", read)],
        (false, false) => vec![warn("tables", "not compared: the journal is damaged".to_string(), RESTORE)],
    }
}
