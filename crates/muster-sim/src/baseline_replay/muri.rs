//! Reader of the Muri traces (Zhao et al., SIGCOMM'22): training jobs, start overheads and published figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::TraceJob;
use crate::csv_table::{CsvFields, CsvRow, CsvTable, TraceError, file_names, trace_dir};

/// The directory of the traces in the traces directory.
const TRACE_DIR: &str = "muri";
const PUBLISHED_TABLE: &str = "published_sim";
/// Start overheads by GPU count and model.
const OVERHEAD_TABLE: &str = "start_overhead";
/// The start overhead of jobs that the table does not list.
const START_OVERHEAD_S_DEFAULT: f64 = 10.0;
/// The published runs multiply the recorded work by this.
pub const WORK_FACTOR: f64 = 1.015;

/// Published mean job completion times, by trace and policy.
pub type PublishedJct = BTreeMap<(String, String), f64>;

/// One line of a trace.
pub struct MuriJob<'a> {
    pub gpus: u32,
    pub submit_ms: f64,
    /// Iterations × time of an iteration, without [`WORK_FACTOR`].
    pub recorded_work_ms: f64,
    pub model: &'a str,
}

impl MuriJob<'_> {
    pub fn of_fields<'a>(fields: &'a CsvFields) -> Result<MuriJob<'a>, String> {
        let number = |column| fields.required_number::<f64>(column);
        Ok(MuriJob {
            gpus: fields.required_number("num_gpu")?,
            submit_ms: number("submit_time")?,
            recorded_work_ms: number("iterations")? * number("iteration_time")?,
            model: fields.optional_text("model_name").unwrap_or_default(),
        })
    }
}

/// The directory of the traces, with the start overheads read.
#[derive(Debug)]
pub struct MuriTraces {
    dir: PathBuf,
    overheads_s: BTreeMap<(u32, String), f64>,
}

impl MuriTraces {
    /// Open the traces in this traces directory.
    pub fn open(traces: &Path) -> Result<MuriTraces, TraceError> {
        let dir = trace_dir(traces, TRACE_DIR)?;
        let table = CsvTable::read(&dir.join(format!("{OVERHEAD_TABLE}.csv")))?;
        let overhead = |row: Result<CsvRow, TraceError>| {
            let row = row?;
            Ok(((row.number("num_gpu")?, row.text("model")?.to_string()), row.number("start_overhead_s")?))
        };
        let overheads_s = table.rows().map(overhead).collect::<Result<_, TraceError>>()?;
        Ok(MuriTraces { dir, overheads_s })
    }

    /// The names of all traces, sorted.
    pub fn traces(&self) -> Result<Vec<String>, TraceError> {
        let name = |file: String| Some(file.strip_suffix(".csv")?.to_string());
        let is_trace = |name: &String| !name.starts_with("published_") && name != OVERHEAD_TABLE;
        let mut names: Vec<String> = file_names(&self.dir)?.into_iter().filter_map(name).filter(is_trace).collect();
        names.sort();
        Ok(names)
    }

    /// The names of the traces with published figures, sorted.
    pub fn published_traces(&self) -> Result<Vec<String>, TraceError> {
        let mut names: Vec<String> = self.published()?.into_keys().map(|(trace, _)| trace).collect();
        names.dedup();
        Ok(names)
    }

    pub fn published(&self) -> Result<PublishedJct, TraceError> {
        let table = CsvTable::read(&self.dir.join(format!("{PUBLISHED_TABLE}.csv")))?;
        let figure = |row: Result<CsvRow, TraceError>| {
            let row = row?;
            let name = (row.text("trace")?.to_string(), row.text("policy")?.to_string());
            Ok((name, row.number("avg_jct_s")?))
        };
        table.rows().map(figure).collect()
    }

    /// The jobs of a trace.
    pub fn jobs(&self, trace: &str) -> Result<Vec<TraceJob>, TraceError> {
        let table = CsvTable::read(&self.dir.join(format!("{trace}.csv")))?;
        table.rows().map(|row| self.job(&row?)).collect()
    }

    fn job(&self, row: &CsvRow) -> Result<TraceJob, TraceError> {
        let job = MuriJob::of_fields(&row.fields).map_err(|message| row.error(message))?;
        let (gpus, model) = (job.gpus, job.model.to_string());
        let overhead_s = self.overheads_s.get(&(gpus, model.clone())).copied().unwrap_or(START_OVERHEAD_S_DEFAULT);
        let work_s = job.recorded_work_ms * WORK_FACTOR / 1_000.0;
        Ok(TraceJob { gpus, submit_s: job.submit_ms / 1_000.0, work_s, overhead_s, model })
    }
}
