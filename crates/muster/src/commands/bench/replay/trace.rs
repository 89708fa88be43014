//! Reading traces of training jobs, and the figures that are published for them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use muster_sim::replay::TraceJob;

use crate::commands::bench::traces::{self, Row, Table};
use crate::error::CliError;

/// The folder of the traces.
const FOLDER: &str = "muri";
/// Published figures.
const PUBLISHED: &str = "published_sim";
/// How long jobs take to start, by GPUs and model.
const OVERHEAD: &str = "start_overhead";
/// How long those take that are not in the table.
const OVERHEAD_S: f64 = 10.0;
/// What the published runs count for the work of a job, in times what was recorded.
const STRETCH: f64 = 1.015;

/// Published mean times to the end, by trace and policy.
pub type Published = BTreeMap<(String, String), f64>;

/// A folder of traces.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    overheads: BTreeMap<(u32, String), f64>,
}

impl Folder {
    /// The one in this folder of traces.
    pub fn open(traces: &Path) -> Result<Folder, CliError> {
        let path = traces::trace(traces, FOLDER)?;
        let table = Table::read(&path.join(format!("{OVERHEAD}.csv")))?;
        let overhead = |row: Result<Row, CliError>| {
            let row = row?;
            Ok(((row.number("num_gpu")?, row.text("model")?.to_string()), row.number("start_overhead_s")?))
        };
        let overheads = table.rows().map(overhead).collect::<Result<_, CliError>>()?;
        Ok(Folder { path, overheads })
    }

    /// The names of all files that could be traces, in order.
    pub fn traces(&self) -> Result<Vec<String>, CliError> {
        let listed = self.path.read_dir().map_err(|error| traces::unreadable(&self.path, &error))?;
        let files = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names = files.filter_map(|file| Some(file.strip_suffix(".csv")?.to_string()));
        let mut names: Vec<String> =
            names.filter(|name| !name.starts_with("published_") && name != OVERHEAD).collect();
        names.sort();
        Ok(names)
    }

    /// The traces that figures are published for, in order.
    pub fn with_figures(&self) -> Result<Vec<String>, CliError> {
        let mut names: Vec<String> = self.published()?.into_keys().map(|(trace, _)| trace).collect();
        names.dedup();
        Ok(names)
    }

    /// The mean times to the end that are published.
    pub fn published(&self) -> Result<Published, CliError> {
        let table = Table::read(&self.path.join(format!("{PUBLISHED}.csv")))?;
        let figure = |row: Result<Row, CliError>| {
            let row = row?;
            let name = (row.text("trace")?.to_string(), row.text("policy")?.to_string());
            Ok((name, row.number("avg_jct_s")?))
        };
        table.rows().map(figure).collect()
    }

    /// The jobs of a trace.
    pub fn jobs(&self, name: &str) -> Result<Vec<TraceJob>, CliError> {
        let table = Table::read(&self.path.join(format!("{name}.csv")))?;
        table.rows().map(|row| self.job(&row?)).collect()
    }

    fn job(&self, row: &Row) -> Result<TraceJob, CliError> {
        let (gpus, model) = (row.number("num_gpu")?, row.text("model_name")?.to_string());
        let work_ms = row.number::<f64>("iterations")? * row.number::<f64>("iteration_time")?;
        let overhead_s = self.overheads.get(&(gpus, model.clone())).copied().unwrap_or(OVERHEAD_S);
        let submit_s = row.number::<f64>("submit_time")? / 1_000.0;
        Ok(TraceJob { gpus, submit_s, work_s: work_ms * STRETCH / 1_000.0, overhead_s, model })
    }
}
