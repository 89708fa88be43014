//! The pure heart of muster.
//!
//! Three functions carry the product: [`State::decide`] says which facts may happen, [`State::apply`] makes
//! them true, [`plan::plan`] proposes what should happen next. Nothing here reads a clock, draws a random
//! number, touches a file or waits: the same inputs give the same decisions, live and replayed.
//!
//! The modules stand in the order in which a job meets them.

pub mod ids;
pub mod nearest;
pub mod time;

pub mod demand;
pub mod job;
pub mod mig;
pub mod model;
pub mod node;
pub mod partition;
pub mod recent;
pub mod share;
pub mod tenant;
pub mod token;
pub mod wiring;

pub mod command;
pub mod event;
pub mod refusal;
pub mod rules;
pub mod settings;

pub mod budget;
pub mod capacity;
pub mod foresight;
mod guarantee;
mod haste;
pub mod lasting;
pub mod ledger;
mod limits;
pub mod loss;
pub mod mix;
mod model_guarantee;
mod models;
pub mod past;
pub mod policy;
pub mod queue;
pub mod runtimes;
pub mod state;
mod users;
pub mod waste;

pub mod plan;
pub mod verdict;
pub mod window;

pub use command::{Actor, Answer, Command};
pub use event::Event;
pub use ids::{GpuId, JobId, NodeId, TenantId};
pub use job::{Job, JobSpec};
pub use node::Node;
pub use refusal::Refusal;
pub use settings::Settings;
pub use state::State;
pub use tenant::Tenant;
pub use time::Timestamp;
