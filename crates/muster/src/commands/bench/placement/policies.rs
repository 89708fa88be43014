//! The published policies, by the rules that give the published numbers; and ours.

mod bestfit;
mod clustering;
mod dotprod;
mod fgd;
mod muster;
mod packing;
mod random;

use clap::ValueEnum;

use super::cluster::Cluster;
use super::policy::{Highest, Policy};
use super::typical::Typical;

/// The largest node that scores of the published runs are normalised to.
const CPU_MAX: f64 = 128_000.0;
const GPU_MAX: u64 = 8_000;

/// A policy by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Name {
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

impl Name {
    /// All, in order.
    pub fn all() -> &'static [Name] {
        Name::value_variants()
    }

    /// What it is called here.
    pub fn text(self) -> &'static str {
        match self {
            Name::Random => "random",
            Name::Bestfit => "bestfit",
            Name::Dotprod => "dotprod",
            Name::Packing => "packing",
            Name::Clustering => "clustering",
            Name::Fgd => "fgd",
            Name::Muster => "muster",
        }
    }

    /// What it is called where its numbers are published.
    pub fn published(self) -> &'static str {
        match self {
            Name::Random => "Random",
            Name::Bestfit => "BestFit",
            Name::Dotprod => "DotProd",
            Name::Packing => "GpuPacking",
            Name::Clustering => "GpuClustering",
            // Ours is compared with the best of them.
            Name::Fgd | Name::Muster => "FGD",
        }
    }

    /// The policy, for an empty cluster.
    pub fn policy(self, cluster: &Cluster, shapes: usize, typical: &Typical, seed: u64) -> Box<dyn Policy> {
        match self {
            Name::Random => Box::new(random::Random::new(seed)),
            Name::Bestfit => Box::new(Highest::new(bestfit::BestFit, cluster, shapes)),
            Name::Dotprod => Box::new(Highest::new(dotprod::DotProd, cluster, shapes)),
            Name::Packing => Box::new(Highest::new(packing::Packing, cluster, shapes)),
            Name::Clustering => Box::new(Highest::new(clustering::Clustering, cluster, shapes)),
            Name::Muster => Box::new(muster::Muster::new(cluster)),
            Name::Fgd => Box::new(Highest::new(fgd::Fgd::new(typical, cluster), cluster, shapes)),
        }
    }
}
