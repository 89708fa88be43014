//! The published policies, by the rules that give the published numbers; and ours.

mod bestfit;
mod clustering;
mod dotprod;
mod fgd;
mod muster;
mod packing;
mod random;

use clap::ValueEnum;

use super::cluster::TraceCluster;
use super::policy::{HighestScore, PlacementPolicy};
use super::fragmentation::TargetWorkload;

/// The largest node that scores of the published runs are normalised to.
const CPU_MILLI_MAX: f64 = 128_000.0;
const GPU_MILLI_MAX: u64 = 8_000;

/// A policy by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum PlacementPolicyName {
    /// Any node that has room
    Random,
    /// The node with the least left
    Bestfit,
    /// The node that is least like the pod
    Dotprod,
    /// GPUs in use before free ones, free ones before free nodes
    Packing,
    /// Pods of one size together
    Clustering,
    /// The node on which the least becomes useless to typical pods
    Fgd,
    /// The planner of this product as it is
    Muster,
}

impl PlacementPolicyName {
    /// All, in order.
    pub fn all() -> &'static [PlacementPolicyName] {
        PlacementPolicyName::value_variants()
    }

    /// What it is called here.
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

    /// What it is called where its numbers are published.
    pub fn published_name(self) -> &'static str {
        match self {
            PlacementPolicyName::Random => "Random",
            PlacementPolicyName::Bestfit => "BestFit",
            PlacementPolicyName::Dotprod => "DotProd",
            PlacementPolicyName::Packing => "GpuPacking",
            PlacementPolicyName::Clustering => "GpuClustering",
            // Ours is compared with the best of them.
            PlacementPolicyName::Fgd | PlacementPolicyName::Muster => "FGD",
        }
    }

    /// The policy, for an empty cluster.
    pub fn build_policy(self, cluster: &TraceCluster, shapes: usize, typical: &TargetWorkload, seed: u64) -> Box<dyn PlacementPolicy> {
        match self {
            PlacementPolicyName::Random => Box::new(random::RandomPlacement::new(seed)),
            PlacementPolicyName::Bestfit => Box::new(HighestScore::new(bestfit::BestFit, cluster, shapes)),
            PlacementPolicyName::Dotprod => Box::new(HighestScore::new(dotprod::DotProd, cluster, shapes)),
            PlacementPolicyName::Packing => Box::new(HighestScore::new(packing::Packing, cluster, shapes)),
            PlacementPolicyName::Clustering => Box::new(HighestScore::new(clustering::Clustering, cluster, shapes)),
            PlacementPolicyName::Muster => Box::new(muster::MusterPlacement::new(cluster)),
            PlacementPolicyName::Fgd => Box::new(HighestScore::new(fgd::Fgd::new(typical, cluster), cluster, shapes)),
        }
    }
}
