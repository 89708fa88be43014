//! What it is worth to know how fast each job is on each kind of GPU, on measured speeds.
//!
//! The rules are those of the published runs (Narayanan et al., OSDI'20), told in `muster-sim/src/mixed.rs`. The published
//! streams of jobs are not published, so figures differ by stream; what is compared is how many times longer jobs take.

use std::collections::BTreeMap;
use std::path::PathBuf;

use muster_sim::mixed::{Chooser, JobType, KINDS, mean_hours};
use serde::Serialize;

use super::traces::{self, Table};
use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, Column, ListArgs};

/// As the file names them, the fastest first.
const NAMES: [&str; KINDS] = ["v100", "p100", "k80"];
/// GPUs of each kind in the published runs.
const GPUS: [usize; KINDS] = [36; KINDS];

/// `muster bench mixed`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder of traces; the one read is `gavel` in it [env: MUSTER_TRACES] [default: ../shared/traces]
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Jobs an hour
    #[arg(long, value_name = "RATE", value_delimiter = ',', num_args = 1.., default_values_t = [2.0, 4.0, 4.8, 5.6])]
    rate: Vec<f64>,
    /// How many streams of jobs
    #[arg(long, default_value_t = 10)]
    streams: u64,
    #[command(flatten)]
    list: ListArgs,
}

/// One rate.
#[derive(Debug, Clone, Serialize)]
struct Line {
    jobs_per_hour: f64,
    streams: u64,
    /// Hours from arrival to the end, the mean over streams.
    blind_h: f64,
    aware_h: f64,
    ratio: f64,
    published_blind_h: Option<f64>,
    published_aware_h: Option<f64>,
    published_ratio: Option<f64>,
}

const COLUMNS: [Column<Line>; 8] = [
    Column::new("JOBS/HOUR", |line| line.jobs_per_hour.to_string().into()),
    Column::new("STREAMS", |line| line.streams.to_string().into()),
    Column::new("BLIND H", |line| format!("{:.2}", line.blind_h).into()),
    Column::new("AWARE H", |line| format!("{:.2}", line.aware_h).into()),
    Column::new("RATIO", |line| format!("{:.2}", line.ratio).into()),
    Column::new("PUBLISHED BLIND", |line| hours(line.published_blind_h).into()),
    Column::new("PUBLISHED AWARE", |line| hours(line.published_aware_h).into()),
    Column::new("PUBLISHED RATIO", |line| hours(line.published_ratio).into()),
];

fn hours(hours: Option<f64>) -> String {
    hours.map(|hours| format!("{hours:.2}")).unwrap_or_default()
}

/// Play the streams, and print a line for each rate.
pub fn run(args: &Args) -> Ending {
    if let Some(rate) = args.rate.iter().find(|rate| !(**rate > 0.0 && rate.is_finite())) {
        return Err(CliError::usage(format!("`{rate}` is no rate: give jobs an hour, above 0")));
    }
    let folder = traces::trace(&traces::folder(args.traces.clone()), "gavel")?;
    let types = types(&Table::read(&folder.join("isolated.csv"))?)?;
    let published = published(&Table::read(&folder.join("published_by_rate.csv"))?)?;
    let lines: Vec<Line> =
        args.rate.iter().map(|rate| line(&types, *rate, args.streams.max(1), &published)).collect();
    output::list(&args.list, false, &COLUMNS, lines.clone(), &lines)?;
    Ok(Code::DONE)
}

type Published = BTreeMap<String, (Option<f64>, Option<f64>)>;

fn line(types: &[JobType], rate: f64, streams: u64, published: &Published) -> Line {
    let mean = |chooser| {
        let sum: f64 = (0..streams).map(|seed| mean_hours(types, GPUS, rate, seed, chooser)).sum();
        sum / streams as f64
    };
    let (blind_h, aware_h) = (mean(Chooser::Blind), mean(Chooser::Aware));
    let (blind, aware) = published.get(&format!("{rate:.1}")).copied().unwrap_or_default();
    Line {
        jobs_per_hour: rate,
        streams,
        blind_h,
        aware_h,
        ratio: blind_h / aware_h,
        published_blind_h: blind,
        published_aware_h: aware,
        published_ratio: blind.zip(aware).map(|(blind, aware)| blind / aware),
    }
}

/// Jobs of one GPU, with their speeds in times that on the fastest kind.
fn types(table: &Table) -> Result<Vec<JobType>, CliError> {
    let mut speeds: BTreeMap<(String, String), [f64; KINDS]> = BTreeMap::new();
    for row in table.rows() {
        let row = row?;
        if row.number::<u32>("gpus")? != 1 || row.number::<u32>("consolidated")? != 1 {
            continue;
        }
        let kind = row.text("gpu_type")?;
        let kind =
            NAMES.iter().position(|name| *name == kind).ok_or_else(|| row.wrong("an unknown kind of GPU"))?;
        let key = (row.text("model")?.to_string(), row.text("batch_size")?.to_string());
        speeds.entry(key).or_default()[kind] = row.number("steps_per_s")?;
    }
    let known = speeds.into_values().filter(|speeds| speeds[0] > 0.0);
    Ok(known.map(|speeds| JobType { speeds: speeds.map(|speed| speed / speeds[0]) }).collect())
}

/// By rate: hours with equal shares, blind and aware, as they are published for jobs of one GPU.
fn published(table: &Table) -> Result<Published, CliError> {
    let mut published = Published::new();
    for row in table.rows() {
        let row = row?;
        if row.text("trace")? == "single_gpu" && row.text("metric")? == "avg_jct_h" {
            let hours = |title| row.text(title).map(|text| text.parse().ok());
            let pair = (hours("max_min_fairness")?, hours("max_min_fairness_perf")?);
            published.insert(format!("{:.1}", row.number::<f64>("jobs_per_hour")?), pair);
        }
    }
    Ok(published)
}
