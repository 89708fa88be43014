//! The gang monitor: decides when to send SIGTERM and SIGKILL to a gang, and computes the exit of the gang.
//!
//! Pure: the shim feeds it task exits and stop records, and performs its actions.

use std::collections::BTreeMap;

use muster_protocol::agent::{AttemptOrder, Exit};

use crate::error::AgentError;
use crate::records::{ExitRecord, StopRecord};

/// How often a shim reads the stop record and repeats a kill. It also does so whenever a task has ended.
pub const SHIM_POLL_INTERVAL_MS: i64 = 100;
/// The grace of the other tasks of a gang after one task has failed: they can only wait for the failed one.
const FAILED_GANG_GRACE_MS: i64 = 30_000;
/// The grace of background processes after all tasks have ended. Nothing waits for them, so it is short.
const LEFTOVER_GRACE_MS: i64 = 2_000;

/// The signal for every process of a gang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopAction {
    /// No signal: the gang runs, or is in its grace.
    Wait,
    /// Send SIGTERM. Returned once.
    Terminate,
    /// Send SIGKILL. Returned by every call after the grace.
    Kill,
}

/// Monitors one gang, from when all its tasks run until none of its processes is left.
#[derive(Debug)]
pub struct GangMonitor {
    task_count: usize,
    /// The exits of ended tasks, by rank.
    exits: BTreeMap<u32, Exit>,
    /// When the remaining processes are killed; `None` while the gang runs.
    kill_at_monotonic_ms: Option<i64>,
    was_term_sent: bool,
    was_stopped: bool,
    /// The failure because of which the other tasks are ended.
    causing_failure: Option<Exit>,
}

impl GangMonitor {
    /// A monitor of a gang with this number of running tasks.
    pub fn new(tasks: usize) -> GangMonitor {
        GangMonitor {
            task_count: tasks,
            exits: BTreeMap::new(),
            kill_at_monotonic_ms: None,
            was_term_sent: false,
            was_stopped: false,
            causing_failure: None,
        }
    }

    pub fn record_task_exit(&mut self, rank: u32, exit: Exit) {
        self.exits.insert(rank, exit);
    }

    /// The action at a monotonic time, with the stop record as it was just read.
    pub fn next_action(&mut self, now_monotonic_ms: i64, stop: &Result<Option<StopRecord>, AgentError>) -> StopAction {
        let all_ended = self.exits.len() == self.task_count;
        if let Some(grace_ms) = requested_grace_ms(stop) {
            self.was_stopped |= !all_ended;
            self.set_kill_deadline(now_monotonic_ms, grace_ms);
        } else if all_ended {
            self.set_kill_deadline(now_monotonic_ms, LEFTOVER_GRACE_MS);
        } else if let Some(failed) = self.first_failure() {
            // The tasks that are ended because of this failure must not determine the exit of the gang.
            self.causing_failure.get_or_insert(failed);
            self.set_kill_deadline(now_monotonic_ms, FAILED_GANG_GRACE_MS);
        }
        self.due_action(now_monotonic_ms)
    }

    /// The exit record of a gang whose last process was gone at `ended_at_ms`, by the wall clock.
    pub fn into_exit_record(self, order: &AttemptOrder, ended_at_ms: i64) -> ExitRecord {
        let exit = self.causing_failure.clone().filter(|_| !self.was_stopped).unwrap_or_else(|| self.gang_exit());
        let (placed_at_ms, ended_at_ms) = (order.placed_at_ms, Some(ended_at_ms));
        ExitRecord { exit, stopped: self.was_stopped, placed_at_ms, ended_at_ms }
    }

    /// A grace counts from when it is first seen. A shorter grace brings the deadline forward; a longer one changes
    /// nothing, because the planner already counts on the earlier deadline.
    fn set_kill_deadline(&mut self, now_monotonic_ms: i64, grace_ms: i64) {
        let by_ms = now_monotonic_ms.saturating_add(grace_ms);
        self.kill_at_monotonic_ms = Some(self.kill_at_monotonic_ms.map_or(by_ms, |known| known.min(by_ms)));
    }

    fn due_action(&mut self, now_monotonic_ms: i64) -> StopAction {
        match self.kill_at_monotonic_ms {
            None => StopAction::Wait,
            Some(by_ms) if now_monotonic_ms >= by_ms => StopAction::Kill,
            Some(_) if std::mem::replace(&mut self.was_term_sent, true) => StopAction::Wait,
            Some(_) => StopAction::Terminate,
        }
    }

    /// The exit of the first rank that failed, or code 0.
    fn gang_exit(&self) -> Exit {
        if self.exits.len() < self.task_count {
            return Exit::Unknown("the exit status of a task is unknown".to_string());
        }
        self.first_failure().unwrap_or(Exit::Code(0))
    }

    fn first_failure(&self) -> Option<Exit> {
        self.exits.values().find(|exit| **exit != Exit::Code(0)).cloned()
    }
}

/// An unreadable stop record counts as a stop without grace: the record exists because the attempt must end.
fn requested_grace_ms(stop: &Result<Option<StopRecord>, AgentError>) -> Option<i64> {
    match stop {
        Ok(stop) => stop.as_ref().map(|stop| stop.grace_ms.max(0)),
        Err(_) => Some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures;

    const NO_STOP: Result<Option<StopRecord>, AgentError> = Ok(None);

    fn stop(grace_ms: i64) -> Result<Option<StopRecord>, AgentError> {
        Ok(Some(StopRecord { grace_ms, why: "test".to_string() }))
    }

    fn record(monitor: GangMonitor) -> ExitRecord {
        monitor.into_exit_record(&test_fixtures::order("job-1", &[]), 7)
    }

    fn gang_exit_of(tasks: usize, exits: &[(u32, Exit)]) -> Exit {
        let mut monitor = GangMonitor::new(tasks);
        exits.iter().for_each(|(rank, exit)| monitor.record_task_exit(*rank, exit.clone()));
        record(monitor).exit
    }

    #[test]
    fn the_first_failed_rank_determines_the_gang_exit() {
        let exits = [(0, Exit::Code(0)), (1, Exit::Signal(9)), (2, Exit::Code(3))];
        assert_eq!(gang_exit_of(3, &exits), Exit::Signal(9));
        let exits = [(4, Exit::Code(0)), (5, Exit::Code(0))];
        assert_eq!(gang_exit_of(2, &exits), Exit::Code(0));
        assert!(matches!(gang_exit_of(3, &exits), Exit::Unknown(_)));
    }

    #[test]
    fn a_kill_deadline_can_be_shortened_and_not_extended() {
        let mut monitor = GangMonitor::new(1);
        for (grace_ms, seen_after_ms, ends_after_ms) in
            [(60, 0, 60), (60, 5, 60), (2, 10, 12), (2, 11, 12), (60, 11, 12)]
        {
            monitor.next_action(seen_after_ms, &stop(grace_ms));
            assert_eq!(
                monitor.kill_at_monotonic_ms,
                Some(ends_after_ms),
                "{grace_ms} ms, seen after {seen_after_ms} ms"
            );
        }
    }

    #[test]
    fn term_is_sent_once_and_kill_repeats_until_the_gang_is_gone() {
        let mut monitor = GangMonitor::new(1);
        assert_eq!(monitor.next_action(0, &NO_STOP), StopAction::Wait);
        let acts = [10, 20, 30, 40].map(|now_ms| monitor.next_action(now_ms, &stop(20)));
        assert_eq!(acts, [StopAction::Terminate, StopAction::Wait, StopAction::Kill, StopAction::Kill]);
        monitor.record_task_exit(0, Exit::Signal(9));
        let ended = ExitRecord {
            exit: Exit::Signal(9),
            stopped: true,
            placed_at_ms: test_fixtures::order("job-1", &[]).placed_at_ms,
            ended_at_ms: Some(7),
        };
        assert_eq!(record(monitor), ended);
    }

    #[test]
    fn an_unreadable_stop_record_kills_the_gang_at_once() {
        let unreadable = AgentError::Read { path: "stop.json".into(), source: std::io::Error::other("test") };
        assert_eq!(GangMonitor::new(1).next_action(0, &Err(unreadable)), StopAction::Kill);
    }

    #[test]
    fn tasks_killed_after_a_failure_do_not_determine_the_gang_exit() {
        let mut monitor = GangMonitor::new(2);
        monitor.record_task_exit(1, Exit::Code(3));
        assert_eq!(monitor.next_action(0, &NO_STOP), StopAction::Terminate);
        assert_eq!(monitor.next_action(FAILED_GANG_GRACE_MS, &NO_STOP), StopAction::Kill);
        monitor.record_task_exit(0, Exit::Signal(9));
        let ended = record(monitor);
        assert_eq!((ended.exit, ended.stopped), (Exit::Code(3), false));
    }

    #[test]
    fn a_stop_after_the_last_task_exit_only_shortens_the_leftover_grace() {
        let mut monitor = GangMonitor::new(1);
        monitor.record_task_exit(0, Exit::Code(0));
        assert_eq!(monitor.next_action(0, &NO_STOP), StopAction::Terminate);
        assert_eq!(monitor.next_action(1, &stop(0)), StopAction::Kill);
        assert!(!record(monitor).stopped);
    }
}
