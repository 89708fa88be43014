//! The traces directory, by flag or environment, and errors of traces for people.

use std::path::PathBuf;

use muster_sim::csv_table::TraceError;

use crate::error::CliError;

const TRACES_DIR_DEFAULT: &str = "../shared/traces";

/// The traces directory: the flag, else `MUSTER_TRACES`, else the default.
pub fn traces_dir(flag: Option<PathBuf>) -> PathBuf {
    let variable = || std::env::var_os("MUSTER_TRACES").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    flag.or_else(variable).unwrap_or_else(|| PathBuf::from(TRACES_DIR_DEFAULT))
}

impl From<TraceError> for CliError {
    fn from(error: TraceError) -> CliError {
        let failed = CliError::failed(error.to_string());
        match error {
            TraceError::Missing { .. } => {
                failed.hint("name the traces directory with `--traces DIR` or in MUSTER_TRACES")
            }
            _ => failed,
        }
    }
}
