//! Supervises the processes of a gang: reaps them, and signals them as the gang monitor decides.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_protocol::agent::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group};

use super::ShimError;
use super::gang_monitor::{GangMonitor, SHIM_POLL_INTERVAL_MS, StopAction};
use super::tasks::RunningGang;
use crate::attempt_dir::AttemptDir;
use crate::attempt_processes;
use crate::proc::{self, Process};

/// Waits until no process of the gang is left, and returns the monitor with all task exits.
pub(super) fn supervise_until_gone(attempt_dir: &AttemptDir, gang: &RunningGang) -> Result<GangMonitor, ShimError> {
    let reaped = spawn_reaper()?;
    let mut monitor = GangMonitor::new(gang.task_pids.len());
    let started_at = Instant::now();
    loop {
        match reaped.recv_timeout(Duration::from_millis(SHIM_POLL_INTERVAL_MS.unsigned_abs())) {
            Ok((pid, status)) => record_reaped_task(gang, pid, status, &mut monitor),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(monitor),
        }
        let stop = attempt_dir.stop_record();
        if let Err(error) = &stop {
            eprintln!("the stop record cannot be read; killing the tasks: {error}");
        }
        let now_ms = i64::try_from(started_at.elapsed().as_millis()).unwrap_or(i64::MAX);
        match monitor.next_action(now_ms, &stop) {
            StopAction::Wait => {}
            StopAction::Terminate => terminate_gang(gang, &live_descendants()?),
            StopAction::Kill => live_descendants()?.iter().for_each(|process| signal_or_log(process, Signal::KILL)),
        }
    }
}

/// The live descendants of the shim.
pub(super) fn live_descendants() -> Result<Vec<Process>, ShimError> {
    Ok(attempt_processes::descendants(&proc::processes()?, getpid().as_raw_nonzero().get()))
}

/// SIGTERM goes to the process group in one call, so that no task can fork between two signals. Processes that left
/// the group are signalled one by one.
fn terminate_gang(gang: &RunningGang, processes: &[Process]) {
    let group = gang.process_group.as_raw_nonzero().get();
    if processes.iter().any(|process| process.group == group) {
        // A suspended process cannot react to SIGTERM without SIGCONT.
        for signal in [Signal::TERM, Signal::CONT] {
            if let Err(error) = kill_process_group(gang.process_group, signal) {
                eprintln!("cannot signal the process group: {error}");
            }
        }
    }
    processes.iter().filter(|process| process.group != group).for_each(|process| signal_or_log(process, Signal::TERM));
}

/// Sends a signal, or logs the error: the shim tries again, and the agent sees that the shim has not ended.
pub(super) fn signal_or_log(process: &Process, signal: Signal) {
    if let Err(error) = proc::send_signal(process, signal) {
        eprintln!("cannot signal process {}: {error}", process.pid);
    }
}

/// Waits for any child to end. `None` if no child is left; the shim is a subreaper, so then no descendant is left
/// either.
pub(super) fn wait_for_any_child() -> Option<(Pid, WaitStatus)> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some(reaped)) => return Some(reaped),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Reaps children on a thread of its own, because waiting blocks. The channel closes when no child is left.
fn spawn_reaper() -> Result<Receiver<(Pid, WaitStatus)>, ShimError> {
    let (sender, reaped) = mpsc::channel();
    let reap = move || {
        while let Some(ended) = wait_for_any_child() {
            if sender.send(ended).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("reaper".to_string()).spawn(reap).map_err(ShimError::ThreadSpawn)?;
    Ok(reaped)
}

fn record_reaped_task(gang: &RunningGang, pid: Pid, status: WaitStatus, monitor: &mut GangMonitor) {
    if let Some((rank, _)) = gang.task_pids.iter().find(|(_, task)| *task == pid) {
        monitor.record_task_exit(*rank, exit_from_wait_status(status));
    }
}

fn exit_from_wait_status(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown(format!("wait status {status:?}")),
    }
}
