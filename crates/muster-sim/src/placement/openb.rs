//! Reader of the OpenB trace (Alibaba 2023) and of the files that reproduce the published runs: nodes, pods, arrival
//! orders, node ranks and published figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cluster::{ModelSet, PodRequest, TraceCluster, TraceNode};
use crate::csv_table::{CsvRow, CsvTable, TraceError, file_names, trace_dir};

/// The directory of the trace in the traces directory.
const TRACE_DIR: &str = "openb";
const RANKS_FILE: &str = "node_rank.csv.gz";

/// Published mean percentage of GPUs allocated, by workload and policy.
pub type PublishedAllocation = BTreeMap<(String, String), f64>;

/// The trace with its nodes and ranks read; workloads are read on demand.
#[derive(Debug)]
pub struct OpenbTrace {
    dir: PathBuf,
    nodes: Vec<TraceNode>,
    models: Vec<String>,
    /// The rank of each node, by workload and seed.
    ranks: BTreeMap<(String, u64), Vec<u32>>,
}

/// A pod of a workload.
#[derive(Debug, Clone)]
pub struct TracePod {
    pub request: PodRequest,
    /// The GPU models that the pod accepts, as written in the trace.
    pub gpu_spec: String,
}

/// The pods of a workload and their arrival orders.
#[derive(Debug)]
pub struct TraceWorkload {
    pub name: String,
    pub pods: Vec<TracePod>,
    /// For each seed the indexes of pods in arrival order.
    pub arrivals: BTreeMap<u64, Vec<usize>>,
}

impl OpenbTrace {
    /// Open the trace in this traces directory.
    pub fn open(traces: &Path) -> Result<OpenbTrace, TraceError> {
        let dir = trace_dir(traces, TRACE_DIR)?;
        let nodes = CsvTable::read(&dir.join("nodes.csv"))?;
        let mut models = Vec::new();
        let nodes = nodes.rows().map(|row| node(&row?, &mut models)).collect::<Result<_, _>>()?;
        let ranks = read_ranks(&dir)?;
        Ok(OpenbTrace { dir, nodes, models, ranks })
    }

    /// The names of the workloads, sorted.
    pub fn workloads(&self) -> Result<Vec<String>, TraceError> {
        let name = |file: String| Some(file.strip_prefix("pods_")?.strip_suffix(".csv")?.to_string());
        let mut names: Vec<String> = file_names(&self.dir)?.into_iter().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    pub fn workload(&self, name: &str) -> Result<TraceWorkload, TraceError> {
        let pods = CsvTable::read(&self.dir.join(format!("pods_{name}.csv")))?;
        let pods = pods.rows().map(|row| self.pod(&row?)).collect::<Result<Vec<TracePod>, _>>()?;
        let table = CsvTable::read(&self.dir.join(format!("arrivals_{name}.csv.gz")))?;
        let mut arrivals: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for row in table.rows() {
            let row = row?;
            let pod = row.number("pod_row")?;
            if pod >= pods.len() {
                return Err(row.error(format!("there is no pod in row {pod}")));
            }
            arrivals.entry(row.number("seed")?).or_default().push(pod);
        }
        Ok(TraceWorkload { name: name.to_string(), pods, arrivals })
    }

    /// The empty cluster with the node ranks of a workload and a seed.
    pub fn cluster(&self, workload: &str, seed: u64) -> Result<TraceCluster, TraceError> {
        let ranks = self.ranks.get(&(workload.to_string(), seed));
        let ranks = ranks.filter(|ranks| ranks.len() == self.nodes.len()).ok_or_else(|| {
            let message = format!("does not rank every node for workload `{workload}` and seed {seed}");
            TraceError::Incomplete { path: self.dir.join(RANKS_FILE), message }
        })?;
        Ok(TraceCluster { nodes: self.nodes.clone(), ranks: ranks.clone() })
    }

    /// The published figures; empty if the trace has no file of them.
    pub fn published(&self) -> Result<PublishedAllocation, TraceError> {
        let file = self.dir.join("published_alloc_at_130.csv");
        if !file.exists() {
            return Ok(PublishedAllocation::new());
        }
        let table = CsvTable::read(&file)?;
        let figure = |row: CsvRow| {
            let name = (row.text("workload")?.to_string(), row.text("policy")?.to_string());
            Ok((name, row.number("mean")?))
        };
        table.rows().map(|row| figure(row?)).collect()
    }

    fn pod(&self, row: &CsvRow) -> Result<TracePod, TraceError> {
        let gpu_spec = row.text("gpu_spec")?;
        let request = PodRequest {
            cpu_milli: row.number("cpu_milli")?,
            memory_mib: row.number("memory_mib")?,
            gpus: row.number("num_gpu")?,
            milli_per_gpu: row.number("gpu_milli")?,
            models: self.model_set(gpu_spec),
        };
        Ok(TracePod { request, gpu_spec: gpu_spec.to_string() })
    }

    /// The models named in `gpu_spec` that some node has; all if it is empty.
    fn model_set(&self, gpu_spec: &str) -> ModelSet {
        if gpu_spec.is_empty() {
            return ModelSet::ANY;
        }
        let named = gpu_spec.split('|').filter_map(|model| self.models.iter().position(|known| known == model));
        ModelSet(named.fold(0, |bits, index| bits | 1 << index))
    }
}

fn node(row: &CsvRow, models: &mut Vec<String>) -> Result<TraceNode, TraceError> {
    let model = row.text("model")?;
    let known = models.iter().position(|known| known == model);
    let index = known.unwrap_or_else(|| {
        models.push(model.to_string());
        models.len() - 1
    });
    let gpus = row.number("gpu")?;
    if index >= 64 || gpus > 64 {
        return Err(row.error("more than 64 GPU models, or GPUs of one node"));
    }
    Ok(TraceNode::new(row.number("cpu_milli")?, row.number("memory_mib")?, gpus, ModelSet(1 << index)))
}

/// The file lists the nodes of each workload and seed in the order of `nodes.csv`.
fn read_ranks(dir: &Path) -> Result<BTreeMap<(String, u64), Vec<u32>>, TraceError> {
    let table = CsvTable::read(&dir.join(RANKS_FILE))?;
    let mut ranks: BTreeMap<(String, u64), Vec<u32>> = BTreeMap::new();
    for row in table.rows() {
        let row = row?;
        let listed = ranks.entry((row.text("workload")?.to_string(), row.number("seed")?)).or_default();
        if row.number::<usize>("node_row")? != listed.len() {
            return Err(row.error("the nodes are not in the order of `nodes.csv`"));
        }
        listed.push(row.number("rank")?);
    }
    Ok(ranks)
}
