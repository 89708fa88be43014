//! Values only: what was asked (command), what happened (event), what was declined (refusal), why a job waits (verdict), and
//! what the planner proposes (plan).

pub mod command;
pub mod event;
pub mod plan;
pub mod refusal;
pub mod verdict;
