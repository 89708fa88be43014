//! `muster bench mixed`: heterogeneity-aware against blind fair sharing on the Gavel measurements, by the simulation in
//! `muster_sim::heterogeneous_shares`.

use std::path::PathBuf;

use muster_sim::heterogeneous_shares::{GavelTrace, MixedRow};

use super::traces;
use crate::error::{CliError, CommandResult, ExitStatus};
use crate::output::{self, Column, ListArgs};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The traces directory; its `gavel` is read [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Arrival rates in jobs per hour
    #[arg(long, value_name = "RATE", value_delimiter = ',', num_args = 1.., default_values_t = [2.0, 4.0, 4.8, 5.6])]
    rate: Vec<f64>,
    /// Streams of jobs that are averaged
    #[arg(long, default_value_t = 10)]
    streams: u64,
    #[command(flatten)]
    list: ListArgs,
}

const COLUMNS: [Column<MixedRow>; 8] = [
    Column::new("JOBS/HOUR", |row| row.jobs_per_hour.to_string().into()),
    Column::new("STREAMS", |row| row.streams.to_string().into()),
    Column::new("BLIND H", |row| format!("{:.2}", row.blind_h).into()),
    Column::new("AWARE H", |row| format!("{:.2}", row.aware_h).into()),
    Column::new("RATIO", |row| format!("{:.2}", row.ratio).into()),
    Column::new("PUBLISHED BLIND", |row| two_decimals(row.published_blind_h).into()),
    Column::new("PUBLISHED AWARE", |row| two_decimals(row.published_aware_h).into()),
    Column::new("PUBLISHED RATIO", |row| two_decimals(row.published_ratio).into()),
];

fn two_decimals(value: Option<f64>) -> String {
    value.map(|value| format!("{value:.2}")).unwrap_or_default()
}

/// Print a row for each arrival rate.
pub fn run(args: &Args) -> CommandResult {
    if let Some(rate) = args.rate.iter().find(|rate| !(**rate > 0.0 && rate.is_finite())) {
        return Err(CliError::usage(format!("`{rate}` is not a rate: give jobs per hour, above 0")));
    }
    let trace = GavelTrace::read(&traces::traces_dir(args.traces.clone()))?;
    let rows: Vec<MixedRow> = args.rate.iter().map(|rate| trace.simulate_rate(*rate, args.streams.max(1))).collect();
    output::list(&args.list, false, &COLUMNS, rows.clone(), &rows)?;
    Ok(ExitStatus::SUCCESS)
}
