//! Replay of one workload: pods arrive one at a time and never end; a pod that fits no node is dropped.
//!
//! Decisions and figures are separate steps, so that a caller can time the decisions alone.

use super::cluster::{PodPlacement, PodRequest, TraceCluster};
use super::fragmentation::TargetWorkload;
use super::openb::TraceWorkload;
use super::policies::PlacementPolicyName;

/// Figures are taken when this percentage of all GPUs has been requested.
const REQUESTED_PERCENT: u64 = 130;

/// The figures of one replay, in percent of all GPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllocationFigures {
    pub allocated: f64,
    /// Free capacity that the target workload cannot use.
    pub fragmented: f64,
}

/// A workload with its requests deduplicated.
pub struct PreparedWorkload<'a> {
    workload: &'a TraceWorkload,
    /// The distinct requests; a shape is an index here.
    requests: Vec<PodRequest>,
    /// The shape of each pod.
    shapes: Vec<usize>,
    target: TargetWorkload,
}

impl<'a> PreparedWorkload<'a> {
    pub fn of_workload(workload: &'a TraceWorkload) -> PreparedWorkload<'a> {
        let mut requests: Vec<PodRequest> = workload.pods.iter().map(|pod| pod.request).collect();
        requests.sort();
        requests.dedup();
        let shape = |request: &PodRequest| requests.partition_point(|other| other < request);
        let shapes = workload.pods.iter().map(|pod| shape(&pod.request)).collect();
        PreparedWorkload { workload, requests, shapes, target: TargetWorkload::of_pods(&workload.pods) }
    }

    /// The shapes of the pods in the arrival order of a seed.
    pub fn arriving_shapes(&self, seed: u64) -> Vec<usize> {
        let arrivals = self.workload.arrivals.get(&seed).map(Vec::as_slice).unwrap_or_default();
        arrivals.iter().map(|pod| self.shapes[*pod]).collect()
    }

    /// The placement of each arriving pod, by a policy that starts on an empty cluster.
    pub fn place_all(
        &self,
        mut cluster: TraceCluster,
        policy: PlacementPolicyName,
        seed: u64,
        arrivals: &[usize],
    ) -> Vec<Option<PodPlacement>> {
        let mut policy = policy.build_policy(&cluster, self.requests.len(), &self.target, seed);
        let mut place = |shape: usize| {
            let request = &self.requests[shape];
            let placement = policy.place(&cluster, shape, request)?;
            cluster.nodes[placement.node].allocate(request, placement.devices);
            policy.node_changed(&cluster, placement.node);
            Some(placement)
        };
        arrivals.iter().map(|shape| place(*shape)).collect()
    }

    /// The figures of these placements on an empty cluster: the mean over the arrivals at which the requested
    /// percentage rounds to [`REQUESTED_PERCENT`]. A GPU that a policy allocated twice fails an assertion here.
    pub fn figures(
        &self,
        mut cluster: TraceCluster,
        arrivals: &[usize],
        placements: &[Option<PodPlacement>],
    ) -> AllocationFigures {
        let all: u64 = cluster.nodes.iter().map(|node| node.gpu_milli_free()).sum();
        let percent = |milli: f64| 100.0 * milli / all as f64;
        let (mut requested, mut allocated, mut fragmented) = (0, 0, None);
        let (mut allocated_samples, mut fragmented_samples) = (Vec::new(), Vec::new());
        for (shape, placement) in arrivals.iter().zip(placements) {
            let request = &self.requests[*shape];
            requested += request.gpu_milli_total();
            if let Some(placement) = placement {
                let node = &mut cluster.nodes[placement.node];
                let before = fragmented.map(|_| self.target.fragmentation_milli(node));
                node.allocate(request, placement.devices);
                allocated += request.gpu_milli_total();
                let added = before.map(|before| self.target.fragmentation_milli(node) - before);
                fragmented = fragmented.zip(added).map(|(fragmented, added)| fragmented + added);
            }
            if percent(requested as f64).round() as u64 == REQUESTED_PERCENT {
                let now: f64 = fragmented.unwrap_or_else(|| self.fragmentation_milli(&cluster));
                fragmented = Some(now);
                allocated_samples.push((percent(allocated as f64) * 100.0).round() / 100.0);
                fragmented_samples.push(percent(now));
            }
        }
        AllocationFigures {
            allocated: round_4(mean(&allocated_samples)),
            fragmented: round_4(mean(&fragmented_samples)),
        }
    }

    fn fragmentation_milli(&self, cluster: &TraceCluster) -> f64 {
        cluster.nodes.iter().map(|node| self.target.fragmentation_milli(node)).sum()
    }
}

/// The mean; 0 without values.
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Rounded to four decimals, beyond which only rounding errors of sums remain.
fn round_4(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
