//! Placement policies on the OpenB trace: how much of a cluster they allocate before pods stop fitting.
//!
//! The rules are those of the published runs (Weng et al., "Beware of Fragmentation", ATC'23): pods arrive one at a
//! time and never end. The figure is the share of GPUs allocated when 130 % of all GPUs have been requested.

mod cluster;
mod fragmentation;
mod openb;
mod policies;
mod policy;
mod replay;

pub use cluster::{DeviceSet, ModelSet, PodPlacement, PodRequest, TraceCluster, TraceNode};
pub use openb::{OpenbTrace, PublishedAllocation, TracePod, TraceWorkload};
pub use policies::PlacementPolicyName;
pub use replay::{AllocationFigures, PreparedWorkload};
