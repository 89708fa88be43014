//! Reader of the Gavel measurements (Narayanan et al., OSDI'20), and the comparison of heterogeneity-aware with blind
//! fair sharing on them.
//!
//! The job streams of the published runs are not available, so completion times differ by stream. The ratio of blind
//! to aware is what can be compared.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::{GPU_KINDS, JobType, SharePolicy, mean_completion_hours};
use crate::csv_table::{CsvTable, TraceError, trace_dir};

/// The directory of the trace in the traces directory.
const TRACE_DIR: &str = "gavel";
/// As the files name them, the fastest first.
const GPU_TYPE_NAMES: [&str; GPU_KINDS] = ["v100", "p100", "k80"];
/// GPUs of each type in the published runs.
const GPUS_PER_TYPE: [usize; GPU_KINDS] = [36; GPU_KINDS];

/// Job types with measured speeds, and the published results.
pub struct GavelTrace {
    job_types: Vec<JobType>,
    /// Mean hours to completion of blind and of aware sharing, by jobs per hour with one decimal.
    published: BTreeMap<String, PublishedHours>,
}

/// The results of one arrival rate.
#[derive(Debug, Clone, Serialize)]
pub struct MixedRow {
    pub jobs_per_hour: f64,
    pub streams: u64,
    /// Mean hours from arrival to completion, over all streams.
    pub blind_h: f64,
    pub aware_h: f64,
    pub ratio: f64,
    pub published_blind_h: Option<f64>,
    pub published_aware_h: Option<f64>,
    pub published_ratio: Option<f64>,
}

impl GavelTrace {
    /// Read the trace in this traces directory.
    pub fn read(traces: &Path) -> Result<GavelTrace, TraceError> {
        let dir = trace_dir(traces, TRACE_DIR)?;
        let job_types = read_job_types(&CsvTable::read(&dir.join("isolated.csv"))?)?;
        let published = read_published(&CsvTable::read(&dir.join("published_by_rate.csv"))?)?;
        Ok(GavelTrace { job_types, published })
    }

    /// Simulate an arrival rate, with one stream for each seed from 0.
    pub fn simulate_rate(&self, jobs_per_hour: f64, streams: u64) -> MixedRow {
        let mean = |policy| {
            let run = |seed| mean_completion_hours(&self.job_types, GPUS_PER_TYPE, jobs_per_hour, seed, policy);
            (0..streams).map(run).sum::<f64>() / streams as f64
        };
        let (blind_h, aware_h) = (mean(SharePolicy::HeterogeneityBlind), mean(SharePolicy::HeterogeneityAware));
        let (blind, aware) = self.published.get(&rate_key(jobs_per_hour)).copied().unwrap_or_default();
        MixedRow {
            jobs_per_hour,
            streams,
            blind_h,
            aware_h,
            ratio: blind_h / aware_h,
            published_blind_h: blind,
            published_aware_h: aware,
            published_ratio: blind.zip(aware).map(|(blind, aware)| blind / aware),
        }
    }
}

fn rate_key(jobs_per_hour: f64) -> String {
    format!("{jobs_per_hour:.1}")
}

/// Job types with one GPU, with speeds relative to the fastest GPU type.
fn read_job_types(table: &CsvTable) -> Result<Vec<JobType>, TraceError> {
    let mut speeds: BTreeMap<(String, String), [f64; GPU_KINDS]> = BTreeMap::new();
    for row in table.rows() {
        let row = row?;
        if row.number::<u32>("gpus")? != 1 || row.number::<u32>("consolidated")? != 1 {
            continue;
        }
        let name = row.text("gpu_type")?;
        let gpu_type = GPU_TYPE_NAMES.iter().position(|known| *known == name);
        let gpu_type = gpu_type.ok_or_else(|| row.error(format!("unknown GPU type `{name}`")))?;
        let key = (row.text("model")?.to_string(), row.text("batch_size")?.to_string());
        speeds.entry(key).or_default()[gpu_type] = row.number("steps_per_s")?;
    }
    let known = speeds.into_values().filter(|speeds| speeds[0] > 0.0);
    Ok(known.map(|speeds| JobType { speeds: speeds.map(|speed| speed / speeds[0]) }).collect())
}

/// Published mean completion times in hours: without and with throughput-aware shares.
type PublishedHours = (Option<f64>, Option<f64>);

/// The published means of max-min fairness for jobs with one GPU, by arrival rate.
fn read_published(table: &CsvTable) -> Result<BTreeMap<String, PublishedHours>, TraceError> {
    let mut published = BTreeMap::new();
    for row in table.rows() {
        let row = row?;
        if row.text("trace")? == "single_gpu" && row.text("metric")? == "avg_jct_h" {
            let hours = |column| row.text(column).map(|text| text.parse().ok());
            let pair = (hours("max_min_fairness")?, hours("max_min_fairness_perf")?);
            published.insert(rate_key(row.number("jobs_per_hour")?), pair);
        }
    }
    Ok(published)
}
