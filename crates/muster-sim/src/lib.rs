//! Clusters that exist in memory only, on one thread, in simulated time.
//!
//! Nothing here touches the network or a clock: the same input gives the same figures everywhere.

pub mod campaign;
pub mod replan_check;
pub mod decision_digest;
pub mod figures;
pub mod run_history;
pub mod job_log;
pub mod minimise;
pub mod heterogeneous_shares;
pub mod plots;
pub mod random;
pub mod trace_replay;
pub mod baseline_replay;
pub mod sim_loop;
pub mod fault_schedule;
pub mod whatif;
pub mod sim_cluster;
