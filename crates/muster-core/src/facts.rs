//! Values without behaviour: requests (command), recorded changes (event), declined requests (refusal), reasons to wait
//! (verdict), and the planner's proposal (plan).

pub mod command;
pub mod event;
pub mod plan;
pub mod refusal;
pub mod verdict;
