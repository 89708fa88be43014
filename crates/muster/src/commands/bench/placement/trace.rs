//! Reading a trace: nodes, pods, the order of arrival, and which node is preferred among equals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cluster::{Ask, Cluster, Models, Node};
use crate::commands::bench::traces::{self, Row, Table};
use crate::error::CliError;

/// The folder of the trace.
const TRACE: &str = "openb";

/// A trace whose nodes have been read.
#[derive(Debug)]
pub struct Trace {
    folder: PathBuf,
    nodes: Vec<Node>,
    models: Vec<String>,
    ranks: BTreeMap<(String, u64), Vec<u32>>,
}

/// A pod that may come.
#[derive(Debug, Clone)]
pub struct Pod {
    /// What it asks for.
    pub ask: Ask,
    /// The models it asks for, as written.
    pub spec: String,
}

/// Pods, and the orders in which they come.
#[derive(Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The pods that may come.
    pub pods: Vec<Pod>,
    /// For each seed the places in the list of pods, in order of arrival.
    pub arrivals: BTreeMap<u64, Vec<usize>>,
}

impl Trace {
    /// Read the nodes of the trace in this folder of traces.
    pub fn open(traces: &Path) -> Result<Trace, CliError> {
        let folder = traces::trace(traces, TRACE)?;
        let nodes = Table::read(&folder.join("nodes.csv"))?;
        let mut models = Vec::new();
        let nodes = nodes.rows().map(|row| node(&row?, &mut models)).collect::<Result<_, _>>()?;
        let ranks = read_ranks(&folder)?;
        Ok(Trace { folder, nodes, models, ranks })
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
    pub fn workload(&self, name: &str) -> Result<Workload, CliError> {
        let pods = Table::read(&self.folder.join(format!("pods_{name}.csv")))?;
        let pods = pods.rows().map(|row| self.pod(&row?)).collect::<Result<Vec<Pod>, _>>()?;
        let table = Table::read(&self.folder.join(format!("arrivals_{name}.csv.gz")))?;
        let mut arrivals: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for row in table.rows() {
            let row = row?;
            let pod = row.number("pod_row")?;
            if pod >= pods.len() {
                return Err(row.wrong(&format!("there is no pod in row {pod}")));
            }
            arrivals.entry(row.number("seed")?).or_default().push(pod);
        }
        Ok(Workload { name: name.to_string(), pods, arrivals })
    }

    /// The nodes, all empty, in the order of preference that goes with a workload and a seed.
    pub fn cluster(&self, workload: &str, seed: u64) -> Result<Cluster, CliError> {
        let ranks = self.ranks.get(&(workload.to_string(), seed));
        let ranks = ranks.filter(|ranks| ranks.len() == self.nodes.len()).ok_or_else(|| {
            let file = self.folder.join("node_rank.csv.gz");
            CliError::failed(format!(
                "`{}` does not rank every node for workload `{workload}` and seed {seed}",
                file.display()
            ))
        })?;
        Ok(Cluster { nodes: self.nodes.clone(), ranks: ranks.clone() })
    }

    /// The published mean share of GPUs that is allocated in the end, by workload and policy, where there is a file.
    pub fn published(&self) -> Result<BTreeMap<(String, String), f64>, CliError> {
        let file = self.folder.join("published_alloc_at_130.csv");
        if !file.exists() {
            return Ok(BTreeMap::new());
        }
        let table = Table::read(&file)?;
        let line = |row: Row| {
            let name = (row.text("workload")?.to_string(), row.text("policy")?.to_string());
            Ok((name, row.number("mean")?))
        };
        table.rows().map(|row| line(row?)).collect()
    }

    fn pod(&self, row: &Row) -> Result<Pod, CliError> {
        let spec = row.text("gpu_spec")?;
        let ask = Ask {
            cpu: row.number("cpu_milli")?,
            memory_mib: row.number("memory_mib")?,
            gpus: row.number("num_gpu")?,
            milli: row.number("gpu_milli")?,
            models: self.models_of(spec),
        };
        Ok(Pod { ask, spec: spec.to_string() })
    }

    /// A model that no node has is as good as none.
    fn models_of(&self, spec: &str) -> Models {
        if spec.is_empty() {
            return Models::ANY;
        }
        let named = spec.split('|').filter_map(|model| self.models.iter().position(|known| known == model));
        Models(named.fold(0, |bits, place| bits | 1 << place))
    }
}

fn node(row: &Row, models: &mut Vec<String>) -> Result<Node, CliError> {
    let model = row.text("model")?;
    let known = models.iter().position(|known| known == model);
    let place = known.unwrap_or_else(|| {
        models.push(model.to_string());
        models.len() - 1
    });
    let gpus = row.number("gpu")?;
    if place >= 64 || gpus > 64 {
        return Err(row.wrong("more than 64 models, or GPUs in one node"));
    }
    Ok(Node::new(row.number("cpu_milli")?, row.number("memory_mib")?, gpus, Models(1 << place)))
}

/// The ranks of all nodes, by workload and seed. Nodes are listed in the order of their file.
fn read_ranks(folder: &Path) -> Result<BTreeMap<(String, u64), Vec<u32>>, CliError> {
    let table = Table::read(&folder.join("node_rank.csv.gz"))?;
    let mut ranks: BTreeMap<(String, u64), Vec<u32>> = BTreeMap::new();
    for row in table.rows() {
        let row = row?;
        let listed = ranks.entry((row.text("workload")?.to_string(), row.number("seed")?)).or_default();
        if row.number::<usize>("node_row")? != listed.len() {
            return Err(row.wrong("the nodes are not in order"));
        }
        listed.push(row.number("rank")?);
    }
    Ok(ranks)
}
