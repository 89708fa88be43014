//! The verbs, one per file: the arguments of the verb and the function that runs it.

pub mod audit;
pub mod bench;
pub mod cancel;
pub mod change;
pub mod checkpoint;
pub mod completion;
pub mod config;
pub mod dev;
pub mod doctor;
pub mod events;
pub mod gpu;
pub mod gpus;
pub mod hold;
pub mod job_control;
pub mod logs;
pub mod moves;
pub mod node;
pub mod plan;
pub mod policy;
pub mod ps;
pub mod receipts;
pub mod release;
pub mod requeue;
pub mod run;
pub mod serve;
pub mod show;
pub mod sim;
pub mod submit;
pub mod tenant;
pub mod token;
pub mod usage;
pub mod version;
pub mod wait;
pub mod why;
pub mod window;

pub(crate) use crate::error::{CommandResult, ExitStatus};
