//! The deterministic core of muster: the scheduler as pure functions over an event-sourced state.
//!
//! Three functions make every decision: [`State::decide`] turns a command into events or a refusal, [`State::apply`]
//! changes the state by an event, and [`planner::plan`] proposes what should run next. The crate reads no clock, draws
//! no random number, does no I/O and never blocks: the same inputs give the same decisions, live and in replay.
//!
//! The modules are layers: a module imports only from the modules declared above it. `cargo xtask modules --check`
//! enforces that.

pub mod ids;
pub mod nearest;
pub mod time;

pub mod gpu;
pub mod objects;

pub mod facts;

pub mod estimate;
pub mod resources;

pub mod accounting;
pub mod queue;

pub mod policy;

pub mod state;

pub mod planner;

pub use facts::command::{Actor, Answer, Command};
pub use facts::event::Event;
pub use facts::refusal::Refusal;
pub use ids::{GpuId, JobId, NodeId, TenantId};
pub use objects::job::JobSpec;
pub use objects::settings::Settings;
pub use state::State;
pub use time::Timestamp;
