//! Clusters that exist in memory only, on one thread, in simulated time.
//!
//! Nothing here touches the network or a clock: the same input gives the same figures everywhere.

pub mod campaign;
pub mod decisions;
pub mod digest;
pub mod figures;
pub mod history;
pub mod jobs;
pub mod minimise;
pub mod mixed;
pub mod plots;
pub mod random;
pub mod rehearsal;
pub mod replay;
pub mod stage;
pub mod story;
pub mod whatif;
pub mod world;
