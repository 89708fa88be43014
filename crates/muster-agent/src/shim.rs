//! The shim. Step 10, run: the small process that holds one attempt and outlives the agent.
//!
//! It is the same binary, started as `muster shim <attempt directory>`. The shim leaves the agent's session,
//! becomes the subreaper of its tasks, starts them, waits for them, ends them on a stop record, and writes the exit
//! record when no process is left. An exit record therefore proves that the attempt is over.
//!
//! Tasks do not get a parent-death signal. It would have to be set in the child between fork and exec, which needs
//! `unsafe` or one more exec that would hide why a program could not start, and it reaches direct children only. The
//! proof does not need it: if the shim is killed, the agent finds the tasks by their cgroup (`cgroup.rs`), and by session,
//! process group and environment (`attempt_processes.rs`), and kills them before it reports the end.
//!
//! The shim stays outside the cgroup of its tasks: their limits and their end do not concern it.
//!
//! The shim has one thread, which sleeps until a child ends, a message of the agent arrives or a deadline passes
//! (`wakeups.rs`). It holds the self-fence timer, so a dead agent cannot extend the life of an attempt.
//!
//! The same binary also runs the programs of the site after an attempt (`epilog.rs`) and the health program of the node
//! (`health.rs`), each in a process of its own.
//!
//! The secrets of the job come on its standard input (`secret_input.rs`): they are in no file that outlives the attempt.

mod cpu_affinity;
mod gang_environment;
pub mod gang_monitor;
mod job_files;
mod memory_report;
mod output_keeper;
mod prolog;
pub(crate) mod second_stage;
mod secret_input;
pub(crate) mod task_environment;
mod wakeups;

mod container_task;
mod tasks;

mod supervision;

mod epilog;
mod health;
mod image_pull;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use muster_protocol::agent::{Exit, SecretFile};
use rustix::process::{Signal, getpid, set_child_subreaper, setsid};

use crate::attempt_dir::AttemptDir;
use crate::error::AgentError;
use crate::isolation::Isolation;
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord};
use crate::shim_socket::ShimSocket;
use crate::site_program::{AFTER_ATTEMPT_FLAG, SiteProgram};
use crate::{attempt_processes, clock, proc};
use gang_monitor::GangMonitor;
use image_pull::Image;
use output_keeper::OutputKeeper;
use wakeups::Wakeups;

pub(crate) use health::{HealthOutcome, arguments as health_arguments};

/// Runs the health program of the node.
const HEALTH_PROGRAM_FLAG: &str = "--health-program";

/// The attempt has an exit record, or the agent abandoned the launch. The job itself may have failed.
const EXIT_CODE_SUCCESS: i32 = 0;
/// The shim could not hold the attempt; the reason is in `shim.log`.
const EXIT_CODE_FAILED: i32 = 1;
const EXIT_CODE_USAGE: i32 = 2;

/// Five minutes in total; after that the agent reports an unknown exit.
const EXIT_RECORD_WRITES_MAX: u32 = 150;
const EXIT_RECORD_RETRY_DELAY: Duration = Duration::from_secs(2);
/// How often a process that gets SIGKILL is looked for again.
const KILL_LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Between two looks whether killed programs are gone.
const PROGRAM_END_PAUSE: Duration = Duration::from_millis(10);
/// The same for programs that SIGKILL has not ended for long.
const UNKILLABLE_PAUSE: Duration = Duration::from_secs(1);

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
    #[error("cannot wait for events: {0}")]
    Wait(#[source] std::io::Error),
    #[error("cannot open the lock of the health program: {0}")]
    Lock(#[source] std::io::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
}

/// Runs a shim and returns its exit code. `args` are the arguments after `muster shim`: the attempt directory.
pub fn shim_main(args: impl IntoIterator<Item = OsString>) -> i32 {
    let args: Vec<OsString> = args.into_iter().collect();
    let ran = match args.as_slice() {
        [path] => run_attempt(&AttemptDir::at_path(PathBuf::from(path))),
        [flag, path] if flag == AFTER_ATTEMPT_FLAG => epilog::run(&AttemptDir::at_path(PathBuf::from(path))),
        [flag, path, timeout, lock] if flag == HEALTH_PROGRAM_FLAG => {
            let Some(timeout_ms) = timeout.to_str().and_then(|text| text.parse().ok()) else { return usage() };
            health::run(SiteProgram { path: PathBuf::from(path), timeout_ms }, &PathBuf::from(lock))
        }
        _ => return usage(),
    };
    match ran {
        Ok(()) => EXIT_CODE_SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            EXIT_CODE_FAILED
        }
    }
}

fn usage() -> i32 {
    eprintln!("usage: muster shim <attempt directory> (started by the agent)");
    EXIT_CODE_USAGE
}

/// Leaves the session of the agent, and becomes the parent of all descendants that lose theirs.
fn leave_the_agent() -> Result<(), ShimError> {
    setsid().map_err(ShimError::LeaveSession)?;
    set_child_subreaper(Some(getpid())).map_err(ShimError::BecomeSubreaper)
}

fn run_attempt(attempt_dir: &AttemptDir) -> Result<(), ShimError> {
    leave_the_agent()?;
    let intent =
        attempt_dir.launch_intent()?.ok_or_else(|| ShimError::NoLaunchIntent(attempt_dir.path().to_path_buf()))?;
    let shim = own_shim_record()?;
    if !attempt_dir.try_take_launch_lock(&LaunchLock::Shim(shim.clone()))? {
        return Ok(()); // The agent abandoned this launch and reports the attempt as over.
    }
    // The agent may also have abandoned it, reported its end and cleaned up while this process was on its way here. An exit
    // record is written before that, and stays.
    if attempt_dir.exit_record()?.is_some() || attempt_dir.launch_intent()?.as_ref() != Some(&intent) {
        return Ok(attempt_dir.release_launch_lock()?);
    }
    let isolation = attempt_dir.isolation_of_launch()?;
    let ran = match secret_input::take(&intent.order) {
        Ok(secrets) => run_gang(attempt_dir, &intent, (&isolation, secrets), shim),
        Err(error) => {
            let why = format!("the secrets of the job did not reach its shim: {error}");
            Ok(exit_before_the_start(&intent, Exit::NotStarted(why)))
        }
    };
    if ran.is_err() {
        isolation.kill();
        // The shim cannot supervise the tasks any more, so none may keep running.
        kill_all_descendants(attempt_dir, isolation.limits.unkillable_after_ms)?;
    }
    let ran = ran.map(|exit| container_task::with_container_ends(exit, attempt_dir, &intent.order, &isolation));
    container_task::remove_containers(&intent.order, &isolation);
    end_programs_of_people(attempt_dir, &isolation)?;
    let exit = ran.map(|exit| memory_report::with_memory_kills(exit, attempt_dir, &intent.order, &isolation));
    isolation.remove_cgroups();
    end_programs_of_people(attempt_dir, &isolation)?; // One that has started meanwhile kept the cgroup.
    isolation.remove_cgroups();
    attempt_dir.remove_container_dir();
    isolation.remove_secrets(attempt_dir.path());
    write_exit_record(attempt_dir, &exit?)?;
    attempt_dir.remove_private_tmp(); // Last: it may take minutes, and the end of the attempt must not wait for it.
    Ok(())
}

/// Ends the programs that people run inside the attempt (`exec.rs`). They are not descendants of the shim. One that the kernel
/// does not end is recorded after a while, as a task would be.
fn end_programs_of_people(attempt_dir: &AttemptDir, isolation: &Isolation) -> Result<(), ShimError> {
    let has_run_some = isolation.cgroup.is_none() && attempt_dir.has_noted_exec();
    let since_ms = clock::boot_now_ms();
    let mut is_recorded = false;
    loop {
        let in_cgroup = isolation.kill();
        let found = if has_run_some { attempt_processes::kill_attempt_processes(None, attempt_dir.path())? } else { 0 };
        if in_cgroup.max(found) == 0 {
            return Ok(());
        }
        if !is_recorded && clock::boot_now_ms() - since_ms >= isolation.limits.unkillable_after_ms {
            is_recorded = true;
            let outside = if has_run_some { attempt_processes::find(None, attempt_dir.path())? } else { Vec::new() };
            supervision::record_unkillable(attempt_dir, &[isolation.processes(), outside].concat());
        }
        std::thread::sleep(if is_recorded { UNKILLABLE_PAUSE } else { PROGRAM_END_PAUSE });
    }
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

fn run_gang(
    attempt_dir: &AttemptDir,
    intent: &LaunchIntent,
    (isolation, secrets): (&Isolation, Vec<SecretFile>),
    mut shim: ShimRecord,
) -> Result<ExitRecord, ShimError> {
    if let Some(fence) = intent.self_fence.filter(|fence| fence.has_passed(clock::boot_now_ms())) {
        return Ok(exit_before_the_start(intent, Exit::NotStarted(fence.why())));
    }
    let (socket, self_fence) = match image_pull::ensure_image(attempt_dir, intent, isolation, bind_socket(attempt_dir))?
    {
        Image::Present { socket, self_fence } => (socket, self_fence),
        Image::Missing(exit) => return Ok(exit),
    };
    let unkillable_after_ms = isolation.limits.unkillable_after_ms;
    let mut monitor = GangMonitor::new(intent.order.tasks.len(), self_fence).with_unkillable_after(unkillable_after_ms);
    let programs = attempt_dir.programs()?.unwrap_or_default();
    if let Err(exit) = prolog::run(attempt_dir, intent, &programs, socket.as_ref(), &mut monitor) {
        kill_all_descendants(attempt_dir, unkillable_after_ms)?;
        return Ok(*exit);
    }
    let mut gang = match tasks::start_gang(attempt_dir, &intent.order, isolation, secrets) {
        Ok(gang) => gang,
        Err(error) => {
            isolation.kill();
            kill_all_descendants(attempt_dir, unkillable_after_ms)?;
            return Ok(exit_before_the_start(intent, error.into_exit()));
        }
    };
    let mut wakeups = Wakeups::new(socket).map_err(ShimError::Wait)?;
    shim.process_group = Some(gang.process_group.as_raw_nonzero().get());
    attempt_dir.update_launch_lock(&shim)?;
    let limit_bytes = isolation.limits.log_max_mib.map(|mib| mib << 20);
    wakeups.output = Some(OutputKeeper::new(std::mem::take(&mut gang.logs), limit_bytes));
    let monitor = supervision::supervise_until_gone((attempt_dir, isolation), &gang, monitor, &mut wakeups)?;
    drop(wakeups.into_socket().map_err(ShimError::Wait)?); // The commands of a container runtime are children too.
    Ok(monitor.into_exit_record(&intent.order, clock::unix_now_ms()))
}

/// Without a socket the shim still reads the stop record from time to time, and fences itself if it must.
fn bind_socket(attempt_dir: &AttemptDir) -> Option<ShimSocket> {
    ShimSocket::bind(attempt_dir).inspect_err(|error| eprintln!("cannot receive messages of the agent: {error}")).ok()
}

fn exit_before_the_start(intent: &LaunchIntent, exit: Exit) -> ExitRecord {
    let ended_at_ms = Some(clock::unix_now_ms());
    let placed_at_ms = intent.order.placed_at_ms;
    ExitRecord { exit, stopped: false, placed_at_ms, ended_at_ms, prolog_failed: false }
}

/// Kills the tasks of a gang that started only in part, and what a prolog left. Processes that the kernel does not end are
/// recorded after `unkillable_after_ms`.
fn kill_all_descendants(attempt_dir: &AttemptDir, unkillable_after_ms: i64) -> Result<(), ShimError> {
    let since_ms = clock::boot_now_ms();
    let mut is_recorded = false;
    while supervision::reap_children() {
        let left = supervision::live_descendants()?;
        left.iter().for_each(|process| supervision::signal_or_log(process, Signal::KILL));
        if !is_recorded && clock::boot_now_ms() - since_ms >= unkillable_after_ms {
            is_recorded = true;
            supervision::record_unkillable(attempt_dir, &left);
        }
        std::thread::sleep(KILL_LOOK_INTERVAL);
    }
    Ok(())
}
