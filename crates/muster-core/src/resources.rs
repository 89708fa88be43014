//! Resources of nodes: what is free, what is taken, and the index that finds a node with enough of both.

mod assignment;
mod feasibility;
mod fractions;
mod index;
mod kind;
mod vector;

pub use assignment::DeviceAssignment;
pub use feasibility::infeasible;
pub use fractions::GpuFractions;
pub use index::{NodeEntry, Rack, RackNodes, ResourceIndex, bits, mask, placed_tasks};
pub(crate) use kind::fit;
pub use kind::{Eligible, GpuKind, InstanceKind, Kind};
pub use vector::ResourceVec;
