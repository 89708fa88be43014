//! The shim. Step 10, run: the small process that holds one attempt and outlives the agent.
//!
//! It is the same binary, started as `muster shim <attempt directory>`. The shim leaves the agent's session,
//! becomes the subreaper of its tasks, starts them, waits for them, ends them on a stop record, and writes the exit
//! record when no process is left. An exit record therefore proves that the attempt is over.
//!
//! Tasks do not get a parent-death signal. It would have to be set in the child between fork and exec, which needs
//! `unsafe` or one more exec that would hide why a program could not start, and it reaches direct children only. The
//! proof does not need it: if the shim is killed, the agent finds the tasks by session, process group and environment
//! (`attempt_processes.rs`) and kills them before it reports the end.
//!
//! Not implemented yet: another user than the agent's, cgroups and device filters, secrets, the self-fence timer.

mod cpu_affinity;
pub mod gang_monitor;
mod supervision;
mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Signal, getpid, set_child_subreaper, setsid};

use crate::attempt_dir::AttemptDir;
use crate::error::AgentError;
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord};
use crate::{clock, proc};

/// The attempt has an exit record, or the agent abandoned the launch. The job itself may have failed.
const EXIT_CODE_SUCCESS: i32 = 0;
/// The shim could not hold the attempt; the reason is in `shim.log`.
const EXIT_CODE_FAILED: i32 = 1;
const EXIT_CODE_USAGE: i32 = 2;

/// Five minutes in total; after that the agent reports an unknown exit.
const EXIT_RECORD_WRITES_MAX: u32 = 150;
const EXIT_RECORD_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Why a shim failed. Written to `shim.log`.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("cannot leave the session of the agent: {0}")]
    LeaveSession(#[source] rustix::io::Errno),
    #[error("cannot become the subreaper of the tasks: {0}")]
    BecomeSubreaper(#[source] rustix::io::Errno),
    #[error("`{0}` has no launch intent (intent.json)")]
    NoLaunchIntent(PathBuf),
    #[error("cannot find this process in /proc")]
    OwnProcessNotFound,
    #[error("cannot start a thread: {0}")]
    ThreadSpawn(#[source] std::io::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Runs a shim and returns its exit code. `args` are the arguments after `muster shim`: the attempt directory.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let [path] = args.as_slice() else {
        eprintln!("usage: muster shim <attempt directory> (started by the agent)");
        return EXIT_CODE_USAGE;
    };
    match run_attempt(&AttemptDir::at_path(PathBuf::from(path))) {
        Ok(()) => EXIT_CODE_SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            EXIT_CODE_FAILED
        }
    }
}

fn run_attempt(attempt_dir: &AttemptDir) -> Result<(), ShimError> {
    setsid().map_err(ShimError::LeaveSession)?;
    set_child_subreaper(Some(getpid())).map_err(ShimError::BecomeSubreaper)?;
    let intent =
        attempt_dir.launch_intent()?.ok_or_else(|| ShimError::NoLaunchIntent(attempt_dir.path().to_path_buf()))?;
    let shim = own_shim_record()?;
    if !attempt_dir.try_take_launch_lock(&LaunchLock::Shim(shim.clone()))? {
        return Ok(()); // The agent abandoned this launch and reports the attempt as over.
    }
    let ran = run_gang(attempt_dir, &intent, shim);
    if ran.is_err() {
        kill_all_descendants()?; // The shim cannot supervise the tasks any more, so none may keep running.
    }
    write_exit_record(attempt_dir, &ran?)
}

/// Writes the exit record, with retries: a full disk is likely at the end of a job, and often somebody frees space.
fn write_exit_record(attempt_dir: &AttemptDir, exit: &ExitRecord) -> Result<(), ShimError> {
    for _ in 0..EXIT_RECORD_WRITES_MAX {
        match attempt_dir.write_exit_record(exit) {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error}"),
        }
        std::thread::sleep(EXIT_RECORD_RETRY_DELAY);
    }
    Ok(attempt_dir.write_exit_record(exit)?)
}

fn own_shim_record() -> Result<ShimRecord, ShimError> {
    let own = proc::process(getpid().as_raw_nonzero().get()).ok_or(ShimError::OwnProcessNotFound)?;
    Ok(ShimRecord {
        pid: own.pid,
        start_time: own.start_time,
        boot_id: proc::boot_id()?,
        session: own.session,
        process_group: None,
    })
}

fn run_gang(attempt_dir: &AttemptDir, intent: &LaunchIntent, mut shim: ShimRecord) -> Result<ExitRecord, ShimError> {
    let gang = match tasks::start_gang(attempt_dir, &intent.order) {
        Ok(gang) => gang,
        Err(error) => {
            kill_all_descendants()?;
            return Ok(ExitRecord {
                exit: error.into_exit(),
                stopped: false,
                placed_at_ms: intent.order.placed_at_ms,
                ended_at_ms: Some(clock::unix_now_ms()),
            });
        }
    };
    shim.process_group = Some(gang.process_group.as_raw_nonzero().get());
    attempt_dir.update_launch_lock(&shim)?;
    let monitor = supervision::supervise_until_gone(attempt_dir, &gang)?;
    Ok(monitor.into_exit_record(&intent.order, clock::unix_now_ms()))
}

/// Kills the tasks of a gang that started only in part.
fn kill_all_descendants() -> Result<(), ShimError> {
    loop {
        supervision::live_descendants()?.iter().for_each(|process| supervision::signal_or_log(process, Signal::KILL));
        if supervision::wait_for_any_child().is_none() {
            return Ok(());
        }
    }
}
