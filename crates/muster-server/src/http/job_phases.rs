//! The phases of a job since its submission (`muster why`), from its journal entries and its wait notes.

use std::collections::BTreeSet;

use muster_core::facts::event::{NextPhase, PreemptionReceipt, RequeueCause};
use muster_core::objects::job::{Exit, StopCause};
use muster_core::{Event, JobId, Timestamp};
use muster_protocol::explain::{JobPhase, WaitNote};

use crate::conversions::{human_duration, ms_to_hours, rfc3339, signal_name};

/// A start, or a gap between process exit and its report, shorter than this is merged into the neighbouring phase.
const PHASE_MS_MIN: i64 = 2_000;

/// Turns the journal entries of one job into phases.
pub struct JobPhaseBuilder<'a> {
    notes: &'a [WaitNote],
    /// Whether the caller may see another job, such as the preemptor.
    is_visible: &'a dyn Fn(JobId) -> bool,
    closed: Vec<JobPhase>,
    open: Option<OpenPhase>,
}

struct OpenPhase {
    kind: PhaseKind,
    since: Timestamp,
}

enum PhaseKind {
    Waiting,
    Held { why: String },
    Starting { nodes: String },
    Running { nodes: String },
    Stopping { cause: StopCause },
}

impl<'a> JobPhaseBuilder<'a> {
    pub fn new(notes: &'a [WaitNote], is_visible: &'a dyn Fn(JobId) -> bool) -> JobPhaseBuilder<'a> {
        JobPhaseBuilder { notes, is_visible, closed: Vec::new(), open: None }
    }

    /// All phases since the submission; the last is ongoing unless the job has ended. The submission is passed in
    /// because the entries of an array's tasks do not contain it.
    pub fn build(mut self, submitted_at: Timestamp, events: &[Event], now: Timestamp) -> Vec<JobPhase> {
        self.begin_phase(PhaseKind::Waiting, submitted_at);
        events.iter().for_each(|event| self.apply_event(event));
        let ended = self.open.is_none();
        let before = self.closed.len();
        self.close_phase(now);
        if !ended && let Some(last) = self.closed[before..].last_mut() {
            last.ongoing = true;
        }
        self.closed.sort_by_key(|phase| phase.from_ms); // What happened within a phase comes after its begin.
        self.closed
    }

    fn apply_event(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { held_by: Some(by), at, .. } => {
                self.open =
                    Some(OpenPhase { kind: PhaseKind::Held { why: format!("by {by} at submission") }, since: *at });
            }
            Event::JobHeld { by, why, at, .. } => {
                self.begin_phase(PhaseKind::Held { why: by_person_text(by, why) }, *at)
            }
            Event::JobReleased { at, .. } => self.begin_phase(PhaseKind::Waiting, *at),
            Event::JobPlaced { tasks, at, .. } => {
                let nodes: BTreeSet<String> = tasks.iter().map(|task| task.node.to_string()).collect();
                let nodes = nodes.into_iter().collect::<Vec<_>>().join(", ");
                self.begin_phase(PhaseKind::Starting { nodes }, *at);
            }
            Event::AttemptStarted { whole: true, at, .. } => self.started(*at),
            Event::AttemptStopping { cause, at, .. } => {
                self.begin_phase(PhaseKind::Stopping { cause: cause.clone() }, *at)
            }
            Event::AttemptSignalled { signal, at, .. } => {
                let sentence = format!("got SIG{}: its time limit ends soon", signal_name(*signal));
                self.push_instant("signalled", sentence, *at);
            }
            Event::AttemptUnkillable { node, processes, at, .. } => {
                let sentence = format!("processes survive SIGKILL on {node}: {processes}");
                self.push_instant("unkillable", sentence, *at);
            }
            Event::AttemptEnded { exit, next, receipt, charged_until, at, .. } => {
                let exited_at = charged_until.unwrap_or(*at).min(*at);
                self.close_phase(exited_at);
                let late_ms = at.since(exited_at);
                if late_ms >= PHASE_MS_MIN {
                    let sentence =
                        format!("processes exited; reported to the server {} later", human_duration(late_ms));
                    self.push_span("unreported", sentence, exited_at, *at);
                }
                self.attempt_ended(exit, next, receipt.as_ref(), *at);
            }
            Event::JobEnded { why, at, .. } => {
                self.close_phase(*at);
                self.push_instant("ended", format!("ended: {why}"), *at);
            }
            _ => {}
        }
    }

    fn begin_phase(&mut self, kind: PhaseKind, at: Timestamp) {
        self.close_phase(at);
        self.open = Some(OpenPhase { kind, since: at });
    }

    /// A start shorter than `PHASE_MS_MIN` becomes part of the run.
    fn started(&mut self, at: Timestamp) {
        let Some(OpenPhase { kind: PhaseKind::Starting { nodes }, since }) = &self.open else { return };
        let (nodes, since) = (nodes.clone(), *since);
        match at.since(since) < PHASE_MS_MIN {
            true => self.open = Some(OpenPhase { kind: PhaseKind::Running { nodes }, since }),
            false => self.begin_phase(PhaseKind::Running { nodes }, at),
        }
    }

    /// Record the end of an attempt and begin the next phase of the job.
    fn attempt_ended(&mut self, exit: &Exit, next: &NextPhase, receipt: Option<&PreemptionReceipt>, at: Timestamp) {
        match next {
            NextPhase::Ended { why, .. } if why.is_empty() => {
                self.push_instant("ended", format!("ended: {}", exit_text(exit)), at)
            }
            NextPhase::Ended { why, .. } => self.push_instant("ended", format!("ended: {why}"), at),
            NextPhase::Held { by, why } => self.begin_phase(PhaseKind::Held { why: by_person_text(by, why) }, at),
            NextPhase::Queued { cause, .. } => {
                let (phase, sentence) = match cause {
                    RequeueCause::Preempted => ("preempted", self.preempted_sentence(receipt)),
                    RequeueCause::Restarted => {
                        ("restarted", format!("failed, requeued for a restart: {}", exit_text(exit)))
                    }
                    RequeueCause::Requeued | RequeueCause::NodeFault => {
                        ("requeued", format!("requeued: {}", exit_text(exit)))
                    }
                };
                self.push_instant(phase, sentence, at);
                self.begin_phase(PhaseKind::Waiting, at);
            }
        }
    }

    fn preempted_sentence(&self, receipt: Option<&PreemptionReceipt>) -> String {
        let Some(receipt) = receipt else { return "preempted and requeued".to_string() };
        let saved = receipt.saved_at.map(|at| format!(", saved at {}", rfc3339(at.0))).unwrap_or_default();
        let (by, lost) = (self.visible_job_name(receipt.by), ms_to_hours(receipt.lost_gpu_ms));
        let ran = human_duration(receipt.ran_ms);
        format!("preempted by {by} after running {ran}{saved}: {lost:.3} GPU-hours lost; requeued")
    }

    /// The id of a job, if the caller may see the job.
    fn visible_job_name(&self, job: JobId) -> String {
        if (self.is_visible)(job) { job.to_string() } else { "a job of another tenant".to_string() }
    }

    fn close_phase(&mut self, at: Timestamp) {
        let Some(open) = self.open.take() else { return };
        let (from, lasted) = (open.since, human_duration(at.since(open.since).max(0)));
        match open.kind {
            PhaseKind::Waiting => self.push_wait(from, at),
            PhaseKind::Held { why } => self.push_span("held", format!("held {lasted}: {why}"), from, at),
            PhaseKind::Starting { nodes } => {
                self.push_span("starting", format!("started within {lasted} on {nodes}"), from, at);
            }
            PhaseKind::Running { nodes } => self.push_span("ran", format!("ran {lasted} on {nodes}"), from, at),
            PhaseKind::Stopping { cause } => {
                let cause = self.stop_cause_text(&cause);
                self.push_span("stopping", format!("took {lasted} to stop: {cause}"), from, at);
            }
        }
    }

    /// A wait, divided where its reasons changed. The first note is written shortly after the wait begins, so it also
    /// covers the time before it.
    fn push_wait(&mut self, from: Timestamp, to: Timestamp) {
        let notes: Vec<&WaitNote> = self.notes.iter().filter(|note| (from.0..to.0).contains(&note.at_ms)).collect();
        if notes.is_empty() {
            return self.push_span("waited", format!("waited {}", human_duration(to.since(from).max(0))), from, to);
        }
        for (index, note) in notes.iter().enumerate() {
            let begins = if index == 0 { from } else { Timestamp(note.at_ms) };
            let ends = notes.get(index + 1).map_or(to, |next| Timestamp(next.at_ms));
            let reasons: Vec<&str> = note.reasons.iter().map(|reason| reason.sentence.as_str()).collect();
            let lasted = human_duration(ends.since(begins).max(0));
            self.push_span("waited", format!("waited {lasted}: {}", reasons.join("; ")), begins, ends);
        }
    }

    fn stop_cause_text(&self, cause: &StopCause) -> String {
        match cause {
            StopCause::Cancelled { by, why } => format!("cancelled {}", by_person_text(by, why)),
            StopCause::TimeLimit => "its time limit passed".to_string(),
            StopCause::Preempted { by } => format!("preempted by {}", self.visible_job_name(*by)),
            StopCause::Requeued { by, why } => format!("requeued {}", by_person_text(by, why)),
            StopCause::Held { by, why } => format!("held {}", by_person_text(by, why)),
            StopCause::LateStart { .. } => cause.late_start_text(),
            StopCause::GangFailed => "another task of the gang failed".to_string(),
        }
    }

    fn push_instant(&mut self, phase: &str, sentence: String, at: Timestamp) {
        self.push_span(phase, sentence, at, at);
    }

    fn push_span(&mut self, phase: &str, sentence: String, from: Timestamp, to: Timestamp) {
        self.closed.push(JobPhase {
            phase: phase.to_string(),
            from: rfc3339(from.0),
            from_ms: from.0,
            lasted_ms: to.since(from).max(0),
            ongoing: false,
            sentence,
        });
    }
}

fn by_person_text(by: &str, why: &str) -> String {
    if why.is_empty() { format!("by {by}") } else { format!("by {by}, {why}") }
}

fn exit_text(exit: &Exit) -> String {
    match exit {
        Exit::Code { code } => format!("exit code {code}"),
        Exit::Signal { signal } => format!("killed by signal {signal}"),
        Exit::OutOfMemory { limit_mib } => format!("killed by the kernel: out of memory (limit {limit_mib} MiB)"),
        Exit::NotStarted { why } | Exit::InvalidJob { why } => format!("could not be started: {why}"),
        Exit::Unknown { why } => format!("exit unknown: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use muster_core::objects::charge::Charge;
    use muster_core::objects::job::Outcome;
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
        let task: muster_core::objects::job::PlacedTask =
            muster_json::from_str(r#"{"rank":0,"group":0,"node":"n1","gpus":[0]}"#).unwrap();
        let (job, tasks) = (JobId::single(1), vec![task]);
        Event::JobPlaced {
            job,
            attempt,
            epoch: 1,
            tasks,
            effective_priority: None,
            expected_ms: None,
            revocable: false,
            score: None,
            held: None,
            self_fence: None,
            master_port: None,
            start_bound_ms: None,
            at: at(minute),
        }
    }

    fn started(minute: i64, attempt: u32) -> Event {
        let (job, node) = (JobId::single(1), "n1".parse().unwrap());
        Event::AttemptStarted { job, attempt, node, whole: true, at: at(minute) }
    }

    fn ended(minute: i64, attempt: u32, next: NextPhase, receipt: Option<PreemptionReceipt>) -> Event {
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

    /// Submitted at 0, quota until 12, no GPU until 15, ran until 19, preempted by job-9, ran again 25 to 30.
    fn job_events() -> Vec<Event> {
        let spec: muster_core::JobSpec = muster_json::from_str(
            r#"{"name":"x","tenant":"red","user":"ada","priority":100,"run":{"command":["x"]},
                "tasks":[{"name":"task","count":1,"each":{"gpus":1,"cpus":1,"memory_mib":1}}]}"#,
        )
        .unwrap();
        let job = JobId::single(1);
        let receipt = PreemptionReceipt {
            by: JobId::single(9),
            stop_ordered_at: at(18),
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
            ended(19, 1, NextPhase::Queued { cause: RequeueCause::Preempted, wakes_at: None }, Some(receipt)),
            placed(25, 2),
            started(25, 2),
            ended(30, 2, NextPhase::Ended { outcome: Outcome::Done, why: String::new() }, None),
        ]
    }

    #[test]
    fn phases_cover_the_life_of_a_job_with_duration_and_reason() {
        let notes = [note(1, "quota is used up"), note(12, "no GPU is free")];
        let phases = JobPhaseBuilder::new(&notes, &|_| true).build(at(0), &job_events(), at(99));
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
    fn a_run_ends_with_its_processes_not_with_the_late_report() {
        let mut events = job_events();
        let Some(Event::AttemptEnded { charged_until, .. }) = events.last_mut() else { panic!("it ends") };
        *charged_until = Some(at(27));
        let phases = JobPhaseBuilder::new(&[], &|_| true).build(at(0), &events, at(99));
        let last: Vec<&str> = phases.iter().rev().take(3).map(|phase| phase.sentence.as_str()).collect();
        let late = "processes exited; reported to the server 3m later";
        assert_eq!(last, ["ended: exit code 0", late, "ran 2m on n1"]);
    }

    #[test]
    fn a_preemptor_that_the_caller_may_not_see_is_not_named() {
        let waiting = &job_events()[..5];
        let phases = JobPhaseBuilder::new(&[], &|_| false).build(at(0), waiting, at(20));
        let all: String = phases.iter().map(|phase| phase.sentence.as_str()).collect();
        assert!(!all.contains("job-9") && all.contains("preempted by a job of another tenant"), "{all}");
        assert!(phases.last().is_some_and(|last| last.ongoing && last.sentence == "waited 1m"), "{phases:?}");
    }
}
