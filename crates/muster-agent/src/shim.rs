//! Step 10, run: the small process that holds one attempt, so that the agent may come and go.
//!
//! It is the same binary, started as `muster shim <folder>`. It leaves the agent's session, becomes the reaper
//! of everything its tasks leave behind, starts them, waits for them, ends what must end, and writes the exit
//! record when nothing is left. An exit record therefore proves that the attempt is dead.
//!
//! Tasks do not get a parent-death signal. It would have to be set in the child between fork and exec, which
//! needs `unsafe` or one more exec that would hide why a program could not start; it reaches direct children
//! only; and it is not needed for the promise: if the shim is killed, the agent finds what it left by session,
//! group and environment (`members.rs`) before it reports the end.
//!
//! Not yet here: another user than the agent's, cgroups and device filters, secrets, the self-fence timer.

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
use crate::{agent_thread, proc};

/// It did what it is for, whatever became of the job.
const EXIT_CODE_SUCCESS: i32 = 0;
/// It could not hold the attempt; its reason is in `shim.log`.
const EXIT_CODE_FAILED: i32 = 1;
/// It was called in a wrong way.
const EXIT_CODE_USAGE: i32 = 2;

/// Five minutes in all; then the end is reported as unknown.
const EXIT_RECORD_WRITES_MAX: u32 = 150;
const EXIT_RECORD_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Why a shim gives up. People find it in `shim.log`.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("cannot leave the session of the agent: {0}")]
    LeaveSession(#[source] rustix::io::Errno),
    #[error("cannot become the reaper of the tasks: {0}")]
    BecomeSubreaper(#[source] rustix::io::Errno),
    #[error("there is no intent in `{0}`")]
    NoLaunchIntent(PathBuf),
    #[error("cannot find this process in /proc")]
    OwnProcessNotFound,
    #[error("cannot start a thread: {0}")]
    ThreadSpawn(#[source] std::io::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Run as shim. `args` are what follows `muster shim`: the folder of the attempt.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let [path] = args.as_slice() else {
        eprintln!("the shim is started by the agent, with the folder of an attempt");
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
    let intent = attempt_dir
        .launch_intent()?
        .ok_or_else(|| ShimError::NoLaunchIntent(attempt_dir.path().to_path_buf()))?;
    let shim = own_shim_record()?;
    if !attempt_dir.try_take_launch_lock(&LaunchLock::Shim(shim.clone()))? {
        return Ok(()); // The agent gave this attempt up before we came; it is reported as over.
    }
    let ran = run_gang(attempt_dir, &intent, shim);
    if ran.is_err() {
        kill_all_descendants()?; // We can no longer hold it, and nobody else could stop it in order.
    }
    write_exit_record(attempt_dir, &ran?)
}

/// A full disk is a likely companion of a job's end, and often somebody makes room: we try for a while.
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

fn run_gang(
    attempt_dir: &AttemptDir,
    intent: &LaunchIntent,
    mut shim: ShimRecord,
) -> Result<ExitRecord, ShimError> {
    let gang = match tasks::start_gang(attempt_dir, &intent.order) {
        Ok(gang) => gang,
        Err(error) => {
            kill_all_descendants()?;
            return Ok(ExitRecord {
                exit: error.into_exit(),
                stopped: false,
                placed_at_ms: intent.order.placed_at_ms,
                ended_at_ms: Some(agent_thread::unix_now_ms()),
            });
        }
    };
    shim.process_group = Some(gang.process_group.as_raw_nonzero().get());
    attempt_dir.update_launch_lock(&shim)?;
    let monitor = supervision::supervise_until_gone(attempt_dir, &gang)?;
    Ok(monitor.into_exit_record(&intent.order, agent_thread::unix_now_ms()))
}

/// After a gang that could not start whole: the ranks that did must not stay.
fn kill_all_descendants() -> Result<(), ShimError> {
    loop {
        supervision::live_descendants()?
            .iter()
            .for_each(|process| supervision::signal_or_log(process, Signal::KILL));
        if supervision::wait_for_any_child().is_none() {
            return Ok(());
        }
    }
}
