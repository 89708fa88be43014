//! The objects of the cluster: jobs, nodes, tenants, tokens, secrets, windows, policies and settings, and the amounts that
//! quotas and budgets count.

pub mod budget;
pub mod charge;
pub mod demand;
pub mod enrolment;
pub mod job;
pub mod node;
pub mod policy;
pub mod priority;
pub mod score;
pub mod secret;
pub mod settings;
pub mod shape;
pub mod start_range;
pub mod tenant;
pub mod token;
pub mod window;
