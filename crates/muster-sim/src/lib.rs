//! Clusters that exist in memory only, on one thread, in simulated time.
//!
//! Nothing here touches the network or a clock: the same input gives the same figures everywhere.

pub mod campaign;
pub mod decisions;
pub mod minimise;
pub mod mixed;
pub mod random;
pub mod replay;
pub mod story;
pub mod world;
