//! Resources of nodes: what is free, what is taken, and the index that finds a node with enough of both.

mod assignment;
mod feasibility;
mod fractions;
mod index;
mod kind;
mod vector;

pub use assignment::Seat;
pub use feasibility::infeasible;
pub use fractions::Parts;
pub use index::{Capacity, Filed, Rack, Room, bits, mask, placed_tasks};
pub(crate) use kind::fit;
pub use kind::{Eligible, GpuKind, InstanceKind, Kind};
pub use vector::Free;
