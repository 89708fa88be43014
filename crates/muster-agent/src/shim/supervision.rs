//! Supervises the processes of a gang: reaps them, and signals them as the gang monitor decides.

use std::collections::BTreeSet;

use muster_protocol::agent::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group};

use super::ShimError;
use super::gang_monitor::{GangMonitor, StopAction};
use super::tasks::{RunningGang, SignalTarget};
use super::wakeups::Wakeups;
use crate::attempt_dir::AttemptDir;
use crate::isolation::Isolation;
use crate::proc::{self, Process};
use crate::records::{SignalRecord, UnkillableRecord};
use crate::shim_socket::ShimMessage;
use crate::{attempt_processes, clock};

/// Waits until no process of the gang is left, and returns the monitor with all task exits.
pub(super) fn supervise_until_gone(
    (attempt_dir, isolation): (&AttemptDir, &Isolation),
    gang: &RunningGang,
    mut monitor: GangMonitor,
    wakeups: &mut Wakeups,
) -> Result<GangMonitor, ShimError> {
    let mut terminated = TerminatedContainers::default();
    let (mut is_signalled, mut is_recorded) = (false, false);
    while reap_ended_children(gang, &mut monitor) {
        for message in wakeups.take_messages() {
            match message {
                ShimMessage::RenewSelfFence(renewal) => monitor.renew_self_fence(renewal),
                ShimMessage::StopRecordWritten | ShimMessage::SignalRecordWritten => {} // The record is read below.
            }
        }
        if !is_signalled && let Ok(Some(SignalRecord { signal })) = attempt_dir.signal_record() {
            is_signalled = true; // Once: this shim lives as long as the attempt.
            signal_gang(gang, &live_descendants()?, signal);
        }
        let stop = attempt_dir.stop_record();
        if let Err(error) = &stop {
            eprintln!("the stop record cannot be read; killing the tasks: {error}");
        }
        match monitor.next_action(clock::boot_now_ms(), &stop) {
            StopAction::Wait => terminated.signal_late_ones(isolation)?,
            StopAction::Terminate => match (gang.signals, isolation.container_processes()) {
                (SignalTarget::Containers, Some(_)) => {
                    terminated.is_due = true;
                    terminated.signal_late_ones(isolation)?;
                }
                // Clients whose containers are elsewhere pass the signal on.
                (SignalTarget::Containers, None) => {
                    terminate_gang(gang, &live_descendants()?, OutsideOfTheGroup::Spared)
                }
                (SignalTarget::Processes, _) => {
                    terminate_gang(gang, &live_descendants()?, OutsideOfTheGroup::Signalled)
                }
            },
            StopAction::Kill => {
                isolation.kill(); // At once: processes that fork faster than they are listed do not escape.
                live_descendants()?.iter().for_each(|process| signal_or_log(process, Signal::KILL));
            }
        }
        if !is_recorded && monitor.is_unkillable(clock::boot_now_ms()) {
            is_recorded = true;
            record_unkillable(attempt_dir, &live_descendants()?);
        }
        wakeups.wait_until(monitor.next_due_ms(clock::boot_now_ms())).map_err(ShimError::Wait)?;
    }
    if let Some(output) = &mut wakeups.output {
        output.finish(clock::unix_now_ms());
    }
    Ok(monitor)
}

/// The live descendants of the shim.
pub(super) fn live_descendants() -> Result<Vec<Process>, ShimError> {
    Ok(attempt_processes::descendants(&proc::processes()?, getpid().as_raw_nonzero().get()))
}

/// The containers that have got SIGTERM: each gets it once, also one that appears after the decision.
#[derive(Debug, Default)]
struct TerminatedContainers {
    is_due: bool,
    first_processes: BTreeSet<i32>,
}

impl TerminatedContainers {
    /// SIGTERM for the first process of each container that has not got it.
    fn signal_late_ones(&mut self, isolation: &Isolation) -> Result<(), ShimError> {
        if !self.is_due {
            return Ok(());
        }
        let inside: BTreeSet<i32> = isolation.container_processes().unwrap_or_default().into_iter().collect();
        let table = proc::processes()?;
        let is_first = |process: &&Process| inside.contains(&process.pid) && !inside.contains(&process.parent);
        for process in table.iter().filter(is_first) {
            if self.first_processes.insert(process.pid) {
                signal_or_log(process, Signal::TERM);
            }
        }
        Ok(())
    }
}

/// What happens to processes that left the process group of the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutsideOfTheGroup {
    Signalled,
    Spared,
}

/// Records processes that SIGKILL does not end, for the agent to report.
pub(super) fn record_unkillable(attempt_dir: &AttemptDir, processes: &[Process]) {
    let record = UnkillableRecord { processes: proc::describe(processes) };
    if let Err(error) = attempt_dir.write_unkillable_record(&record) {
        eprintln!("{error}");
    }
}

/// The early signal goes to the process group of the tasks, as SIGTERM does.
fn signal_gang(gang: &RunningGang, processes: &[Process], number: i32) {
    let Some(signal) = Signal::from_named_raw(number) else {
        return eprintln!("there is no signal {number}");
    };
    signal_process_group(gang, processes, &[signal]);
}

/// Signals the process group of the tasks, if one of these processes is in it: the kernel gives the number of an empty group
/// to others.
fn signal_process_group(gang: &RunningGang, processes: &[Process], signals: &[Signal]) {
    let group = gang.process_group.as_raw_nonzero().get();
    if !processes.iter().any(|process| process.group == group) {
        return;
    }
    for signal in signals {
        if let Err(error) = kill_process_group(gang.process_group, *signal) {
            eprintln!("cannot signal the process group: {error}");
        }
    }
}

/// SIGTERM goes to the process group in one call, so that no task can fork between two signals. Processes that left
/// the group are signalled one by one.
fn terminate_gang(gang: &RunningGang, processes: &[Process], outside: OutsideOfTheGroup) {
    let group = gang.process_group.as_raw_nonzero().get();
    // A suspended process cannot react to SIGTERM without SIGCONT.
    signal_process_group(gang, processes, &[Signal::TERM, Signal::CONT]);
    if outside == OutsideOfTheGroup::Signalled {
        let others = processes.iter().filter(|process| process.group != group);
        others.for_each(|process| signal_or_log(process, Signal::TERM));
    }
}

/// Sends a signal, or logs the error: the shim tries again, and the agent sees that the shim has not ended.
pub(super) fn signal_or_log(process: &Process, signal: Signal) {
    if let Err(error) = proc::send_signal(process, signal) {
        eprintln!("cannot signal process {}: {error}", process.pid);
    }
}

/// Reaps the children that have ended. False if no child is left.
pub(super) fn reap_children() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Reaps the children that have ended. False if no child is left; the shim is a subreaper, so then no descendant is
/// left either.
fn reap_ended_children(gang: &RunningGang, monitor: &mut GangMonitor) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => record_reaped_task(gang, pid, status, monitor),
            Ok(None) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
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
