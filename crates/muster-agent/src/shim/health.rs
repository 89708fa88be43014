//! The health program of a node, in a process of its own: `muster shim --health-program PATH MILLISECONDS LOCK`.
//!
//! The process enforces the time limit even if the agent dies, and holds a lock, so that the program never runs twice at
//! once. It writes the outcome to its standard output.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::PathBuf;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::{ShimError, epilog};
use crate::site_program::{self, SiteProgram};

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HealthOutcome {
    /// `None` if the node is healthy.
    pub failure: Option<String>,
}

/// The arguments of the process, after the shim command.
pub(crate) fn arguments(program: &SiteProgram, lock: PathBuf) -> [OsString; 4] {
    let timeout = OsString::from(program.timeout_ms.to_string());
    [OsString::from(super::HEALTH_PROGRAM_FLAG), program.path.clone().into(), timeout, lock.into()]
}

pub(super) fn run(program: SiteProgram, lock: &PathBuf) -> Result<(), ShimError> {
    super::leave_the_agent()?;
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(lock).map_err(ShimError::Lock)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(()); // A run of the previous agent goes on; it ends within its time limit.
    }
    let ran = site_program::run(&program, None, &[], &mut || None);
    let outcome = HealthOutcome { failure: ran.and(epilog::end_leftovers()).err() };
    println!("{}", muster_json::to_string(&outcome));
    Ok(())
}
