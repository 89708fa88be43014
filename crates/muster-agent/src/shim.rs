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

mod cores;
mod processes;
mod tasks;
pub mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Signal, getpid, set_child_subreaper, setsid};

use crate::error::AgentError;
use crate::folder::Folder;
use crate::records::{Claim, ExitRecord, Intent, ShimRecord};
use crate::{driver, proc};

/// It did what it is for, whatever became of the job.
const DONE: i32 = 0;
/// It could not hold the attempt; its reason is in `shim.log`.
const FAILED: i32 = 1;
/// It was called in a wrong way.
const MISUSED: i32 = 2;

/// Five minutes in all; then the end is reported as unknown.
const RECORD_TRIES: u32 = 150;
const RECORD_PAUSE: Duration = Duration::from_secs(2);

/// Why a shim gives up. People find it in `shim.log`.
#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("cannot leave the session of the agent: {0}")]
    Session(#[source] rustix::io::Errno),
    #[error("cannot become the reaper of the tasks: {0}")]
    Reaper(#[source] rustix::io::Errno),
    #[error("there is no intent in `{0}`")]
    NoIntent(PathBuf),
    #[error("cannot find this process in /proc")]
    Lost,
    #[error("cannot start a thread: {0}")]
    Thread(#[source] std::io::Error),
    #[error(transparent)]
    Record(#[from] AgentError),
}

/// Run as shim. `args` are what follows `muster shim`: the folder of the attempt.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let [path] = args.as_slice() else {
        eprintln!("the shim is started by the agent, with the folder of an attempt");
        return MISUSED;
    };
    match hold(&Folder::at(PathBuf::from(path))) {
        Ok(()) => DONE,
        Err(error) => {
            eprintln!("{error}");
            FAILED
        }
    }
}

fn hold(folder: &Folder) -> Result<(), ShimError> {
    setsid().map_err(ShimError::Session)?;
    set_child_subreaper(Some(getpid())).map_err(ShimError::Reaper)?;
    let intent = folder.intent()?.ok_or_else(|| ShimError::NoIntent(folder.path().to_path_buf()))?;
    let shim = own_record()?;
    if !folder.take(&Claim::Shim(shim.clone()))? {
        return Ok(()); // The agent gave this attempt up before we came; it is reported as over.
    }
    let ran = run(folder, &intent, shim);
    if ran.is_err() {
        kill_all()?; // We can no longer hold it, and nobody else could stop it in order.
    }
    record(folder, &ran?)
}

/// A full disk is a likely companion of a job's end, and often somebody makes room: we try for a while.
fn record(folder: &Folder, exit: &ExitRecord) -> Result<(), ShimError> {
    for _ in 0..RECORD_TRIES {
        match folder.end(exit) {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{error}"),
        }
        std::thread::sleep(RECORD_PAUSE);
    }
    Ok(folder.end(exit)?)
}

fn own_record() -> Result<ShimRecord, ShimError> {
    let own = proc::process(getpid().as_raw_nonzero().get()).ok_or(ShimError::Lost)?;
    Ok(ShimRecord {
        pid: own.pid,
        start_time: own.start_time,
        boot_id: proc::boot_id()?,
        session: own.session,
        group: None,
    })
}

fn run(folder: &Folder, intent: &Intent, mut shim: ShimRecord) -> Result<ExitRecord, ShimError> {
    let gang = match tasks::start(folder, &intent.order) {
        Ok(gang) => gang,
        Err(unfinished) => {
            kill_all()?;
            return Ok(ExitRecord {
                exit: unfinished.into_exit(),
                stopped: false,
                placed_at_ms: intent.order.placed_at_ms,
                ended_at_ms: Some(driver::now_ms()),
            });
        }
    };
    shim.group = Some(gang.group.as_raw_nonzero().get());
    folder.renew(&shim)?;
    let watch = processes::until_gone(folder, &gang)?;
    Ok(watch.into_record(&intent.order, driver::now_ms()))
}

/// After a gang that could not start whole: the ranks that did must not stay.
fn kill_all() -> Result<(), ShimError> {
    loop {
        processes::left()?.iter().for_each(|process| processes::send(process, Signal::KILL));
        if processes::reap_one().is_none() {
            return Ok(());
        }
    }
}
