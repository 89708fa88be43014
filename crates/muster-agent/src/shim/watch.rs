//! Waiting for a gang to end, and ending it when it must: TERM, a grace, KILL, until nothing is left.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_protocol::agent::Exit;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group};

use super::ShimError;
use super::tasks::Gang;
use crate::folder::Folder;
use crate::members;
use crate::proc::{self, Process};

/// How often we look for a stop, and how soon a kill is repeated.
const LOOK: Duration = Duration::from_millis(100);
/// For the rest of a gang when one task has failed: they can only wait for the one that is gone.
const GANG_GRACE: Duration = Duration::from_secs(30);
/// For what the tasks left running when they ended by themselves. Nobody waits for it, so it is short.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// Wait until no process of the gang is left. Returns how it ended and whether it had been told to stop.
pub(super) fn until_gone(folder: &Folder, gang: &Gang) -> Result<(Exit, bool), ShimError> {
    let reaped = reap_on_a_thread()?;
    let mut exits = BTreeMap::new();
    let mut ending = Ending::default();
    let mut stopped = false;
    let mut culprit = None;
    loop {
        match reaped.recv_timeout(LOOK) {
            Ok((pid, status)) => note(gang, pid, status, &mut exits),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let exit = whole_exit(gang, &exits);
                return Ok((culprit.filter(|_| !stopped).unwrap_or(exit), stopped));
            }
        }
        let all_ended = exits.len() == gang.tasks.len();
        if let Some(grace) = asked_to_stop(folder) {
            stopped |= !all_ended;
            ending.begin(grace, Instant::now());
        } else if all_ended {
            ending.begin(LEFTOVER_GRACE, Instant::now());
        } else if let Some(failed) = first_failure(&exits) {
            // Whoever is ended for this failure must not speak for the gang.
            culprit.get_or_insert(failed);
            ending.begin(GANG_GRACE, Instant::now());
        }
        ending.carry_on(gang)?;
    }
}

fn first_failure(exits: &BTreeMap<u32, Exit>) -> Option<Exit> {
    exits.values().find(|exit| **exit != Exit::Code(0)).cloned()
}

/// A record we cannot read is no reason to let a job run on: it is there because the job must end.
fn asked_to_stop(folder: &Folder) -> Option<Duration> {
    match folder.stop() {
        Ok(stop) => stop.map(|stop| Duration::from_millis(stop.grace_ms.max(0).unsigned_abs())),
        Err(error) => {
            eprintln!("stopping at once: {error}");
            Some(Duration::ZERO)
        }
    }
}

/// How far the end has come.
#[derive(Debug, Default)]
struct Ending {
    /// By when all must be gone, once the end has begun.
    by: Option<Instant>,
    was_told: bool,
}

impl Ending {
    /// A grace counts from when it is seen first. A shorter one hurries; a longer one changes nothing, because others
    /// were told by when the space is free.
    fn begin(&mut self, grace: Duration, now: Instant) {
        let by = now + grace;
        self.by = Some(self.by.map_or(by, |known| known.min(by)));
    }

    fn carry_on(&mut self, gang: &Gang) -> Result<(), ShimError> {
        let Some(by) = self.by else { return Ok(()) };
        let left = members::descendants(&proc::processes()?, own_pid());
        if Instant::now() >= by {
            left.iter().for_each(|process| send(process, Signal::KILL));
        } else if !self.was_told {
            tell(gang, &left);
        }
        self.was_told = true;
        Ok(())
    }
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

fn note(gang: &Gang, pid: Pid, status: WaitStatus, exits: &mut BTreeMap<u32, Exit>) {
    if let Some((rank, _)) = gang.tasks.iter().find(|(_, task)| *task == pid) {
        exits.insert(*rank, exit_of(status));
    }
}

fn exit_of(status: WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown(format!("wait status {status:?}")),
    }
}

/// The first rank that did not end well speaks for the gang.
fn whole_exit(gang: &Gang, exits: &BTreeMap<u32, Exit>) -> Exit {
    if exits.len() < gang.tasks.len() {
        return Exit::Unknown("a task ended and nobody saw how".to_string());
    }
    first_failure(exits).unwrap_or(Exit::Code(0))
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gang(ranks: &[u32]) -> Gang {
        let pid = Pid::from_raw(77).unwrap();
        Gang { group: pid, tasks: ranks.iter().map(|rank| (*rank, pid)).collect() }
    }

    #[test]
    fn the_first_bad_rank_speaks_for_the_gang() {
        let exits = BTreeMap::from([(0, Exit::Code(0)), (1, Exit::Signal(9)), (2, Exit::Code(3))]);
        assert_eq!(whole_exit(&gang(&[0, 1, 2]), &exits), Exit::Signal(9));
        let exits = BTreeMap::from([(4, Exit::Code(0)), (5, Exit::Code(0))]);
        assert_eq!(whole_exit(&gang(&[4, 5]), &exits), Exit::Code(0));
        assert!(matches!(whole_exit(&gang(&[4, 5, 6]), &exits), Exit::Unknown(_)));
    }

    #[test]
    fn an_end_can_be_hurried_and_not_put_off() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut ending = Ending::default();
        for (grace, seen_after, ends_after) in
            [(60, 0, 60), (60, 5, 60), (2, 10, 12), (2, 11, 12), (60, 11, 12)]
        {
            ending.begin(grace * second, now + seen_after * second);
            assert_eq!(ending.by, Some(now + ends_after * second), "{grace} s, seen after {seen_after} s");
        }
    }
}
