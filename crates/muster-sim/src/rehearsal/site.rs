//! The cluster of a rehearsal: from a cluster file, from words, or as large as a log needs.

use std::collections::BTreeMap;

use muster_agent::Cluster;
use muster_core::node::NodeFacts;
use muster_core::{NodeId, model};
use muster_server::agents::facts;

use crate::jobs::LoggedJob;

/// What is said of a GPU by its short name: its full name, its memory in MiB, its power limit in watts.
const MODELS: [(&str, &str, u32, u32); 9] = [
    ("k80", "Tesla K80", 11_441, 150),
    ("p100", "Tesla P100-SXM2-16GB", 16_280, 300),
    ("t4", "Tesla T4", 15_360, 70),
    ("v100", "Tesla V100-SXM2-32GB", 32_768, 300),
    ("a40", "NVIDIA A40", 46_068, 300),
    ("l40s", "NVIDIA L40S", 46_068, 350),
    ("a100", "NVIDIA A100-SXM4-80GB", 81_920, 400),
    ("h100", "NVIDIA H100 80GB HBM3", 81_559, 700),
    ("h200", "NVIDIA H200", 143_771, 700),
];
/// Memory of a GPU that is not among them.
const MEMORY_MIB: u32 = 16_384;
/// Cores and main memory for each GPU: enough not to bind, as most logs say nothing of them.
const CPUS_PER_GPU: u32 = 32;
const MEMORY_GIB_PER_GPU: u32 = 256;
/// A cluster that is made for a log is large enough for this part of the time in which jobs come, in percent.
const ENOUGH_PERCENT: i128 = 95;
/// GPUs of its nodes.
const NODE_GPUS: u32 = 8;

/// The nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    nodes: Vec<(NodeId, NodeFacts)>,
}

/// Words that describe no cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{words}` describes no nodes: {why}")]
pub struct BadWords {
    /// As they were written.
    pub words: String,
    /// What is wrong.
    pub why: String,
}

impl Site {
    /// That of a cluster file.
    pub fn of_cluster(cluster: &Cluster) -> Site {
        let node = |registration: muster_protocol::agent::Registration| {
            Some((registration.node.parse().ok()?, facts(registration)))
        };
        Site { nodes: cluster.registrations().into_iter().filter_map(node).collect() }
    }

    /// By words such as `16x8xV100`: nodes × GPUs of each × model; several with commas. `4xH100` is four nodes of eight.
    pub fn of_words(words: &str) -> Result<Site, BadWords> {
        let wrong = |why: String| BadWords { words: words.to_string(), why };
        let groups = words.split(',').enumerate().map(|(place, word)| group(place, word.trim()));
        let groups = groups.collect::<Result<Vec<String>, String>>().map_err(wrong)?;
        let text = format!("nodes:\n{}", groups.concat());
        Cluster::parse(&text)
            .map(|cluster| Site::of_cluster(&cluster))
            .map_err(|error| wrong(error.to_string()))
    }

    /// Words for a cluster that is large enough for a log: for 19 of 20 moments at which jobs come, and for the largest.
    pub fn words_for(jobs: &[LoggedJob]) -> String {
        let node_gpus = jobs.iter().map(largest_task).max().unwrap_or(0).max(NODE_GPUS);
        let most = jobs.iter().map(|job| job.gpus.total()).max().unwrap_or(1);
        let gpus = usual_demand(jobs).max(u64::from(most));
        format!("{}x{node_gpus}xV100", gpus.div_ceil(u64::from(node_gpus)).max(1))
    }

    /// The nodes.
    pub fn nodes(&self) -> &[(NodeId, NodeFacts)] {
        &self.nodes
    }

    /// All GPUs.
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|(_, facts)| facts.gpus.len() as u32).sum()
    }

    /// GPUs of the largest node.
    pub fn node_gpus(&self) -> u32 {
        self.nodes.iter().map(|(_, facts)| facts.gpus.len() as u32).max().unwrap_or(0)
    }

    /// GPUs of every node, where all have as many.
    pub fn uniform_gpus(&self) -> Option<u32> {
        let each = self.node_gpus();
        self.nodes.iter().all(|(_, facts)| facts.gpus.len() as u32 == each).then_some(each)
    }

    /// Whether a GPU is what someone wishes.
    pub fn has_model(&self, wish: &str) -> bool {
        self.nodes.iter().flat_map(|(_, facts)| &facts.gpus).any(|gpu| model::matches(wish, &gpu.model))
    }

    /// The power limits of all GPUs together.
    pub fn milliwatts(&self) -> u64 {
        self.nodes.iter().flat_map(|(_, facts)| &facts.gpus).map(|gpu| gpu.milliwatts()).sum()
    }

    /// For people: `128 GPUs of 16 nodes (Tesla V100-SXM2-32GB)`.
    pub fn about(&self) -> String {
        let mut models: Vec<&str> =
            self.nodes.iter().flat_map(|(_, facts)| &facts.gpus).map(|gpu| gpu.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        let nodes = match self.nodes.len() {
            1 => "one node".to_string(),
            nodes => format!("{nodes} nodes"),
        };
        format!("{} GPUs of {nodes} ({})", self.gpus(), models.join(", "))
    }
}

/// GPUs that would be in use if every job ran when it came: most of the time while jobs come it is no more than this.
fn usual_demand(jobs: &[LoggedJob]) -> u64 {
    let last_ms = jobs.iter().map(|job| job.submit_ms).max().unwrap_or(0);
    let mut changes: Vec<(i64, i64)> = Vec::new();
    for job in jobs {
        let gpus = i64::from(job.gpus.total());
        changes.push((job.submit_ms, gpus));
        changes.push((job.submit_ms.saturating_add(job.work_ms), -gpus));
    }
    changes.sort_unstable();
    let (mut lengths, mut since_ms, mut gpus) = (BTreeMap::new(), i64::MAX, 0);
    for (at_ms, change) in changes.into_iter().filter(|(at_ms, _)| *at_ms <= last_ms) {
        *lengths.entry(gpus).or_default() += (at_ms - since_ms.min(at_ms)).max(0);
        (since_ms, gpus) = (at_ms, gpus + change);
    }
    let all: i64 = lengths.values().sum();
    let mut enough_ms = 0;
    let enough = lengths.iter().find(|(_, ms)| {
        enough_ms += **ms;
        i128::from(enough_ms) * 100 >= i128::from(all) * ENOUGH_PERCENT
    });
    // All at once: as if there were a moment after.
    let gpus = if all == 0 { gpus } else { enough.map_or(gpus, |(gpus, _)| *gpus) };
    u64::try_from(gpus).unwrap_or(0)
}

fn largest_task(job: &LoggedJob) -> u32 {
    match job.gpus {
        crate::jobs::Gang::Tasks { each, .. } => each,
        crate::jobs::Gang::Total(_) => 0,
    }
}

/// A group of the cluster file.
fn group(place: usize, word: &str) -> Result<String, String> {
    let number = |text: &str, what: &str| {
        let number = text.parse::<u32>().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("`{text}` is no number of {what}; write for example `16x8xV100`"))
    };
    let (nodes, rest) = word.split_once(['x', 'X']).unwrap_or((word, ""));
    let nodes = number(nodes, "nodes")?;
    let begins_with_number = rest.starts_with(|letter: char| letter.is_ascii_digit());
    let (gpus, short) = match rest.split_once(['x', 'X']) {
        Some((gpus, short)) if begins_with_number => (number(gpus, "GPUs")?, short.trim()),
        None if begins_with_number => (number(rest, "GPUs")?, "V100"),
        // `4xH100`: nodes as they are usually sold.
        _ => (NODE_GPUS, rest.trim()),
    };
    if short.is_empty() || short.contains(['"', '\\', '\n']) {
        return Err("a model is missing; write for example `16x8xV100`".to_string());
    }
    let known = MODELS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(short));
    let (model, memory, power) = match known {
        Some((_, model, memory, watts)) => (*model, *memory, format!(", power_limit_watts: {watts}")),
        None => (short, MEMORY_MIB, String::new()),
    };
    let letter = char::from(b'a' + (place % 26) as u8);
    Ok(format!(
        "  - name: {letter}{}n\n    count: {nodes}\n    cpus: {}\n    memory_gib: {}\n    \
         gpus: {{ model: \"{model}\", count: {gpus}, memory_mib: {memory}{power} }}\n",
        place / 26,
        (gpus * CPUS_PER_GPU).min(8_192),
        (gpus * MEMORY_GIB_PER_GPU).min(65_536),
    ))
}
