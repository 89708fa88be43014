//! One replay: pods come one at a time, and stay. Who fits nowhere is dropped.

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::cluster::{Ask, Cluster, Spot};
use super::policies::Name;
use super::trace::Workload;
use super::typical::Typical;

/// What is compared is what is allocated when so many percent of all GPUs have been asked for.
const ASKED: u64 = 130;

/// What came of one replay.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    pub workload: String,
    pub policy: &'static str,
    pub seed: u64,
    /// GPU allocated, in percent of all.
    pub alloc_at_130: f64,
    /// GPU that is free and of no use to typical pods, in percent of all.
    pub frag_at_130: f64,
    pub cpu_us_per_decision: f64,
}

/// The pods of a workload as a replay needs them.
pub struct Pods<'a> {
    workload: &'a Workload,
    /// The different asks.
    asks: Vec<Ask>,
    /// For each pod the place of its ask.
    shapes: Vec<usize>,
    typical: Typical,
}

impl<'a> Pods<'a> {
    /// Prepare a workload.
    pub fn of(workload: &'a Workload) -> Pods<'a> {
        let mut asks: Vec<Ask> = workload.pods.iter().map(|pod| pod.ask).collect();
        asks.sort();
        asks.dedup();
        let shape = |ask: &Ask| asks.partition_point(|other| other < ask);
        let shapes = workload.pods.iter().map(|pod| shape(&pod.ask)).collect();
        Pods { workload, asks, shapes, typical: Typical::of(&workload.pods) }
    }

    /// Let the pods of a seed come.
    pub fn replay(&self, cluster: Cluster, name: Name, seed: u64) -> Outcome {
        let arrivals = self.workload.arrivals.get(&seed).map(Vec::as_slice).unwrap_or_default();
        let shapes: Vec<usize> = arrivals.iter().map(|pod| self.shapes[*pod]).collect();
        let start = thread_us();
        let spots = self.decide(cluster.clone(), name, seed, &shapes);
        let cpu_us_per_decision = rounded((thread_us() - start) / shapes.len().max(1) as f64);
        let (alloc_at_130, frag_at_130) = self.measure(cluster, &shapes, &spots);
        let workload = self.workload.name.clone();
        Outcome { workload, policy: name.text(), seed, alloc_at_130, frag_at_130, cpu_us_per_decision }
    }

    /// Where each pod goes.
    fn decide(&self, mut cluster: Cluster, name: Name, seed: u64, shapes: &[usize]) -> Vec<Option<Spot>> {
        let mut policy = name.policy(&cluster, self.asks.len(), &self.typical, seed);
        let mut one = |shape: usize| {
            let ask = &self.asks[shape];
            let spot = policy.spot(&cluster, shape, ask)?;
            cluster.nodes[spot.node].take(ask, spot.devices);
            policy.changed(&cluster, spot.node);
            Some(spot)
        };
        shapes.iter().map(|shape| one(*shape)).collect()
    }

    /// What was allocated and what was in fragments, each a mean over the arrivals at which what has been asked for
    /// rounds to the figure. Apart from the decisions, so that these alone are timed, and checked: a device that is
    /// given twice is found here whatever the policy.
    fn measure(&self, mut cluster: Cluster, shapes: &[usize], spots: &[Option<Spot>]) -> (f64, f64) {
        let all: u64 = cluster.nodes.iter().map(|node| node.gpu_milli()).sum();
        let percent = |milli: f64| 100.0 * milli / all as f64;
        let (mut asked, mut held, mut fragments) = (0, 0, None);
        let (mut allocs, mut frags) = (Vec::new(), Vec::new());
        for (shape, spot) in shapes.iter().zip(spots) {
            let ask = &self.asks[*shape];
            asked += ask.gpu_milli();
            if let Some(spot) = spot {
                let node = &mut cluster.nodes[spot.node];
                let before = fragments.map(|_| self.typical.fragments(node));
                node.take(ask, spot.devices);
                held += ask.gpu_milli();
                let changed = before.map(|before| self.typical.fragments(node) - before);
                fragments = fragments.zip(changed).map(|(fragments, changed)| fragments + changed);
            }
            if percent(asked as f64).round() as u64 == ASKED {
                let of =
                    |cluster: &Cluster| cluster.nodes.iter().map(|node| self.typical.fragments(node)).sum();
                let now: f64 = fragments.unwrap_or_else(|| of(&cluster));
                fragments = Some(now);
                allocs.push((percent(held as f64) * 100.0).round() / 100.0);
                frags.push(percent(now));
            }
        }
        (rounded(mean(&allocs)), rounded(mean(&frags)))
    }
}

/// The mean; nothing where there is nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// To the fourth decimal: the rest is how sums of fractions end.
fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

/// Microseconds that this thread has spent on a core.
fn thread_us() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
