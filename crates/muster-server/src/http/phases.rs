//! What became of a job from its submission on, from its journal entries and the notes about its waits.

use std::collections::BTreeSet;

use muster_core::event::{Back, Next, Receipt};
use muster_core::job::{Exit, StopCause};
use muster_core::{Event, JobId, Timestamp};
use muster_protocol::outlook::{JobPhase, WaitNote};

use crate::http::written::{hours, humane, stamp};

/// A start, or an end that nobody hears of, that takes less is not a phase of its own.
const STARTING_MS_MIN: i64 = 2_000;

/// Turns journal entries of one job into phases.
pub struct Phases<'a> {
    notes: &'a [WaitNote],
    /// Whether the caller may read the name of another job.
    sees: &'a dyn Fn(JobId) -> bool,
    done: Vec<JobPhase>,
    open: Option<Open>,
}

/// A phase that is not over yet.
struct Open {
    kind: Kind,
    since: Timestamp,
}

enum Kind {
    Waited,
    Held { why: String },
    Starting { nodes: String },
    Ran { nodes: String },
    Stopping { cause: StopCause },
}

impl<'a> Phases<'a> {
    /// With the notes about the waits of the job.
    pub fn new(notes: &'a [WaitNote], sees: &'a dyn Fn(JobId) -> bool) -> Phases<'a> {
        Phases { notes, sees, done: Vec::new(), open: None }
    }

    /// All phases from the submission on; the last is still going on unless the job has ended. The submission of an
    /// array is not among the entries of its tasks.
    pub fn of(mut self, submitted_at: Timestamp, events: &[Event], now: Timestamp) -> Vec<JobPhase> {
        self.begin(Kind::Waited, submitted_at);
        events.iter().for_each(|event| self.take(event));
        let ended = self.open.is_none();
        let before = self.done.len();
        self.close(now);
        if !ended && let Some(last) = self.done[before..].last_mut() {
            last.ongoing = true;
        }
        self.done
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { held_by: Some(by), at, .. } => {
                self.open =
                    Some(Open { kind: Kind::Held { why: format!("by {by} at submission") }, since: *at });
            }
            Event::JobHeld { by, why, at, .. } => self.begin(Kind::Held { why: of_person(by, why) }, *at),
            Event::JobReleased { at, .. } => self.begin(Kind::Waited, *at),
            Event::JobPlaced { tasks, at, .. } => {
                let nodes: BTreeSet<String> = tasks.iter().map(|task| task.node.to_string()).collect();
                let nodes = nodes.into_iter().collect::<Vec<_>>().join(", ");
                self.begin(Kind::Starting { nodes }, *at);
            }
            Event::AttemptStarted { whole: true, at, .. } => self.started(*at),
            Event::AttemptStopping { cause, at, .. } => {
                self.begin(Kind::Stopping { cause: cause.clone() }, *at)
            }
            Event::AttemptEnded { exit, next, receipt, charged_until, at, .. } => {
                let over = charged_until.unwrap_or(*at).min(*at);
                self.close(over);
                let late_ms = at.since(over);
                if late_ms >= STARTING_MS_MIN {
                    let sentence = format!(
                        "its processes had ended; the server learned of it {} later",
                        humane(late_ms)
                    );
                    self.span("unreported", sentence, over, *at);
                }
                self.attempt_ended(exit, next, receipt.as_ref(), *at);
            }
            Event::JobEnded { why, at, .. } => {
                self.close(*at);
                self.moment("ended", format!("ended: {why}"), *at);
            }
            _ => {}
        }
    }

    fn begin(&mut self, kind: Kind, at: Timestamp) {
        self.close(at);
        self.open = Some(Open { kind, since: at });
    }

    /// A start that took no time worth telling is part of the run.
    fn started(&mut self, at: Timestamp) {
        let Some(Open { kind: Kind::Starting { nodes }, since }) = &self.open else { return };
        let (nodes, since) = (nodes.clone(), *since);
        match at.since(since) < STARTING_MS_MIN {
            true => self.open = Some(Open { kind: Kind::Ran { nodes }, since }),
            false => self.begin(Kind::Ran { nodes }, at),
        }
    }

    /// How an attempt ended, and what the job does next.
    fn attempt_ended(&mut self, exit: &Exit, next: &Next, receipt: Option<&Receipt>, at: Timestamp) {
        match next {
            Next::Ended { why, .. } if why.is_empty() => {
                self.moment("ended", format!("ended: {}", exited(exit)), at)
            }
            Next::Ended { why, .. } => self.moment("ended", format!("ended: {why}"), at),
            Next::Held { by, why } => self.begin(Kind::Held { why: of_person(by, why) }, at),
            Next::Queued { because, .. } => {
                let (phase, sentence) = match because {
                    Back::Preempted => ("preempted", self.preempted(receipt)),
                    Back::Restarted => {
                        ("restarted", format!("failed and waits to start again: {}", exited(exit)))
                    }
                    Back::Requeued => ("requeued", format!("requeued: {}", exited(exit))),
                };
                self.moment(phase, sentence, at);
                self.begin(Kind::Waited, at);
            }
        }
    }

    fn preempted(&self, receipt: Option<&Receipt>) -> String {
        let Some(receipt) = receipt else { return "preempted and requeued".to_string() };
        let saved = receipt.saved_at.map(|at| format!(", saved at {}", stamp(at.0))).unwrap_or_default();
        let (by, lost) = (self.named(receipt.by), hours(receipt.lost_gpu_ms));
        let ran = humane(receipt.ran_ms);
        format!("preempted by {by} after running {ran}{saved}: {lost:.3} GPU-hours lost; requeued")
    }

    /// A job by its name, where the caller may see it.
    fn named(&self, job: JobId) -> String {
        if (self.sees)(job) { job.to_string() } else { "a job of another tenant".to_string() }
    }

    fn close(&mut self, at: Timestamp) {
        let Some(open) = self.open.take() else { return };
        let (from, lasted) = (open.since, humane(at.since(open.since).max(0)));
        match open.kind {
            Kind::Waited => self.waited(from, at),
            Kind::Held { why } => self.span("held", format!("held {lasted}: {why}"), from, at),
            Kind::Starting { nodes } => {
                self.span("starting", format!("started within {lasted} on {nodes}"), from, at);
            }
            Kind::Ran { nodes } => self.span("ran", format!("ran {lasted} on {nodes}"), from, at),
            Kind::Stopping { cause } => {
                let cause = self.cause(&cause);
                self.span("stopping", format!("took {lasted} to stop: {cause}"), from, at);
            }
        }
    }

    /// A wait, divided where its reasons changed. Notes come a moment after a wait begins, so the first of them speaks
    /// for what was before it.
    fn waited(&mut self, from: Timestamp, to: Timestamp) {
        let notes: Vec<&WaitNote> =
            self.notes.iter().filter(|note| (from.0..to.0).contains(&note.at_ms)).collect();
        if notes.is_empty() {
            return self.span("waited", format!("waited {}", humane(to.since(from).max(0))), from, to);
        }
        for (place, note) in notes.iter().enumerate() {
            let begins = if place == 0 { from } else { Timestamp(note.at_ms) };
            let ends = notes.get(place + 1).map_or(to, |next| Timestamp(next.at_ms));
            let reasons: Vec<&str> = note.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
            let lasted = humane(ends.since(begins).max(0));
            self.span("waited", format!("waited {lasted}: {}", reasons.join("; ")), begins, ends);
        }
    }

    fn cause(&self, cause: &StopCause) -> String {
        match cause {
            StopCause::Cancelled { by, why } => format!("cancelled {}", of_person(by, why)),
            StopCause::TimeLimit => "its time limit passed".to_string(),
            StopCause::Preempted { by } => format!("preempted by {}", self.named(*by)),
            StopCause::Requeued { by, why } => format!("requeued {}", of_person(by, why)),
            StopCause::Held { by, why } => format!("held {}", of_person(by, why)),
            StopCause::GangFailed => "another task of the gang failed".to_string(),
        }
    }

    fn moment(&mut self, phase: &str, sentence: String, at: Timestamp) {
        self.span(phase, sentence, at, at);
    }

    fn span(&mut self, phase: &str, sentence: String, from: Timestamp, to: Timestamp) {
        self.done.push(JobPhase {
            phase: phase.to_string(),
            from: stamp(from.0),
            from_ms: from.0,
            lasted_ms: to.since(from).max(0),
            ongoing: false,
            sentence,
        });
    }
}

fn of_person(by: &str, why: &str) -> String {
    if why.is_empty() { format!("by {by}") } else { format!("by {by}, {why}") }
}

fn exited(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}"),
        Exit::Signal { signal } => format!("killed by signal {signal}"),
        Exit::NotStarted { why } => format!("could not be started: {why}"),
        Exit::Unknown { why } => format!("exit unknown: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::job::Outcome;
    use muster_core::ledger::Charge;
    use muster_protocol::job::Reason;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn note(minute: i64, sentence: &str) -> WaitNote {
        let reasons = vec![Reason {
            reason: "Capacity".to_string(),
            sentence: sentence.to_string(),
            since: None,
            since_ms: None,
        }];
        WaitNote { at: String::new(), at_ms: minute * MINUTE, reasons }
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp(minute * MINUTE)
    }

    fn placed(minute: i64, attempt: u32) -> Event {
        let task: muster_core::job::PlacedTask =
            muster_json::from_str(r#"{"rank":0,"group":0,"node":"n1","gpus":[0]}"#).unwrap();
        let (job, tasks) = (JobId::single(1), vec![task]);
        Event::JobPlaced {
            job,
            attempt,
            epoch: 1,
            tasks,
            effective: None,
            expected_ms: None,
            lent: false,
            score: None,
            held: None,
            at: at(minute),
        }
    }

    fn started(minute: i64, attempt: u32) -> Event {
        let (job, node) = (JobId::single(1), "n1".parse().unwrap());
        Event::AttemptStarted { job, attempt, node, whole: true, at: at(minute) }
    }

    fn ended(minute: i64, attempt: u32, next: Next, receipt: Option<Receipt>) -> Event {
        let (job, exit) = (JobId::single(1), Exit::Code { code: 0 });
        Event::AttemptEnded {
            job,
            attempt,
            exit,
            next,
            charge: Charge::default(),
            receipt,
            held: None,
            charged_until: None,
            at: at(minute),
        }
    }

    /// Submitted at 0, quota until 12, no GPU until 15, ran until 19, displaced by job-9, ran again 25 to 30.
    fn story() -> Vec<Event> {
        let spec: muster_core::JobSpec = muster_json::from_str(
            r#"{"name":"x","tenant":"red","user":"ada","priority":100,"run":{"command":["x"]},
                "tasks":[{"name":"task","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}}]}"#,
        )
        .unwrap();
        let job = JobId::single(1);
        let receipt = Receipt {
            by: JobId::single(9),
            asked_at: at(18),
            saved_at: None,
            ran_ms: 3 * MINUTE,
            lost_gpu_ms: 3 * MINUTE as u64,
        };
        let by = JobId::single(9);
        vec![
            Event::JobSubmitted {
                job,
                spec: spec.into(),
                array: None,
                held_by: None,
                key: None,
                open_dependencies: Default::default(),
                at: at(0),
            },
            placed(15, 1),
            started(15, 1),
            Event::AttemptStopping {
                job,
                attempt: 1,
                cause: StopCause::Preempted { by },
                grace_ms: 30_000,
                at: at(18),
            },
            ended(19, 1, Next::Queued { because: Back::Preempted, wakes_at: None }, Some(receipt)),
            placed(25, 2),
            started(25, 2),
            ended(30, 2, Next::Ended { outcome: Outcome::Done, why: String::new() }, None),
        ]
    }

    #[test]
    fn every_phase_has_its_duration_and_its_reason() {
        let notes = [note(1, "quota is used up"), note(12, "no GPU is free")];
        let sees = |_: JobId| true;
        let phases = Phases::new(&notes, &sees).of(at(0), &story(), at(99));
        let sentences: Vec<&str> = phases.iter().map(|phase| phase.sentence.as_str()).collect();
        assert_eq!(
            sentences,
            [
                "waited 12m: quota is used up",
                "waited 3m: no GPU is free",
                "ran 3m on n1",
                "took 1m to stop: preempted by job-9",
                "preempted by job-9 after running 3m: 0.050 GPU-hours lost; requeued",
                "waited 6m",
                "ran 5m on n1",
                "ended: exit code 0",
            ]
        );
        // The phases cover the whole life without gaps.
        assert_eq!(phases.iter().map(|phase| phase.lasted_ms).sum::<i64>(), 30 * MINUTE);
        assert!(phases.iter().all(|phase| !phase.ongoing));
    }

    #[test]
    fn what_a_job_ran_ends_with_its_processes() {
        let mut events = story();
        let Some(Event::AttemptEnded { charged_until, .. }) = events.last_mut() else { panic!("it ends") };
        *charged_until = Some(at(27));
        let phases = Phases::new(&[], &|_| true).of(at(0), &events, at(99));
        let last: Vec<&str> = phases.iter().rev().take(3).map(|phase| phase.sentence.as_str()).collect();
        let late = "its processes had ended; the server learned of it 3m later";
        assert_eq!(last, ["ended: exit code 0", late, "ran 2m on n1"]);
    }

    #[test]
    fn a_job_that_the_caller_may_not_see_is_not_named() {
        let sees = |_: JobId| false;
        let waiting = &story()[..5];
        let phases = Phases::new(&[], &sees).of(at(0), waiting, at(20));
        let all: String = phases.iter().map(|phase| phase.sentence.as_str()).collect();
        assert!(!all.contains("job-9") && all.contains("preempted by a job of another tenant"), "{all}");
        assert!(phases.last().is_some_and(|last| last.ongoing && last.sentence == "waited 1m"), "{phases:?}");
    }
}
