//! The simulators: whole clusters in memory, on one thread, in simulated time.
//!
//! No module uses the network or a real clock: the same input gives the same figures on every machine.

pub mod baseline_replay;
pub mod campaign;
pub mod csv_table;
pub mod decision_digest;
pub mod fault_schedule;
pub mod figures;
pub mod gpu_sharing;
pub mod heterogeneous_shares;
pub mod in_memory_scheduler;
pub mod job_log;
pub mod minimise;
pub mod numa;
pub mod placement;
pub mod plots;
pub mod random;
pub mod replan_check;
pub mod run_history;
pub mod sim_cluster;
pub mod sim_loop;
pub mod synthetic;
pub mod trace_replay;
pub mod whatif;
