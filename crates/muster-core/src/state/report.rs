//! Step 11, report: what an agent says of its part, and what becomes of the job (step 12).

use crate::command::Said;
use crate::event::{Back, Event, Next, Receipt};
use crate::ids::{JobId, NodeId};
use crate::job::{Attempt, Exit, Job, OnNodeLost, Outcome, Part, StopCause};
use crate::ledger::{charge, held};
use crate::loss::lost_gpu_ms;
use crate::policy::Hook;
use crate::refusal::Refusal;
use crate::state::State;
use crate::state::decide::Decision;
use crate::time::{MINUTE, Timestamp};

/// The longest pause after failed launches.
const BACKOFF_MS_MAX: i64 = 10 * MINUTE;

/// How one node's part of an attempt ended.
pub(super) struct PartEnd<'a> {
    pub exit: &'a Exit,
    pub stopped: bool,
    /// When its processes were gone, where that is known.
    pub ended_at: Option<Timestamp>,
}

impl State {
    pub(super) fn decide_report(
        &self,
        node: &NodeId,
        (id, number): (JobId, u32),
        said: &Said,
        now: Timestamp,
    ) -> Result<Decision, Refusal> {
        let stale = || Refusal::StaleReport { job: id, attempt: number, node: node.clone() };
        let job = self.jobs.get(&id).ok_or_else(stale)?;
        let attempt = job.attempt().filter(|attempt| attempt.number == number).ok_or_else(stale)?;
        if !attempt.tasks.iter().any(|task| task.node == *node) {
            return Err(stale());
        }
        let mut events = Vec::new();
        match (said, attempt.parts.get(node)) {
            // The work is that of the whole gang, so it does not matter which node says it.
            (Said::Saved, _) => events.push(saved(job, attempt, now)),
            // Agents repeat themselves until they are heard.
            (_, Some(Part::Ended { .. })) | (Said::Started, Some(Part::Started)) => {}
            (Said::Started, None) => events.push(started(job, attempt, node, now)),
            (Said::Ended { exit, stopped, ended_ms_ago }, _) => {
                let ended_at = ended_ms_ago.map(|ms| ended_at(attempt, ms, now));
                self.end_part(job, node, &PartEnd { exit, stopped: *stopped, ended_at }, now, &mut events);
                self.settle_ends(&mut events, now);
            }
        }
        Ok(Decision::done(events))
    }

    /// One node's part is over; with the last part the attempt is over.
    pub(super) fn end_part(
        &self,
        job: &Job,
        node: &NodeId,
        end: &PartEnd,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let Some(attempt) = job.attempt() else { return };
        let others = attempt.nodes().into_iter().filter(|other| other != node);
        let open =
            others.filter(|other| !matches!(attempt.parts.get(other), Some(Part::Ended { .. }))).count();
        if open == 0 {
            events.push(self.attempt_ended(job, attempt, end, now));
            return;
        }
        let PartEnd { exit, stopped, ended_at } = *end;
        events.push(Event::PartEnded {
            job: job.id,
            attempt: attempt.number,
            node: node.clone(),
            exit: exit.clone(),
            stopped,
            ended_at,
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
            next: self.next(job, attempt, &exit, stopped, now),
            exit,
            charge: charge(&job.spec, attempt, tenant, until),
            receipt: receipt(job, attempt, until),
            held: Some(held(&job.spec, attempt, tenant)),
            charged_until,
            at: now,
        }
    }

    /// What becomes of a job whose processes are gone.
    fn next(&self, job: &Job, attempt: &Attempt, exit: &Exit, stopped: bool, now: Timestamp) -> Next {
        let cause = attempt.stopping.as_ref().map(|stopping| &stopping.cause);
        match cause {
            // It finished before anyone told it to stop: its work is done, whatever was wanted of it.
            Some(_) if exit.is_success() && !stopped => done(),
            Some(StopCause::Cancelled { by, why }) if why.is_empty() => {
                ended(Outcome::Cancelled, format!("cancelled by {by}"))
            }
            Some(StopCause::Cancelled { by, why }) => {
                ended(Outcome::Cancelled, format!("cancelled by {by}: {why}"))
            }
            Some(StopCause::TimeLimit) => ended(Outcome::Failed, "its time limit passed".to_string()),
            Some(StopCause::Preempted { .. }) => Next::Queued { because: Back::Preempted, wakes_at: None },
            Some(StopCause::Requeued { .. }) => Next::Queued { because: Back::Requeued, wakes_at: None },
            Some(StopCause::Held { by, why }) => Next::Held { by: by.clone(), why: why.clone() },
            Some(StopCause::GangFailed) | None => {
                self.asleep_if_asked(job, self.next_by_exit(job, exit, now), now)
            }
        }
    }

    /// Who comes back after a failure sleeps where policies are asked whether it starts again, until they have answered.
    fn asleep_if_asked(&self, job: &Job, next: Next, now: Timestamp) -> Next {
        match next {
            Next::Queued { because, wakes_at: None } if self.policies.asks(Hook::Retry, &job.spec.tenant) => {
                Next::Queued { because, wakes_at: Some(now) }
            }
            next => next,
        }
    }

    fn next_by_exit(&self, job: &Job, exit: &Exit, now: Timestamp) -> Next {
        match exit {
            Exit::Code { code: 0 } => done(),
            Exit::NotStarted { why } => self.next_launch(job, why, now),
            Exit::Unknown { why } if job.spec.on_node_lost != OnNodeLost::Wait => self.come_back(job, why),
            _ if job.restarts < job.spec.restart.max_restarts => Next::Queued {
                because: Back::Restarted,
                wakes_at: Some(now.plus(self.backoff_ms(job.restarts))),
            },
            exit => ended(Outcome::Failed, told(exit)),
        }
    }

    /// A launch that did not happen is tried again after a pause, never at the head of the queue for free.
    fn next_launch(&self, job: &Job, why: &str, now: Timestamp) -> Next {
        if job.requeues >= job.spec.restart.max_requeues {
            let why = format!("launch failed {} times: {why}", job.requeues + 1);
            return Next::Held { by: "muster".to_string(), why };
        }
        let wakes_at = Some(now.plus(self.backoff_ms(job.requeues)));
        Next::Queued { because: Back::Requeued, wakes_at }
    }

    fn come_back(&self, job: &Job, why: &str) -> Next {
        if job.requeues >= job.spec.restart.max_requeues {
            let why = format!("came back {} times already: {why}", job.requeues);
            return Next::Held { by: "muster".to_string(), why };
        }
        Next::Queued { because: Back::Requeued, wakes_at: None }
    }

    fn backoff_ms(&self, times: u32) -> i64 {
        let doubled = self.settings.launch_backoff_ms.saturating_mul(1 << times.min(20));
        doubled.min(BACKOFF_MS_MAX)
    }
}

fn started(job: &Job, attempt: &Attempt, node: &NodeId, now: Timestamp) -> Event {
    let missing = attempt.nodes().into_iter().filter(|other| attempt.parts.get(other).is_none()).count();
    let whole = missing == 1;
    Event::AttemptStarted { job: job.id, attempt: attempt.number, node: node.clone(), whole, at: now }
}

fn saved(job: &Job, attempt: &Attempt, now: Timestamp) -> Event {
    let grace_ms = attempt.stopping.as_ref().and_then(|stopping| stopping.grace_ms_once_saved(now));
    Event::CheckpointSaved { job: job.id, attempt: attempt.number, grace_ms, at: now }
}

/// The exit of the whole gang: the first part that did not succeed, in order of node; and whether any part
/// had been told to stop.
fn whole_exit(attempt: &Attempt, last: &PartEnd) -> (Exit, bool) {
    let mut exits: Vec<(&Exit, bool)> = Vec::new();
    for part in attempt.parts.values() {
        if let Part::Ended { exit, stopped, .. } = part {
            exits.push((exit, *stopped));
        }
    }
    exits.push((last.exit, last.stopped));
    let stopped = exits.iter().any(|(_, stopped)| *stopped);
    let worst = exits.iter().find(|(exit, _)| !exit.is_success()).unwrap_or(&exits[0]);
    (worst.0.clone(), stopped)
}

/// When the last processes of a gang were gone, if that is known of every part. The other parts keep their GPUs until
/// then: a gang gives them back together.
fn whole_end(attempt: &Attempt, last: &PartEnd) -> Option<Timestamp> {
    let mut until = last.ended_at?;
    for part in attempt.parts.values() {
        if let Part::Ended { ended_at, .. } = part {
            until = until.max((*ended_at)?);
        }
    }
    Some(until)
}

/// When processes were gone that a node says have been gone for so long. The clock of a node may be wrong, so its word
/// counts only between the placement and now.
fn ended_at(attempt: &Attempt, ended_ms_ago: i64, now: Timestamp) -> Timestamp {
    let said = Timestamp(now.0.saturating_sub(ended_ms_ago.max(0)));
    said.max(attempt.placed_at).min(now)
}

/// What it cost that an attempt was displaced, when it was over.
fn receipt(job: &Job, attempt: &Attempt, end: Timestamp) -> Option<Receipt> {
    let stopping = attempt.stopping.as_ref()?;
    let StopCause::Preempted { by } = stopping.cause else { return None };
    Some(Receipt {
        by,
        asked_at: stopping.since,
        saved_at: attempt.saved_at,
        ran_ms: end.since(attempt.started_at.unwrap_or(attempt.placed_at)),
        lost_gpu_ms: lost_gpu_ms(job, attempt, end),
    })
}

/// An exit in words.
pub(super) fn told(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}{}", hint(*code)),
        Exit::Signal { signal } => format!("killed by signal {signal}"),
        Exit::NotStarted { why } => format!("it could not be started: {why}"),
        Exit::Unknown { why } => format!("exit unknown: {why}"),
    }
}

/// What an exit code means by the custom of shells, where it helps.
fn hint(code: i32) -> &'static str {
    match code {
        126 => ": the program cannot be executed",
        127 => ": the program was not found",
        _ => "",
    }
}

fn done() -> Next {
    Next::Ended { outcome: Outcome::Done, why: "exit code 0".to_string() }
}

fn ended(outcome: Outcome, why: String) -> Next {
    Next::Ended { outcome, why }
}
