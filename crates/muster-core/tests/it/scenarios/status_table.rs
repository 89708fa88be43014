//! The status table of a scenario: one line for each job. Reasons are shown by code and numbers, and after a line
//! `wording` as sentences.

use muster_core::facts::verdict::Reason;
use muster_core::gpu::gpu_share::{Share, ShareMode};
use muster_core::objects::job::{Job, StopCause};
use muster_core::time::SECOND;
use muster_core::{JobId, NodeId, Timestamp};
use serde_json::Value;

use super::runner::ScenarioRunner;

impl ScenarioRunner {
    /// One line for each job, in order of submission, then what query lines have shown.
    pub fn status_table(&mut self) -> String {
        let mut lines = Vec::new();
        let mut shown = Vec::new();
        for (name, job) in &self.names {
            if shown.contains(job) {
                continue;
            }
            shown.push(*job);
            let tasks = self.tasks_of(*job);
            match tasks.is_empty() {
                true => lines.push((name.clone(), self.status(*job))),
                false => lines.extend(tasks.iter().map(|id| (name_of(name, *id), self.status(*id)))),
            }
        }
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let lines = lines.into_iter().map(|(name, status)| format!("{name:width$}  {status}"));
        let lines: Vec<String> = lines.chain(self.shown.drain(..).collect::<Vec<_>>()).collect();
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// The tasks of an array, ended or not.
    fn tasks_of(&self, job: JobId) -> Vec<JobId> {
        let range = JobId::of_array(job.number, 0)..=JobId::of_array(job.number, u32::MAX);
        let live = self.world.state.jobs.range(range.clone()).map(|(id, _)| *id);
        let mut tasks: Vec<JobId> = live.chain(self.world.state.ended.range(range).map(|(id, _)| *id)).collect();
        tasks.sort();
        tasks
    }

    fn status(&self, id: JobId) -> String {
        let state = &self.world.state;
        let Some(job) = state.jobs.get(&id) else {
            return state.ended.get(&id).map_or("forgotten", |ended| ended.outcome.as_str()).to_lowercase();
        };
        match job.attempt() {
            None => self.waiting(job),
            Some(attempt) => {
                let status = match (&attempt.stopping, attempt.started_at) {
                    (Some(stopping), _) => format!("stopping ({})", self.with_names(&cause(&stopping.cause))),
                    (None, Some(_)) => "running".to_string(),
                    (None, None) => "placed".to_string(),
                };
                let reasons = self.verdicts.of(state, job, self.world.now).reasons;
                let reasons: String = reasons.iter().map(|reason| format!("; {}", self.shown_reason(reason))).collect();
                format!("{status}  {}{reasons}", placement(job))
            }
        }
    }

    fn shown_reason(&self, reason: &Reason) -> String {
        if self.wording { reason.sentence() } else { code_and_numbers(reason) }
    }

    fn waiting(&self, job: &Job) -> String {
        let verdict = self.verdicts.of(&self.world.state, job, self.world.now);
        assert!(!verdict.reasons.is_empty(), "{} waits without a reason", job.id);
        let reasons: Vec<String> = verdict.reasons.iter().map(|reason| self.shown_reason(reason)).collect();
        let reserved = self.verdicts.reserved_at(job.id).map(|at| format!(" (starts by {})", clock(at)));
        self.with_names(&format!("waiting  {}{}", reasons.join("; "), reserved.unwrap_or_default()))
    }
}

/// The variant of a reason and its fields, nested ones with the name of the field around them: `QuotaUser
/// excess.limit=2 excess.wanted=3 user=ada`.
fn code_and_numbers(reason: &Reason) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(reason) else { panic!("{reason:?} is no object") };
    let variant = fields["reason"].as_str().unwrap_or_default().to_string();
    let mut shown = vec![variant];
    fields.iter().filter(|(name, _)| *name != "reason").for_each(|(name, value)| add(&mut shown, name, value));
    shown.join(" ")
}

fn add(shown: &mut Vec<String>, name: &str, value: &Value) {
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            fields.iter().for_each(|(inner, value)| add(shown, &format!("{name}.{inner}"), value));
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(plain).collect();
            shown.push(format!("{name}={}", values.join(",")));
        }
        value => shown.push(format!("{name}={}", plain(value))),
    }
}

/// A value as in a sentence: job ids in backticks.
fn plain(value: &Value) -> String {
    match value.as_str() {
        Some(text) if text.parse::<JobId>().is_ok() => format!("`{text}`"),
        Some(text) => text.to_string(),
        None => value.to_string(),
    }
}

/// Hours, minutes and seconds since the start of the scenario.
fn clock(at: Timestamp) -> String {
    let seconds = at.0 / SECOND;
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn name_of(array: &str, task: JobId) -> String {
    format!("{array}.{}", task.index.unwrap_or_default())
}

fn cause(cause: &StopCause) -> String {
    match cause {
        StopCause::Cancelled { .. } => "cancelled".to_string(),
        StopCause::TimeLimit => "time limit".to_string(),
        StopCause::Preempted { by } => format!("preempted by `{by}`"),
        StopCause::Requeued { .. } => "requeued".to_string(),
        StopCause::Held { .. } => "held".to_string(),
        StopCause::GangFailed => "gang failed".to_string(),
        StopCause::LateStart { nodes, .. } => {
            let nodes: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
            format!("late start of {}", nodes.join(","))
        }
    }
}

/// `500` under MPS, `500t` as a time slice, `1g.10gb@6` as an instance.
fn share_text(share: &Share) -> String {
    match &share.mode {
        ShareMode::Mps => share.compute_milli.to_string(),
        ShareMode::TimeSlice => format!("{}t", share.compute_milli),
        ShareMode::Mig { profile, start } => format!("{profile}@{start}"),
    }
}

fn placement(job: &Job) -> String {
    let Some(attempt) = job.attempt() else { return String::new() };
    let mut places: Vec<String> = Vec::new();
    for task in &attempt.tasks {
        let share = task.share.as_ref().map(|share| format!(":{}", share_text(share))).unwrap_or_default();
        places.extend(task.devices().map(|(node, gpu)| format!("{node}/gpu-{gpu}{share}")));
        places.extend(task.gpus.is_empty().then(|| task.node.to_string()));
    }
    places.join(" ")
}
