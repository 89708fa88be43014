//! `muster doctor --deep`: the whole database, verified against its own journal, without a server.
//!
//! Reads only. The server may go on meanwhile: all of it is read as of one moment.

use std::path::PathBuf;

use muster_core::State;
use muster_server::config::RawConfig;
use muster_server::server;
use muster_store::verify::{self, Corruption};

use super::{Finding, fail_finding, ok_finding, warn_finding};
use crate::commands::config;
use crate::error::CliError;
use crate::units;

/// Damage listed one by one; the rest is counted.
const DAMAGE_LISTED_MAX: usize = 1_000;

const RESTORE_HINT: &str = "stop the servers, keep a copy of the database, and restore it from a backup";
const TABLES_HINT: &str =
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
pub fn verify_database(args: &DeepArgs) -> Result<Vec<Finding>, CliError> {
    let config = config::load_config(config_flags(args), args.config.as_deref())?;
    let failed = |error: String| CliError::failed(format!("the database cannot be verified: {error}"));
    let store = server::store_config(&config).map_err(|error| failed(error.to_string()))?;
    let mut state = State::empty();
    let (mut damages, mut count) = (Vec::new(), 0_usize);
    let mut note = |damage: Corruption| {
        count += 1;
        if damages.len() < DAMAGE_LISTED_MAX {
            damages.push(damage);
        }
    };
    let examined = verify::verify_database(&store, &mut |entry| state.apply(&entry.event), &mut note)
        .map_err(|error| failed(error.to_string()))?;
    let mut findings: Vec<Finding> = damages.iter().map(damage_finding).collect();
    if count > damages.len() {
        findings.push(fail_finding("more", format!("{} more places differ", count - damages.len()), ""));
    }
    findings.extend(state.check().iter().map(|law| fail_finding("laws", law.to_string(), RESTORE_HINT)));
    findings.extend(summary_findings(&examined, count == 0));
    Ok(findings)
}

fn config_flags(args: &DeepArgs) -> RawConfig {
    let mut raw = RawConfig::default();
    if let Some(folder) = &args.data_dir {
        raw.flag("data_dir", "--data-dir", folder.display());
    }
    if let Some(url) = &args.database {
        raw.flag("database.url", "--database", url);
    }
    raw
}

fn damage_finding(damage: &Corruption) -> Finding {
    let found = format!("{} {}", damage.location(), damage.problem());
    match damage {
        Corruption::Record { .. } => fail_finding("journal", found, RESTORE_HINT),
        Corruption::Savepoint { .. } => {
            warn_finding("savepoint", found, "none: the next start reads more of the journal and saves again")
        }
        Corruption::Cell { .. } | Corruption::MissingRow { .. } | Corruption::ExtraRow { .. } => {
            fail_finding("tables", found, TABLES_HINT)
        }
    }
}

/// What was read, so that nobody takes an empty database for a whole one.
fn summary_findings(examined: &verify::VerificationReport, whole: bool) -> Vec<Finding> {
    let old = examined.records - examined.chained_records;
    let older =
        if old > 0 { format!(", {old} of them from before records were chained") } else { String::new() };
    let read = format!("{} read{older}", units::count_text(examined.records, "record"));
    match (whole, examined.tables_compared) {
        (true, _) => vec![
            ok_finding("journal", read),
            ok_finding("tables", format!("{} as the journal says", units::count_text(examined.rows_compared, "row"))),
        ],
        (false, true) => vec![ok_finding("journal", read)],
        (false, false) => vec![warn_finding("tables", "not compared: the journal is damaged".to_string(), RESTORE_HINT)],
    }
}
