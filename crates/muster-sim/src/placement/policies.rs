//! The published placement policies, by the rules that reproduce the published numbers, and the muster planner.

mod bestfit;
mod clustering;
mod dotprod;
mod fgd;
mod muster;
mod packing;
mod random;

use super::cluster::TraceCluster;
use super::fragmentation::TargetWorkload;
use super::policy::{HighestScore, PlacementPolicy};

/// The largest node, to which the published runs normalise their scores.
const CPU_MILLI_MAX: f64 = 128_000.0;
const GPU_MILLI_MAX: u64 = 8_000;

/// A placement policy by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementPolicyName {
    Random,
    Bestfit,
    Dotprod,
    Packing,
    Clustering,
    Fgd,
    Muster,
}

impl PlacementPolicyName {
    pub const ALL: [PlacementPolicyName; 7] = [
        PlacementPolicyName::Random,
        PlacementPolicyName::Bestfit,
        PlacementPolicyName::Dotprod,
        PlacementPolicyName::Packing,
        PlacementPolicyName::Clustering,
        PlacementPolicyName::Fgd,
        PlacementPolicyName::Muster,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            PlacementPolicyName::Random => "random",
            PlacementPolicyName::Bestfit => "bestfit",
            PlacementPolicyName::Dotprod => "dotprod",
            PlacementPolicyName::Packing => "packing",
            PlacementPolicyName::Clustering => "clustering",
            PlacementPolicyName::Fgd => "fgd",
            PlacementPolicyName::Muster => "muster",
        }
    }

    /// One line of help.
    pub fn about(self) -> &'static str {
        match self {
            PlacementPolicyName::Random => "A random node where the pod fits",
            PlacementPolicyName::Bestfit => "The node with the least capacity left",
            PlacementPolicyName::Dotprod => "The node whose free capacity is least aligned with the request",
            PlacementPolicyName::Packing => "GPUs in use first, then free GPUs, then idle nodes",
            PlacementPolicyName::Clustering => "Pods with the same number of GPUs on the same nodes",
            PlacementPolicyName::Fgd => "The node where fragmentation grows least (fragmentation gradient descent)",
            PlacementPolicyName::Muster => "The planner of muster with its default settings",
        }
    }

    /// The policy's name in the published results. The planner is compared with FGD, the best of the published ones.
    pub fn published_name(self) -> &'static str {
        match self {
            PlacementPolicyName::Random => "Random",
            PlacementPolicyName::Bestfit => "BestFit",
            PlacementPolicyName::Dotprod => "DotProd",
            PlacementPolicyName::Packing => "GpuPacking",
            PlacementPolicyName::Clustering => "GpuClustering",
            PlacementPolicyName::Fgd | PlacementPolicyName::Muster => "FGD",
        }
    }

    /// The policy for an empty cluster.
    pub(super) fn build_policy(
        self,
        cluster: &TraceCluster,
        shapes: usize,
        target: &TargetWorkload,
        seed: u64,
    ) -> Box<dyn PlacementPolicy> {
        match self {
            PlacementPolicyName::Random => Box::new(random::RandomPlacement::new(seed)),
            PlacementPolicyName::Bestfit => Box::new(HighestScore::new(bestfit::BestFit, cluster, shapes)),
            PlacementPolicyName::Dotprod => Box::new(HighestScore::new(dotprod::DotProd, cluster, shapes)),
            PlacementPolicyName::Packing => Box::new(HighestScore::new(packing::Packing, cluster, shapes)),
            PlacementPolicyName::Clustering => Box::new(HighestScore::new(clustering::Clustering, cluster, shapes)),
            PlacementPolicyName::Fgd => Box::new(HighestScore::new(fgd::Fgd::new(target, cluster), cluster, shapes)),
            PlacementPolicyName::Muster => Box::new(muster::MusterPlacement::new(cluster)),
        }
    }
}
