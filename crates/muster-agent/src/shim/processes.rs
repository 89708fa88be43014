//! The processes of a gang: waiting until they are gone, and ending them as the watch says.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_protocol::agent::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group};

use super::ShimError;
use super::tasks::Gang;
use super::watch::{Act, LOOK_MS, Watch};
use crate::folder::Folder;
use crate::members;
use crate::proc::{self, Process};

/// Wait until no process of the gang is left, and tell what the watch saw.
pub(super) fn until_gone(folder: &Folder, gang: &Gang) -> Result<Watch, ShimError> {
    let reaped = reap_on_a_thread()?;
    let mut watch = Watch::new(gang.tasks.len());
    let began = Instant::now();
    loop {
        match reaped.recv_timeout(Duration::from_millis(LOOK_MS.unsigned_abs())) {
            Ok((pid, status)) => note(gang, pid, status, &mut watch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(watch),
        }
        let stop = folder.stop();
        if let Err(error) = &stop {
            eprintln!("stopping at once: {error}");
        }
        let now_ms = i64::try_from(began.elapsed().as_millis()).unwrap_or(i64::MAX);
        match watch.next(now_ms, &stop) {
            Act::Wait => {}
            Act::Tell => tell(gang, &left()?),
            Act::Kill => left()?.iter().for_each(|process| send(process, Signal::KILL)),
        }
    }
}

/// All that descend from us, and live.
pub(super) fn left() -> Result<Vec<Process>, ShimError> {
    Ok(members::descendants(&proc::processes()?, getpid().as_raw_nonzero().get()))
}

/// The group hears it at once, so that none can fork out of reach; who has left the group hears it alone.
fn tell(gang: &Gang, left: &[Process]) {
    let group = gang.group.as_raw_nonzero().get();
    if left.iter().any(|process| process.group == group) {
        // One that was suspended could not react to its TERM.
        for signal in [Signal::TERM, Signal::CONT] {
            if let Err(error) = kill_process_group(gang.group, signal) {
                eprintln!("cannot signal the group: {error}");
            }
        }
    }
    left.iter().filter(|process| process.group != group).for_each(|process| send(process, Signal::TERM));
}

/// Send a signal, or say why not: we try again, and the agent sees that we have not ended.
pub(super) fn send(process: &Process, signal: Signal) {
    if let Err(error) = proc::signal(process, signal) {
        eprintln!("cannot signal process {}: {error}", process.pid);
    }
}

/// Wait for any child to end. `None` when there is none left; as reaper we then have no descendants either.
pub(super) fn reap_one() -> Option<(Pid, WaitStatus)> {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some(reaped)) => return Some(reaped),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Waiting for children blocks, so it has a thread of its own; the channel closes when no child is left.
fn reap_on_a_thread() -> Result<Receiver<(Pid, WaitStatus)>, ShimError> {
    let (sender, reaped) = mpsc::channel();
    let reap = move || {
        while let Some(ended) = reap_one() {
            if sender.send(ended).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("reaper".to_string()).spawn(reap).map_err(ShimError::Thread)?;
    Ok(reaped)
}

fn note(gang: &Gang, pid: Pid, status: WaitStatus, watch: &mut Watch) {
    if let Some((rank, _)) = gang.tasks.iter().find(|(_, task)| *task == pid) {
        watch.note(*rank, exit_of(status));
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown(format!("wait status {status:?}")),
    }
}
