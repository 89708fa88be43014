//! The gang monitor: decides when to send SIGTERM and SIGKILL to a gang, and computes the exit of the gang.
//!
//! Pure: the shim feeds it task exits, stop records and renewals of the self-fence, and performs its actions. All times
//! are those of the boot clock, so that a self-fence deadline counts while the machine is suspended.

use std::collections::BTreeMap;

use muster_protocol::agent::{AttemptOrder, Exit};

use crate::error::AgentError;
use crate::isolation::UNKILLABLE_AFTER_MS;
use crate::records::{ExitRecord, SelfFence, StopRecord};

/// How long a shim waits at most before it reads the stop record again. A message of the agent normally wakes it at
/// once; this covers an agent of an older release, which sends none, and a socket that was deleted with its directory.
/// Shorter than the time after which the agent takes a shim for hung.
pub const SHIM_LOOK_INTERVAL_MS: i64 = 2_000;
/// How often a kill is repeated: no event says that a process forked between the search and the kill.
const KILL_REPEAT_INTERVAL_MS: i64 = 100;
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
    kill_at_ms: Option<i64>,
    /// `None` if the attempt is never fenced by time.
    self_fence: Option<SelfFence>,
    /// Why the running tasks were killed at the self-fence deadline.
    fenced_why: Option<String>,
    was_term_sent: bool,
    was_stopped: bool,
    /// The failure because of which the other tasks are ended.
    causing_failure: Option<Exit>,
    /// When SIGKILL was first sent.
    killed_at_ms: Option<i64>,
    unkillable_after_ms: i64,
}

impl GangMonitor {
    /// A monitor of a gang with this number of running tasks.
    pub fn new(tasks: usize, self_fence: Option<SelfFence>) -> GangMonitor {
        GangMonitor {
            task_count: tasks,
            exits: BTreeMap::new(),
            kill_at_ms: None,
            self_fence,
            fenced_why: None,
            was_term_sent: false,
            was_stopped: false,
            causing_failure: None,
            killed_at_ms: None,
            unkillable_after_ms: UNKILLABLE_AFTER_MS,
        }
    }

    pub fn with_unkillable_after(self, unkillable_after_ms: i64) -> GangMonitor {
        GangMonitor { unkillable_after_ms, ..self }
    }

    /// As it was renewed.
    pub fn self_fence(&self) -> Option<SelfFence> {
        self.self_fence
    }

    /// True if processes are left long after SIGKILL. The caller knows that some are left.
    pub fn is_unkillable(&self, now_ms: i64) -> bool {
        self.killed_at_ms.is_some_and(|killed_at_ms| now_ms.saturating_sub(killed_at_ms) >= self.unkillable_after_ms)
    }

    pub fn record_task_exit(&mut self, rank: u32, exit: Exit) {
        self.exits.insert(rank, exit);
    }

    /// The renewal that counts from the newest heartbeat wins, even if it brings the deadline forward; a message that
    /// was overtaken changes nothing. A deadline that has passed stays passed.
    pub fn renew_self_fence(&mut self, renewal: SelfFence) {
        let order = |fence: &SelfFence| (fence.acknowledged_at_boot_ms, std::cmp::Reverse(fence.within_ms));
        if self.self_fence.is_none_or(|known| order(&known) < order(&renewal)) {
            self.self_fence = Some(renewal);
        }
    }

    /// The action at a time, with the stop record as it was just read.
    pub fn next_action(&mut self, now_ms: i64, stop: &Result<Option<StopRecord>, AgentError>) -> StopAction {
        let all_ended = self.exits.len() == self.task_count;
        if let Some(grace_ms) = requested_grace_ms(stop) {
            self.was_stopped |= !all_ended;
            self.set_kill_deadline(now_ms, grace_ms);
        } else if all_ended {
            self.set_kill_deadline(now_ms, LEFTOVER_GRACE_MS);
        } else if let Some(failed) = self.first_failure() {
            // The tasks that are ended because of this failure must not determine the exit of the gang.
            self.causing_failure.get_or_insert(failed);
            self.set_kill_deadline(now_ms, FAILED_GANG_GRACE_MS);
        }
        self.enforce_self_fence(now_ms, all_ended);
        self.due_action(now_ms)
    }

    /// When the gang is killed if nothing happens before; `None` if nothing limits it.
    pub fn kill_due_ms(&self) -> Option<i64> {
        let fence_at_ms = self.self_fence.map(|fence| fence.deadline_boot_ms());
        self.kill_at_ms.into_iter().chain(fence_at_ms).min()
    }

    /// When the next action is due if nothing happens before.
    pub fn next_due_ms(&self, now_ms: i64) -> i64 {
        match self.kill_due_ms() {
            Some(due_ms) if due_ms <= now_ms => now_ms.saturating_add(KILL_REPEAT_INTERVAL_MS),
            due_ms => due_ms.unwrap_or(i64::MAX).min(now_ms.saturating_add(SHIM_LOOK_INTERVAL_MS)),
        }
    }

    /// The exit record of a gang whose last process was gone at `ended_at_ms`, by the wall clock.
    pub fn into_exit_record(self, order: &AttemptOrder, ended_at_ms: i64) -> ExitRecord {
        let cause = self.causing_failure.clone().or_else(|| self.fenced_why.clone().map(Exit::Unknown));
        let exit = cause.filter(|_| !self.was_stopped).unwrap_or_else(|| self.gang_exit());
        let (placed_at_ms, ended_at_ms) = (order.placed_at_ms, Some(ended_at_ms));
        ExitRecord { exit, stopped: self.was_stopped, placed_at_ms, ended_at_ms, prolog_failed: false }
    }

    /// A grace counts from when it is first seen. A shorter grace brings the deadline forward; a longer one changes
    /// nothing, because the planner already counts on the earlier deadline.
    fn set_kill_deadline(&mut self, now_ms: i64, grace_ms: i64) {
        let by_ms = now_ms.saturating_add(grace_ms);
        self.kill_at_ms = Some(self.kill_at_ms.map_or(by_ms, |known| known.min(by_ms)));
    }

    /// At the deadline everything is killed without grace: the server may start the job elsewhere from then on.
    fn enforce_self_fence(&mut self, now_ms: i64, all_ended: bool) {
        let Some(fence) = self.self_fence.filter(|fence| fence.has_passed(now_ms)) else { return };
        self.set_kill_deadline(now_ms, 0);
        if !all_ended {
            self.fenced_why.get_or_insert_with(|| fence.why());
        }
    }

    fn due_action(&mut self, now_ms: i64) -> StopAction {
        match self.kill_at_ms {
            None => StopAction::Wait,
            Some(by_ms) if now_ms >= by_ms => {
                self.killed_at_ms.get_or_insert(now_ms);
                StopAction::Kill
            }
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
        let mut monitor = GangMonitor::new(tasks, None);
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
    fn processes_that_survive_sigkill_are_unkillable_after_a_while() {
        let mut monitor = GangMonitor::new(1, None).with_unkillable_after(60_000);
        monitor.next_action(0, &stop(1_000));
        assert!(!monitor.is_unkillable(500_000), "no SIGKILL was sent");
        for now_ms in [1_000, 1_100, 50_000] {
            assert_eq!(monitor.next_action(now_ms, &stop(1_000)), StopAction::Kill);
        }
        assert!(!monitor.is_unkillable(60_999));
        assert!(monitor.is_unkillable(61_000), "60 s after the first SIGKILL");
    }

    #[test]
    fn a_kill_deadline_can_be_shortened_and_not_extended() {
        let mut monitor = GangMonitor::new(1, None);
        for (grace_ms, seen_after_ms, ends_after_ms) in
            [(60, 0, 60), (60, 5, 60), (2, 10, 12), (2, 11, 12), (60, 11, 12)]
        {
            monitor.next_action(seen_after_ms, &stop(grace_ms));
            assert_eq!(monitor.kill_at_ms, Some(ends_after_ms), "{grace_ms} ms, seen after {seen_after_ms} ms");
        }
    }

    #[test]
    fn term_is_sent_once_and_kill_repeats_until_the_gang_is_gone() {
        let mut monitor = GangMonitor::new(1, None);
        assert_eq!(monitor.next_action(0, &NO_STOP), StopAction::Wait);
        let acts = [10, 20, 30, 40].map(|now_ms| monitor.next_action(now_ms, &stop(20)));
        assert_eq!(acts, [StopAction::Terminate, StopAction::Wait, StopAction::Kill, StopAction::Kill]);
        monitor.record_task_exit(0, Exit::Signal(9));
        let ended = ExitRecord {
            exit: Exit::Signal(9),
            stopped: true,
            placed_at_ms: test_fixtures::order("job-1", &[]).placed_at_ms,
            ended_at_ms: Some(7),
            prolog_failed: false,
        };
        assert_eq!(record(monitor), ended);
    }

    #[test]
    fn an_unreadable_stop_record_kills_the_gang_at_once() {
        let unreadable = AgentError::Read { path: "stop.json".into(), source: std::io::Error::other("test") };
        assert_eq!(GangMonitor::new(1, None).next_action(0, &Err(unreadable)), StopAction::Kill);
    }

    #[test]
    fn tasks_killed_after_a_failure_do_not_determine_the_gang_exit() {
        let mut monitor = GangMonitor::new(2, None);
        monitor.record_task_exit(1, Exit::Code(3));
        assert_eq!(monitor.next_action(0, &NO_STOP), StopAction::Terminate);
        assert_eq!(monitor.next_action(FAILED_GANG_GRACE_MS, &NO_STOP), StopAction::Kill);
        monitor.record_task_exit(0, Exit::Signal(9));
        let ended = record(monitor);
        assert_eq!((ended.exit, ended.stopped), (Exit::Code(3), false));
    }

    #[test]
    fn a_stop_after_the_last_task_exit_only_shortens_the_leftover_grace() {
        let mut monitor = GangMonitor::new(1, None);
        monitor.record_task_exit(0, Exit::Code(0));
        assert_eq!(monitor.next_action(0, &NO_STOP), StopAction::Terminate);
        assert_eq!(monitor.next_action(1, &stop(0)), StopAction::Kill);
        assert!(!record(monitor).stopped);
    }

    fn fence(acknowledged_at_boot_ms: i64, within_ms: i64) -> SelfFence {
        SelfFence { acknowledged_at_boot_ms, within_ms }
    }

    /// Kills at the deadline and not before, without SIGTERM, and says why.
    #[test]
    fn a_gang_is_killed_at_its_self_fence_deadline() {
        let mut monitor = GangMonitor::new(1, Some(fence(1_000, 300_000)));
        assert_eq!(monitor.next_action(300_999, &NO_STOP), StopAction::Wait);
        assert_eq!(monitor.next_due_ms(300_999), 301_000);
        assert_eq!(monitor.next_action(301_000, &NO_STOP), StopAction::Kill);
        assert_eq!(monitor.next_due_ms(301_000), 301_000 + KILL_REPEAT_INTERVAL_MS);
        monitor.renew_self_fence(fence(300_000, 300_000));
        assert_eq!(monitor.next_action(301_100, &NO_STOP), StopAction::Kill, "too late to renew");
        monitor.record_task_exit(0, Exit::Signal(9));
        let why = "self-fenced: no leader acknowledged a heartbeat for 300 s".to_string();
        let ended = record(monitor);
        assert_eq!((ended.exit, ended.stopped), (Exit::Unknown(why), false));
    }

    #[test]
    fn a_renewal_from_a_newer_heartbeat_moves_the_deadline_and_an_older_one_does_not() {
        let mut monitor = GangMonitor::new(1, Some(fence(1_000, 10_000)));
        for (renewal, deadline_ms, why) in [
            (fence(5_000, 10_000), 15_000, "extended"),
            (fence(4_000, 10_000), 15_000, "overtaken on the way"),
            (fence(4_000, 90_000), 15_000, "a longer time of an older heartbeat"),
            (fence(5_000, 10_000), 15_000, "repeated"),
            (fence(6_000, 3_000), 9_000, "the server shortened the time"),
            (fence(6_000, 20_000), 9_000, "for one heartbeat the shorter time counts"),
        ] {
            monitor.renew_self_fence(renewal);
            assert_eq!(monitor.self_fence.unwrap().deadline_boot_ms(), deadline_ms, "{why}");
        }
        assert_eq!(monitor.next_action(8_999, &NO_STOP), StopAction::Wait);
        assert_eq!(monitor.next_action(9_000, &NO_STOP), StopAction::Kill);
    }

    #[test]
    fn an_attempt_without_self_fence_is_never_killed_by_time_and_still_looks() {
        let mut monitor = GangMonitor::new(1, None);
        assert_eq!(monitor.next_action(i64::MAX, &NO_STOP), StopAction::Wait);
        assert_eq!(monitor.next_due_ms(5), 5 + SHIM_LOOK_INTERVAL_MS);
        monitor.renew_self_fence(fence(1_000, 1_000));
        assert_eq!(monitor.next_action(2_000, &NO_STOP), StopAction::Kill, "the server ordered a fence later");
    }

    #[test]
    fn a_self_fence_does_not_replace_an_exit_or_a_stop_that_came_first() {
        let passed = Some(fence(0, 1_000));
        let mut ended_before = GangMonitor::new(1, passed);
        ended_before.record_task_exit(0, Exit::Code(0));
        assert_eq!(ended_before.next_action(2_000, &NO_STOP), StopAction::Kill, "background processes must not stay");
        assert_eq!(record(ended_before).exit, Exit::Code(0));
        let mut stopping = GangMonitor::new(1, passed);
        assert_eq!(stopping.next_action(500, &stop(60_000)), StopAction::Terminate);
        assert_eq!(stopping.next_action(1_000, &stop(60_000)), StopAction::Kill, "the grace ends with the fence");
        stopping.record_task_exit(0, Exit::Signal(9));
        let ended = record(stopping);
        assert_eq!((ended.exit, ended.stopped), (Exit::Signal(9), true));
    }
}
