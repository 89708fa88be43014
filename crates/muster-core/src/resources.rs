//! Resources of nodes: resource vectors (free or used), device assignments of tasks, feasibility, and the index that
//! finds nodes with enough free space.

mod assignment;
mod device_mask;
mod feasibility;
mod fractions;
mod index;
mod kind;
mod vector;

pub use assignment::DeviceAssignment;
pub use device_mask::{bits, mask};
pub use feasibility::infeasible;
pub use fractions::GpuFractions;
pub use index::{NodeEntry, Rack, RackNodes, ResourceIndex, placed_tasks};
pub(crate) use kind::fit;
pub use kind::{Eligible, GpuKind, InstanceKind, Kind};
pub use vector::ResourceVec;
