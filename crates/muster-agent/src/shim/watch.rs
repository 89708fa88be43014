//! When a gang must end and how it ended: TERM, a grace, KILL. Pure: the shim tells it what it sees and does
//! what it says.

use std::collections::BTreeMap;

use muster_protocol::agent::{Exit, Order};

use crate::error::AgentError;
use crate::records::{ExitRecord, StopRecord};

/// How often a shim looks for a stop, and how soon a kill is repeated. It also looks whenever a task has
/// ended.
pub const LOOK_MS: i64 = 100;
/// For the rest of a gang when one task has failed: they can only wait for the one that is gone.
const GANG_GRACE_MS: i64 = 30_000;
/// For what the tasks left running when they ended by themselves. Nobody waits for it, so it is short.
const LEFTOVER_GRACE_MS: i64 = 2_000;

/// What to do to every process that is left of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Nothing: it runs, or it was told and has its grace.
    Wait,
    /// Send TERM. Said once.
    Tell,
    /// Send KILL. Said at each look from then on.
    Kill,
}

/// The eye on one gang, from when all its tasks run until none of its processes is left.
#[derive(Debug)]
pub struct Watch {
    tasks: usize,
    /// By rank, of the tasks that ended.
    exits: BTreeMap<u32, Exit>,
    /// By when all must be gone, once the end has begun.
    by_ms: Option<i64>,
    was_told: bool,
    stopped: bool,
    /// The failure for which the others are ended.
    culprit: Option<Exit>,
}

impl Watch {
    /// Over so many running tasks.
    pub fn new(tasks: usize) -> Watch {
        Watch { tasks, exits: BTreeMap::new(), by_ms: None, was_told: false, stopped: false, culprit: None }
    }

    /// A task has ended.
    pub fn note(&mut self, rank: u32, exit: Exit) {
        self.exits.insert(rank, exit);
    }

    /// Look, at a time that only grows, with the stop record as it was read just now.
    pub fn next(&mut self, now_mono_ms: i64, stop: &Result<Option<StopRecord>, AgentError>) -> Act {
        let all_ended = self.exits.len() == self.tasks;
        if let Some(grace_ms) = grace_ms(stop) {
            self.stopped |= !all_ended;
            self.begin(now_mono_ms, grace_ms);
        } else if all_ended {
            self.begin(now_mono_ms, LEFTOVER_GRACE_MS);
        } else if let Some(failed) = self.first_failure() {
            // Whoever is ended for this failure must not speak for the gang.
            self.culprit.get_or_insert(failed);
            self.begin(now_mono_ms, GANG_GRACE_MS);
        }
        self.carry_on(now_mono_ms)
    }

    /// Nothing is left of it since `ended_at_ms`, by the wall clock: what to write down.
    pub fn into_record(self, order: &Order, ended_at_ms: i64) -> ExitRecord {
        let exit = self.culprit.clone().filter(|_| !self.stopped).unwrap_or_else(|| self.whole_exit());
        let (placed_at_ms, ended_at_ms) = (order.placed_at_ms, Some(ended_at_ms));
        ExitRecord { exit, stopped: self.stopped, placed_at_ms, ended_at_ms }
    }

    /// A grace counts from when it is seen first. A shorter one hurries; a longer one changes nothing,
    /// because others were told by when the space is free.
    fn begin(&mut self, now_mono_ms: i64, grace_ms: i64) {
        let by_ms = now_mono_ms.saturating_add(grace_ms);
        self.by_ms = Some(self.by_ms.map_or(by_ms, |known| known.min(by_ms)));
    }

    fn carry_on(&mut self, now_mono_ms: i64) -> Act {
        match self.by_ms {
            None => Act::Wait,
            Some(by_ms) if now_mono_ms >= by_ms => Act::Kill,
            Some(_) if std::mem::replace(&mut self.was_told, true) => Act::Wait,
            Some(_) => Act::Tell,
        }
    }

    /// The first rank that did not end well speaks for the gang.
    fn whole_exit(&self) -> Exit {
        if self.exits.len() < self.tasks {
            return Exit::Unknown("a task ended and nobody saw how".to_string());
        }
        self.first_failure().unwrap_or(Exit::Code(0))
    }

    fn first_failure(&self) -> Option<Exit> {
        self.exits.values().find(|exit| **exit != Exit::Code(0)).cloned()
    }
}

/// A record we cannot read is no reason to let a job run on: it is there because the job must end.
fn grace_ms(stop: &Result<Option<StopRecord>, AgentError>) -> Option<i64> {
    match stop {
        Ok(stop) => stop.as_ref().map(|stop| stop.grace_ms.max(0)),
        Err(_) => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    const RUNS: Result<Option<StopRecord>, AgentError> = Ok(None);

    fn stop(grace_ms: i64) -> Result<Option<StopRecord>, AgentError> {
        Ok(Some(StopRecord { grace_ms, why: "test".to_string() }))
    }

    fn record(watch: Watch) -> ExitRecord {
        watch.into_record(&sample::order("job-1", &[]), 7)
    }

    fn exit_of(tasks: usize, exits: &[(u32, Exit)]) -> Exit {
        let mut watch = Watch::new(tasks);
        exits.iter().for_each(|(rank, exit)| watch.note(*rank, exit.clone()));
        record(watch).exit
    }

    #[test]
    fn the_first_bad_rank_speaks_for_the_gang() {
        let exits = [(0, Exit::Code(0)), (1, Exit::Signal(9)), (2, Exit::Code(3))];
        assert_eq!(exit_of(3, &exits), Exit::Signal(9));
        let exits = [(4, Exit::Code(0)), (5, Exit::Code(0))];
        assert_eq!(exit_of(2, &exits), Exit::Code(0));
        assert!(matches!(exit_of(3, &exits), Exit::Unknown(_)));
    }

    #[test]
    fn an_end_can_be_hurried_and_not_put_off() {
        let mut watch = Watch::new(1);
        for (grace_ms, seen_after_ms, ends_after_ms) in
            [(60, 0, 60), (60, 5, 60), (2, 10, 12), (2, 11, 12), (60, 11, 12)]
        {
            watch.next(seen_after_ms, &stop(grace_ms));
            assert_eq!(watch.by_ms, Some(ends_after_ms), "{grace_ms} ms, seen after {seen_after_ms} ms");
        }
    }

    #[test]
    fn it_is_told_once_and_killed_until_it_is_gone() {
        let mut watch = Watch::new(1);
        assert_eq!(watch.next(0, &RUNS), Act::Wait);
        let acts = [10, 20, 30, 40].map(|now_ms| watch.next(now_ms, &stop(20)));
        assert_eq!(acts, [Act::Tell, Act::Wait, Act::Kill, Act::Kill]);
        watch.note(0, Exit::Signal(9));
        let ended = ExitRecord {
            exit: Exit::Signal(9),
            stopped: true,
            placed_at_ms: sample::order("job-1", &[]).placed_at_ms,
            ended_at_ms: Some(7),
        };
        assert_eq!(record(watch), ended);
    }

    #[test]
    fn a_stop_that_cannot_be_read_ends_it_at_once() {
        let unreadable = AgentError::Read { path: "stop.json".into(), source: std::io::Error::other("test") };
        assert_eq!(Watch::new(1).next(0, &Err(unreadable)), Act::Kill);
    }

    #[test]
    fn whoever_is_ended_for_a_failure_does_not_speak() {
        let mut watch = Watch::new(2);
        watch.note(1, Exit::Code(3));
        assert_eq!(watch.next(0, &RUNS), Act::Tell);
        assert_eq!(watch.next(GANG_GRACE_MS, &RUNS), Act::Kill);
        watch.note(0, Exit::Signal(9));
        let ended = record(watch);
        assert_eq!((ended.exit, ended.stopped), (Exit::Code(3), false));
    }

    #[test]
    fn a_stop_after_the_last_task_only_hurries_what_it_left() {
        let mut watch = Watch::new(1);
        watch.note(0, Exit::Code(0));
        assert_eq!(watch.next(0, &RUNS), Act::Tell);
        assert_eq!(watch.next(1, &stop(0)), Act::Kill);
        assert!(!record(watch).stopped);
    }
}
