//! `muster doctor --deep`: verifies the whole database against its journal, without a server.
//!
//! Read-only. A server may run meanwhile: the database is read as of one moment.

use std::path::PathBuf;

use muster_core::State;
use muster_server::config::RawConfig;
use muster_server::server;
use muster_store::verify::{self, Corruption};

use super::{Finding, fail_finding, ok_finding, warn_finding};
use crate::commands::config;
use crate::error::CliError;
use crate::units;

/// Findings listed one by one; the rest is counted.
const DAMAGE_LISTED_MAX: usize = 1_000;

const RESTORE_HINT: &str = "stop the servers, keep a copy of the database, and restore it from a backup";
const TABLES_HINT: &str = "find out who changed it; restore the database, or set the cell to the value of the journal";

/// The database, by the flags of `muster serve`.
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

/// Every corrupted record, savepoint and table cell, and every violated law.
pub fn verify_database(args: &DeepArgs) -> Result<Vec<Finding>, CliError> {
    let config = config::load_config(config_flags(args), args.config.as_deref())?;
    let failed = |error: String| CliError::failed(format!("cannot verify the database: {error}"));
    let store = server::store_config(&config).map_err(|error| failed(error.to_string()))?;
    let mut state = State::empty();
    let (mut damages, mut count) = (Vec::new(), 0_usize);
    let mut note = |damage: Corruption| {
        count += 1;
        if damages.len() < DAMAGE_LISTED_MAX {
            damages.push(damage);
        }
    };
    let report = verify::verify_database(&store, &mut |entry| state.apply(&entry.event), &mut note)
        .map_err(|error| failed(error.to_string()))?;
    let mut findings: Vec<Finding> = damages.iter().map(damage_finding).collect();
    if count > damages.len() {
        findings.push(fail_finding("more", format!("{} more differences", count - damages.len()), ""));
    }
    findings.extend(state.check().iter().map(|law| fail_finding("laws", law.to_string(), RESTORE_HINT)));
    findings.extend(summary_findings(&report, count == 0));
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
            let to_do = "nothing: the next start replays more of the journal and writes a new savepoint";
            warn_finding("savepoint", found, to_do)
        }
        Corruption::Cell { .. } | Corruption::MissingRow { .. } | Corruption::ExtraRow { .. } => {
            fail_finding("tables", found, TABLES_HINT)
        }
    }
}

/// The number of records and rows read, so that an empty database is not mistaken for an intact one.
fn summary_findings(report: &verify::VerificationReport, intact: bool) -> Vec<Finding> {
    let unchained = report.records - report.chained_records;
    let older = match unchained {
        0 => String::new(),
        _ => format!(", {unchained} of them written before records were chained"),
    };
    let read = format!("{} read{older}", units::count_text(report.records, "record"));
    match (intact, report.tables_compared) {
        (true, _) => vec![
            ok_finding("journal", read),
            ok_finding("tables", format!("{} as in the journal", units::count_text(report.rows_compared, "row"))),
        ],
        (false, true) => vec![ok_finding("journal", read)],
        (false, false) => {
            vec![warn_finding("tables", "not compared: the journal is damaged".to_string(), RESTORE_HINT)]
        }
    }
}
