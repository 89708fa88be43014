//! Step 11, report: an agent reports on its part of an attempt; at the end of an attempt, the job's next phase (step
//! 12).

use crate::accounting::ledger::{charge, held};
use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::facts::command::TaskReport;
use crate::facts::event::{Event, NextPhase, PreemptionReceipt, RequeueCause};
use crate::facts::refusal::Refusal;
use crate::ids::{JobId, NodeId};
use crate::objects::job::{Attempt, Exit, Job, NodeReport, OnNodeLost, Outcome, StopCause};
use crate::objects::policy::Hook;
use crate::state::State;
use crate::state::decision::Decision;
use crate::time::{MINUTE, Timestamp};

/// The longest backoff after failed launches and restarts.
const BACKOFF_MS_MAX: i64 = 10 * MINUTE;

/// How one node's part of an attempt ended.
pub(super) struct PartEnd<'a> {
    pub exit: &'a Exit,
    pub stopped: bool,
    /// When its processes were gone, if known.
    pub ended_at: Option<Timestamp>,
    pub prolog_failed: bool,
}

impl State {
    pub(super) fn decide_report(
        &self,
        node: &NodeId,
        id: JobId,
        number: u32,
        report: &TaskReport,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let stale = || Refusal::StaleReport { job: id, attempt: number, node: node.clone() };
        let job = self.jobs.get(&id).ok_or_else(stale)?;
        let attempt = job.attempt().filter(|attempt| attempt.number == number).ok_or_else(stale)?;
        if !attempt.tasks.iter().any(|task| task.node == *node) {
            return Err(stale());
        }
        let mut events = Vec::new();
        match (report, attempt.reports.get(node)) {
            // A checkpoint covers the whole gang, so any of its nodes may report it.
            (TaskReport::Saved, _) => events.push(saved(job, attempt, now)),
            (TaskReport::EpilogFailed { why }, _) => {
                events.extend(self.drained(node, format!("epilog failed after {id}: {why}"), now));
            }
            // Agents repeat a report until it is acknowledged.
            (_, Some(NodeReport::Ended { .. })) | (TaskReport::Started, Some(NodeReport::Started)) => {}
            (TaskReport::Started, None) => events.push(started(job, attempt, node, now)),
            (TaskReport::Ended { exit, stopped, ended_ms_ago }, _) => {
                let ended_at = ended_ms_ago.map(|ms| ended_at(attempt, ms, now));
                let end = PartEnd { exit, stopped: *stopped, ended_at, prolog_failed: false };
                self.end_part(job, node, &end, now, &mut events);
                self.settle_ends(&mut events, now);
            }
            (TaskReport::PrologFailed { why }, _) => {
                // Drained first: otherwise the job, which keeps its place in the queue, would be launched there again.
                events.extend(self.drained(node, why.clone(), now));
                let exit = &Exit::NotStarted { why: why.clone() };
                let end = PartEnd { exit, stopped: false, ended_at: Some(now), prolog_failed: true };
                self.end_part(job, node, &end, now, &mut events);
                self.settle_ends(&mut events, now);
            }
            (TaskReport::Unkillable { .. }, _) if attempt.unkillable.is_some() => {}
            (TaskReport::Unkillable { processes }, _) => {
                let why = format!("processes of {id} survive SIGKILL: {processes}");
                events.extend(self.drained(node, why, now));
                let (node, processes) = (node.clone(), processes.clone());
                events.push(Event::AttemptUnkillable { job: id, attempt: number, node, processes, at: now });
            }
        }
        Ok(Decision::done(events))
    }

    /// End one node's part of an attempt; with the last part the attempt ends.
    pub(super) fn end_part(&self, job: &Job, node: &NodeId, end: &PartEnd, now: Timestamp, events: &mut Vec<Event>) {
        let Some(attempt) = job.attempt() else { return };
        let others = attempt.nodes().into_iter().filter(|other| other != node);
        let open = others.filter(|other| !matches!(attempt.reports.get(other), Some(NodeReport::Ended { .. }))).count();
        if open == 0 {
            events.push(self.attempt_ended(job, attempt, end, now));
            return;
        }
        let PartEnd { exit, stopped, ended_at, prolog_failed } = *end;
        events.push(Event::NodePartEnded {
            job: job.id,
            attempt: attempt.number,
            node: node.clone(),
            exit: exit.clone(),
            stopped,
            ended_at,
            prolog_failed,
            at: now,
        });
        if !exit.is_success() && attempt.stopping.is_none() {
            events.push(self.stop(job, attempt, StopCause::GangFailed, now));
        }
    }

    fn attempt_ended(&self, job: &Job, attempt: &Attempt, last: &PartEnd, now: Timestamp) -> Event {
        let (exit, stopped) = whole_exit(attempt, last);
        let charged_until = whole_end(attempt, last);
        let until = charged_until.unwrap_or(now);
        let tenant = &self.tenants[&job.spec.tenant].config;
        Event::AttemptEnded {
            job: job.id,
            attempt: attempt.number,
            next: match has_failed_prolog(attempt, last) {
                true => self.next_after_prolog(job, attempt, &exit, now),
                false => self.next(job, attempt, &exit, stopped, now),
            },
            exit,
            charge: charge(&job.spec, attempt, tenant, until),
            receipt: receipt(job, attempt, until),
            held: Some(held(&job.spec, attempt, tenant)),
            charged_until,
            at: now,
        }
    }

    /// The next phase of a job whose attempt ended.
    fn next(&self, job: &Job, attempt: &Attempt, exit: &Exit, stopped: bool, now: Timestamp) -> NextPhase {
        let cause = attempt.stopping.as_ref().map(|stopping| &stopping.cause);
        match cause {
            // It finished before the stop order reached it: its work is done, whatever the cause of the stop.
            Some(_) if exit.is_success() && !stopped => done(),
            Some(StopCause::Cancelled { by, why }) if why.is_empty() => {
                ended(Outcome::Cancelled, format!("cancelled by {by}"))
            }
            Some(StopCause::Cancelled { by, why }) => ended(Outcome::Cancelled, format!("cancelled by {by}: {why}")),
            Some(StopCause::TimeLimit) => ended(Outcome::Failed, "its time limit passed".to_string()),
            Some(StopCause::Preempted { .. }) => NextPhase::Queued { cause: RequeueCause::Preempted, wakes_at: None },
            Some(StopCause::Requeued { .. }) => NextPhase::Queued { cause: RequeueCause::Requeued, wakes_at: None },
            Some(cause @ StopCause::LateStart { .. }) => self.next_launch(job, &cause.late_start_text(), now),
            Some(StopCause::Held { by, why }) => NextPhase::Held { by: by.clone(), why: why.clone() },
            Some(StopCause::GangFailed) | None => {
                self.asleep_until_retry_answer(job, self.next_by_exit(job, exit, now), now)
            }
        }
    }

    /// The node is at fault: the job queues again, unless somebody stopped it. The other tasks of its gang ended because of
    /// that.
    fn next_after_prolog(&self, job: &Job, attempt: &Attempt, exit: &Exit, now: Timestamp) -> NextPhase {
        match attempt.stopping.as_ref().map(|stopping| &stopping.cause) {
            None | Some(StopCause::GangFailed) => NextPhase::Queued { cause: RequeueCause::NodeFault, wakes_at: None },
            Some(_) => self.next(job, attempt, exit, true, now),
        }
    }

    /// A job that restarts after a failure sleeps until the `retry` hook has answered, if a policy has that hook.
    fn asleep_until_retry_answer(&self, job: &Job, next: NextPhase, now: Timestamp) -> NextPhase {
        match next {
            NextPhase::Queued { cause, wakes_at: None }
                if self.policies.answers_hook(Hook::Retry, &job.spec.tenant) =>
            {
                NextPhase::Queued { cause, wakes_at: Some(now) }
            }
            next => next,
        }
    }

    fn next_by_exit(&self, job: &Job, exit: &Exit, now: Timestamp) -> NextPhase {
        match exit {
            Exit::Code { code: 0 } => done(),
            Exit::NotStarted { why } => self.next_launch(job, why, now),
            Exit::InvalidJob { .. } => ended(Outcome::Failed, exit_text(exit)),
            Exit::Unknown { why } if job.spec.on_node_lost != OnNodeLost::Wait => self.requeue_after_loss(job, why),
            _ if job.restarts < job.spec.restart.max_restarts => NextPhase::Queued {
                cause: RequeueCause::Restarted,
                wakes_at: Some(now.plus(self.backoff_ms(job.restarts))),
            },
            exit => ended(Outcome::Failed, exit_text(exit)),
        }
    }

    /// A job whose launch failed queues again after a backoff, and is held once its requeues are used up. Without the
    /// backoff the job, which keeps its place in the queue, would be launched again in every round.
    fn next_launch(&self, job: &Job, why: &str, now: Timestamp) -> NextPhase {
        if job.requeues >= job.spec.restart.max_requeues {
            let why = format!("launch failed {} times: {why}", job.requeues + 1);
            return NextPhase::Held { by: "muster".to_string(), why };
        }
        let wakes_at = Some(now.plus(self.backoff_ms(job.requeues)));
        NextPhase::Queued { cause: RequeueCause::Requeued, wakes_at }
    }

    fn requeue_after_loss(&self, job: &Job, why: &str) -> NextPhase {
        if job.requeues >= job.spec.restart.max_requeues {
            let why = format!("requeued {} times already: {why}", job.requeues);
            return NextPhase::Held { by: "muster".to_string(), why };
        }
        NextPhase::Queued { cause: RequeueCause::Requeued, wakes_at: None }
    }

    fn backoff_ms(&self, times: u32) -> i64 {
        let doubled = self.settings.launch_backoff_ms.saturating_mul(1 << times.min(20));
        doubled.min(BACKOFF_MS_MAX)
    }
}

fn started(job: &Job, attempt: &Attempt, node: &NodeId, now: Timestamp) -> Event {
    let missing = attempt.nodes().into_iter().filter(|other| attempt.reports.get(other).is_none()).count();
    let whole = missing == 1;
    Event::AttemptStarted { job: job.id, attempt: attempt.number, node: node.clone(), whole, at: now }
}

fn saved(job: &Job, attempt: &Attempt, now: Timestamp) -> Event {
    let grace_ms = attempt.stopping.as_ref().and_then(|stopping| stopping.grace_ms_once_saved(now));
    Event::CheckpointSaved { job: job.id, attempt: attempt.number, grace_ms, at: now }
}

/// True if the prolog failed on any node of an attempt.
fn has_failed_prolog(attempt: &Attempt, last: &PartEnd) -> bool {
    let mut parts = attempt.reports.values();
    last.prolog_failed || parts.any(|part| matches!(part, NodeReport::Ended { prolog_failed: true, .. }))
}

/// The exit of the whole gang, and whether any part had been ordered to stop. The exit is that of the part that was the
/// reason for the others to end (`ExitRank`); among equal ones that of the first node.
fn whole_exit(attempt: &Attempt, last: &PartEnd) -> (Exit, bool) {
    let mut parts: Vec<(ExitRank, &Exit, bool)> = Vec::new();
    for part in attempt.reports.values() {
        if let NodeReport::Ended { exit, stopped, prolog_failed, .. } = part {
            parts.push((ExitRank::new(exit, *stopped, *prolog_failed), exit, *stopped));
        }
    }
    parts.push((ExitRank::new(last.exit, last.stopped, last.prolog_failed), last.exit, last.stopped));
    let stopped = parts.iter().any(|(_, _, stopped)| *stopped);
    let decisive = parts.iter().min_by_key(|(rank, _, _)| *rank).map_or(last.exit, |(_, exit, _)| *exit);
    (decisive.clone(), stopped)
}

/// How likely a part of a gang is the reason why the other parts ended, the likeliest first. Tasks that lose a peer often
/// fail by themselves, before the loss of its node is proven; a part that was stopped is never the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ExitRank {
    FailedProlog,
    /// Its node or its shim was lost.
    Lost,
    InvalidJob,
    NotStarted,
    Failed,
    FailedWhenStopped,
    Succeeded,
}

impl ExitRank {
    fn new(exit: &Exit, stopped: bool, prolog_failed: bool) -> ExitRank {
        match exit {
            _ if prolog_failed => ExitRank::FailedProlog,
            exit if exit.is_success() => ExitRank::Succeeded,
            _ if stopped => ExitRank::FailedWhenStopped,
            Exit::Unknown { .. } => ExitRank::Lost,
            Exit::InvalidJob { .. } => ExitRank::InvalidJob,
            Exit::NotStarted { .. } => ExitRank::NotStarted,
            _ => ExitRank::Failed,
        }
    }
}

/// When the last processes of a gang were gone, if that is known for every part. All parts keep their GPUs until then:
/// a gang releases its GPUs together.
fn whole_end(attempt: &Attempt, last: &PartEnd) -> Option<Timestamp> {
    let mut until = last.ended_at?;
    for part in attempt.reports.values() {
        if let NodeReport::Ended { ended_at, .. } = part {
            until = until.max((*ended_at)?);
        }
    }
    Some(until)
}

/// When the processes of a part were gone, by the clock of the node. That clock may be wrong, so the time is clamped to
/// between the placement and now.
fn ended_at(attempt: &Attempt, ended_ms_ago: i64, now: Timestamp) -> Timestamp {
    let reported = Timestamp(now.0.saturating_sub(ended_ms_ago.max(0)));
    reported.max(attempt.placed_at).min(now)
}

/// The receipt of a preempted attempt that ended at `end`.
fn receipt(job: &Job, attempt: &Attempt, end: Timestamp) -> Option<PreemptionReceipt> {
    let stopping = attempt.stopping.as_ref()?;
    let StopCause::Preempted { by } = stopping.cause else { return None };
    Some(PreemptionReceipt {
        by,
        stop_ordered_at: stopping.since,
        saved_at: attempt.saved_at,
        ran_ms: end.since(attempt.started_at.unwrap_or(attempt.placed_at)),
        lost_gpu_ms: lost_gpu_ms(job, attempt, end),
    })
}

/// An exit as a sentence.
pub(super) fn exit_text(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}{}", hint(*code)),
        Exit::Signal { signal } => format!("killed by signal {signal}"),
        Exit::OutOfMemory { limit_mib } => format!("killed by the kernel: out of memory (limit {limit_mib} MiB)"),
        Exit::NotStarted { why } | Exit::InvalidJob { why } => format!("could not be started: {why}"),
        Exit::Unknown { why } => format!("exit unknown: {why}"),
    }
}

/// The meaning of an exit code by shell convention.
fn hint(code: i32) -> &'static str {
    match code {
        126 => ": the program cannot be executed",
        127 => ": the program was not found",
        _ => "",
    }
}

fn done() -> NextPhase {
    NextPhase::Ended { outcome: Outcome::Done, why: "exit code 0".to_string() }
}

fn ended(outcome: Outcome, why: String) -> NextPhase {
    NextPhase::Ended { outcome, why }
}
