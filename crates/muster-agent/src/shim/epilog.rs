//! The programs after an attempt, in a process of their own: `muster shim --after-attempt <attempt directory>`.
//!
//! The agent starts the process when the exit record is there, whether the shim wrote it or the agent after a lost shim. The
//! process outlives the agent and records how the programs ended. If it is killed before that, the agent starts another:
//! an epilog runs once, and again after a crash.

use std::time::{Duration, Instant};

use rustix::process::{Signal, WaitOptions};

use super::{ShimError, own_shim_record, supervision};
use crate::attempt_dir::AttemptDir;
use crate::records::{EpilogRecord, EpilogResult};
use crate::site_program::{self, AttemptPrograms};

/// How long the processes that a program left are killed before they are reported.
const LEFTOVER_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Five minutes in total; after that the agent runs the programs again.
const RESULT_WRITES_MAX: u32 = 150;
const RESULT_RETRY_DELAY: Duration = Duration::from_secs(2);

pub(super) fn run(attempt_dir: &AttemptDir) -> Result<(), ShimError> {
    super::leave_the_agent()?;
    let programs = attempt_dir.programs()?.unwrap_or_default();
    let running = EpilogRecord { runner: own_shim_record()?, result: None };
    if !attempt_dir.try_take_epilog_lock(&running)? {
        return Ok(()); // Another process runs them.
    }
    if attempt_dir.launch_intent()?.is_none() {
        return Ok(attempt_dir.remove_epilog_record()?); // Another process has run them, and the agent has cleaned up since.
    }
    let result = run_programs(attempt_dir, &programs)?;
    let record = EpilogRecord { result: Some(result), ..running };
    for _ in 1..RESULT_WRITES_MAX {
        match attempt_dir.write_epilog_record(&record) {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error}"),
        }
        std::thread::sleep(RESULT_RETRY_DELAY);
    }
    Ok(attempt_dir.write_epilog_record(&record)?)
}

fn run_programs(attempt_dir: &AttemptDir, programs: &AttemptPrograms) -> Result<EpilogResult, ShimError> {
    let mut result = EpilogResult::default();
    if let Some(epilog) = &programs.epilog {
        let order = attempt_dir.launch_intent()?.map(|intent| intent.order);
        let exit = attempt_dir.exit_record()?.map(|record| record.exit);
        let mut environment =
            order.map(|order| site_program::attempt_environment(&order, attempt_dir.path())).unwrap_or_default();
        environment.extend(exit.iter().flat_map(site_program::exit_environment));
        let ran = site_program::run(epilog, programs.user.as_ref(), &environment, &mut || None);
        result.epilog_failure = ran.and(end_leftovers()).err();
    }
    if let Some(health) = &programs.health {
        let ran = site_program::run(health, None, &[], &mut || None);
        result.health_failure = ran.and(end_leftovers()).err();
    }
    Ok(result)
}

/// Kills the processes that a program left behind: they would use what the next job gets.
pub(super) fn end_leftovers() -> Result<(), String> {
    let since = Instant::now();
    loop {
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        let left = supervision::live_descendants().map_err(|error| error.to_string())?;
        if left.is_empty() {
            return Ok(());
        }
        if since.elapsed() > LEFTOVER_TIMEOUT {
            return Err(format!("processes that it left cannot be killed: {}", crate::proc::describe(&left)));
        }
        left.iter().for_each(|process| supervision::signal_or_log(process, Signal::KILL));
        std::thread::sleep(LOOK_INTERVAL);
    }
}
