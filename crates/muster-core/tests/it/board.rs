//! The board of a scenario: where every job stands, in words.

use muster_core::job::{Job, StopCause};
use muster_core::share::{Share, ShareMode};
use muster_core::time::SECOND;
use muster_core::{JobId, Timestamp};

use crate::script::Script;

impl Script {
    /// One line for each job, in the order of their submission.
    pub fn board(&mut self) -> String {
        let mut lines = Vec::new();
        let mut shown = Vec::new();
        for (name, job) in &self.names {
            if shown.contains(job) {
                continue;
            }
            shown.push(*job);
            let tasks = self.tasks_of(*job);
            match tasks.is_empty() {
                true => lines.push((name.clone(), self.standing(*job))),
                false => lines.extend(tasks.iter().map(|id| (name_of(name, *id), self.standing(*id)))),
            }
        }
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        let lines = lines.into_iter().map(|(name, standing)| format!("{name:width$}  {standing}"));
        let lines: Vec<String> = lines.chain(self.seen.drain(..).collect::<Vec<_>>()).collect();
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// The tasks of an array, ended or not.
    fn tasks_of(&self, job: JobId) -> Vec<JobId> {
        let range = JobId::of_array(job.number, 0)..=JobId::of_array(job.number, u32::MAX);
        let live = self.world.state.jobs.range(range.clone()).map(|(id, _)| *id);
        let mut tasks: Vec<JobId> =
            live.chain(self.world.state.ended.range(range).map(|(id, _)| *id)).collect();
        tasks.sort();
        tasks
    }

    fn standing(&self, id: JobId) -> String {
        let state = &self.world.state;
        let Some(job) = state.jobs.get(&id) else {
            return state.ended.get(&id).map_or("forgotten", |ended| ended.outcome.word()).to_lowercase();
        };
        match job.attempt() {
            None => self.waiting(job),
            Some(attempt) => {
                let word = match (&attempt.stopping, attempt.started_at) {
                    (Some(stopping), _) => format!("stopping ({})", self.with_names(&cause(&stopping.cause))),
                    (None, Some(_)) => "running".to_string(),
                    (None, None) => "placed".to_string(),
                };
                format!("{word}  {}", place(job))
            }
        }
    }

    fn waiting(&self, job: &Job) -> String {
        let verdict = self.verdicts.of(&self.world.state, job, self.world.now);
        assert!(!verdict.reasons.is_empty(), "{} waits without a reason", job.id);
        let sentences: Vec<String> = verdict.reasons.iter().map(|reason| reason.sentence()).collect();
        let reserved = self.verdicts.reserved_at(job.id).map(|at| format!(" (starts by {})", clock(at)));
        self.with_names(&format!("waiting  {}{}", sentences.join("; "), reserved.unwrap_or_default()))
    }
}

/// Hours, minutes and seconds of the story.
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
        StopCause::Preempted { by } => format!("makes room for `{by}`"),
        StopCause::Requeued { .. } => "requeued".to_string(),
        StopCause::Held { .. } => "held".to_string(),
        StopCause::GangFailed => "gang failed".to_string(),
    }
}

/// `500` by MPS, `500t` in turns, `1g.10gb@6` as an instance.
fn told(share: &Share) -> String {
    match &share.mode {
        ShareMode::Mps => share.compute_milli.to_string(),
        ShareMode::TimeSlice => format!("{}t", share.compute_milli),
        ShareMode::Mig { profile, start } => format!("{profile}@{start}"),
    }
}

fn place(job: &Job) -> String {
    let Some(attempt) = job.attempt() else { return String::new() };
    let mut places: Vec<String> = Vec::new();
    for task in &attempt.tasks {
        let share = task.share.as_ref().map(|share| format!(":{}", told(share))).unwrap_or_default();
        places.extend(task.devices().map(|(node, gpu)| format!("{node}/gpu-{gpu}{share}")));
        places.extend(task.gpus.is_empty().then(|| task.node.to_string()));
    }
    places.join(" ")
}
