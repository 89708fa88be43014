//! Reading a trace: nodes, pods, the order of arrival, and which node is preferred among equals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cluster::{PodRequest, TraceCluster, ModelSet, TraceNode};
use crate::commands::bench::traces::{self, CsvRow, CsvTable};
use crate::error::CliError;

/// The folder of the trace.
const TRACE_DIR: &str = "openb";

/// A trace whose nodes have been read.
#[derive(Debug)]
pub struct OpenbTrace {
    folder: PathBuf,
    nodes: Vec<TraceNode>,
    models: Vec<String>,
    ranks: BTreeMap<(String, u64), Vec<u32>>,
}

/// A pod that may come.
#[derive(Debug, Clone)]
pub struct TracePod {
    /// What it asks for.
    pub request: PodRequest,
    /// The models it asks for, as written.
    pub gpu_spec: String,
}

/// Pods, and the orders in which they come.
#[derive(Debug)]
pub struct TraceWorkload {
    /// Its name.
    pub name: String,
    /// The pods that may come.
    pub pods: Vec<TracePod>,
    /// For each seed the places in the list of pods, in order of arrival.
    pub arrivals: BTreeMap<u64, Vec<usize>>,
}

impl OpenbTrace {
    /// Read the nodes of the trace in this folder of traces.
    pub fn open(traces: &Path) -> Result<OpenbTrace, CliError> {
        let folder = traces::trace_dir(traces, TRACE_DIR)?;
        let nodes = CsvTable::read(&folder.join("nodes.csv"))?;
        let mut models = Vec::new();
        let nodes = nodes.rows().map(|row| node(&row?, &mut models)).collect::<Result<_, _>>()?;
        let ranks = read_ranks(&folder)?;
        Ok(OpenbTrace { folder, nodes, models, ranks })
    }

    /// The names of its workloads, in order.
    pub fn workloads(&self) -> Result<Vec<String>, CliError> {
        let listed = self.folder.read_dir().map_err(|error| traces::unreadable(&self.folder, &error))?;
        let files = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = files
            .filter_map(|file| Some(file.strip_prefix("pods_")?.strip_suffix(".csv")?.to_string()))
            .collect();
        names.sort();
        Ok(names)
    }

    /// Read one workload.
    pub fn workload(&self, name: &str) -> Result<TraceWorkload, CliError> {
        let pods = CsvTable::read(&self.folder.join(format!("pods_{name}.csv")))?;
        let pods = pods.rows().map(|row| self.pod(&row?)).collect::<Result<Vec<TracePod>, _>>()?;
        let table = CsvTable::read(&self.folder.join(format!("arrivals_{name}.csv.gz")))?;
        let mut arrivals: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for row in table.rows() {
            let row = row?;
            let pod = row.number("pod_row")?;
            if pod >= pods.len() {
                return Err(row.error(&format!("there is no pod in row {pod}")));
            }
            arrivals.entry(row.number("seed")?).or_default().push(pod);
        }
        Ok(TraceWorkload { name: name.to_string(), pods, arrivals })
    }

    /// The nodes, all empty, in the order of preference that goes with a workload and a seed.
    pub fn cluster(&self, workload: &str, seed: u64) -> Result<TraceCluster, CliError> {
        let ranks = self.ranks.get(&(workload.to_string(), seed));
        let ranks = ranks.filter(|ranks| ranks.len() == self.nodes.len()).ok_or_else(|| {
            let file = self.folder.join("node_rank.csv.gz");
            CliError::failed(format!(
                "`{}` does not rank every node for workload `{workload}` and seed {seed}",
                file.display()
            ))
        })?;
        Ok(TraceCluster { nodes: self.nodes.clone(), ranks: ranks.clone() })
    }

    /// The published mean share of GPUs that is allocated in the end, by workload and policy, where there is a file.
    pub fn published(&self) -> Result<BTreeMap<(String, String), f64>, CliError> {
        let file = self.folder.join("published_alloc_at_130.csv");
        if !file.exists() {
            return Ok(BTreeMap::new());
        }
        let table = CsvTable::read(&file)?;
        let line = |row: CsvRow| {
            let name = (row.text("workload")?.to_string(), row.text("policy")?.to_string());
            Ok((name, row.number("mean")?))
        };
        table.rows().map(|row| line(row?)).collect()
    }

    fn pod(&self, row: &CsvRow) -> Result<TracePod, CliError> {
        let spec = row.text("gpu_spec")?;
        let ask = PodRequest {
            cpu_milli: row.number("cpu_milli")?,
            memory_mib: row.number("memory_mib")?,
            gpus: row.number("num_gpu")?,
            milli_per_gpu: row.number("gpu_milli")?,
            models: self.model_set(spec),
        };
        Ok(TracePod { request: ask, gpu_spec: spec.to_string() })
    }

    /// A model that no node has is as good as none.
    fn model_set(&self, spec: &str) -> ModelSet {
        if spec.is_empty() {
            return ModelSet::ANY;
        }
        let named = spec.split('|').filter_map(|model| self.models.iter().position(|known| known == model));
        ModelSet(named.fold(0, |bits, place| bits | 1 << place))
    }
}

fn node(row: &CsvRow, models: &mut Vec<String>) -> Result<TraceNode, CliError> {
    let model = row.text("model")?;
    let known = models.iter().position(|known| known == model);
    let place = known.unwrap_or_else(|| {
        models.push(model.to_string());
        models.len() - 1
    });
    let gpus = row.number("gpu")?;
    if place >= 64 || gpus > 64 {
        return Err(row.error("more than 64 models, or GPUs in one node"));
    }
    Ok(TraceNode::new(row.number("cpu_milli")?, row.number("memory_mib")?, gpus, ModelSet(1 << place)))
}

/// The ranks of all nodes, by workload and seed. Nodes are listed in the order of their file.
fn read_ranks(folder: &Path) -> Result<BTreeMap<(String, u64), Vec<u32>>, CliError> {
    let table = CsvTable::read(&folder.join("node_rank.csv.gz"))?;
    let mut ranks: BTreeMap<(String, u64), Vec<u32>> = BTreeMap::new();
    for row in table.rows() {
        let row = row?;
        let listed = ranks.entry((row.text("workload")?.to_string(), row.number("seed")?)).or_default();
        if row.number::<usize>("node_row")? != listed.len() {
            return Err(row.error("the nodes are not in order"));
        }
        listed.push(row.number("rank")?);
    }
    Ok(ranks)
}
