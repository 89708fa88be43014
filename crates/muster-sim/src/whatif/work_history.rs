//! The real work of the jobs of a journal, attempt by attempt.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::event::{Event, NextPhase, RequeueCause};
use muster_core::objects::job::{Exit, Outcome, StopCause};
use muster_core::{JobId, JobSpec, Timestamp};

use crate::job_log::jobs_of_submission;
use crate::sim_loop::{JobBehaviour, WorkAttempt, WorkDuration, checkpointed_ms};

/// The recorded work of every job.
#[derive(Debug, Clone, Default)]
pub struct WorkHistory {
    jobs: BTreeMap<JobId, JobWork>,
}

/// The recorded work of one job.
#[derive(Debug, Clone)]
struct JobWork {
    spec: Arc<JobSpec>,
    /// The ended attempts.
    attempts: Vec<WorkAttempt>,
    /// The checkpointed work of the current attempt.
    checkpointed_ms: i64,
    /// An attempt is placed.
    is_placed: bool,
    started_at: Option<Timestamp>,
    checkpoint_at: Option<Timestamp>,
    /// The current attempt was stopped by a cancellation or the time limit.
    is_stopped_for_good: bool,
    has_ended: bool,
}

impl WorkHistory {
    pub fn add_event(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { job, spec, array, .. } => {
                let indexes = array.as_ref().map(|array| &array.indexes[..]);
                for member in jobs_of_submission(*job, indexes) {
                    self.jobs.insert(member, JobWork::new(spec.clone()));
                }
            }
            Event::JobPlaced { job, .. } => self.update_job(*job, |work| work.is_placed = true),
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.update_job(*job, |work| work.started_at = Some(*at));
            }
            Event::CheckpointSaved { job, at, .. } => self.update_job(*job, |work| work.checkpoint_at = Some(*at)),
            Event::AttemptStopping { job, cause, .. } => {
                let ends = matches!(cause, StopCause::Cancelled { .. } | StopCause::TimeLimit);
                self.update_job(*job, |work| work.is_stopped_for_good = ends);
            }
            Event::AttemptEnded { job, exit, next, receipt, at, .. } => {
                let lost_gpu_ms = receipt.as_ref().map(|receipt| receipt.lost_gpu_ms);
                self.update_job(*job, |work| work.end_attempt(exit, next, lost_gpu_ms, *at));
            }
            Event::JobEnded { job, .. } => self.update_job(*job, |work| work.has_ended = true),
            _ => {}
        }
    }

    /// Drops the jobs that have ended.
    pub fn forget_ended_jobs(&mut self) {
        self.jobs.retain(|_, work| !work.has_ended);
    }

    /// The behaviour of a job from a fork on: the recorded work in `self` without the part that `at_fork` contains.
    pub fn behaviour_from(&self, at_fork: Option<&WorkHistory>, job: JobId) -> JobBehaviour {
        let Some(work) = self.jobs.get(&job) else { return JobBehaviour::new([WorkAttempt::unknown()], 0) };
        let before = at_fork.and_then(|at_fork| at_fork.jobs.get(&job));
        let (attempts_before, checkpointed_ms_before) =
            before.map_or((0, 0), |before| (before.attempts.len(), before.checkpointed_ms));
        let current = match (work.has_ended, work.is_placed) {
            (false, true) => Some(WorkDuration::UntilStopped),
            (false, false) => Some(WorkDuration::Unknown),
            (true, _) => work.attempts.is_empty().then_some(WorkDuration::Unknown),
        };
        let current = current.map(|duration| WorkAttempt { duration, exit: Exit::Code { code: 0 } });
        JobBehaviour::new(work.attempts.iter().skip(attempts_before).cloned().chain(current), checkpointed_ms_before)
    }

    fn update_job(&mut self, job: JobId, change: impl FnOnce(&mut JobWork)) {
        if let Some(work) = self.jobs.get_mut(&job) {
            change(work);
        }
    }
}

impl JobWork {
    fn new(spec: Arc<JobSpec>) -> JobWork {
        JobWork {
            spec,
            attempts: Vec::new(),
            checkpointed_ms: 0,
            is_placed: false,
            started_at: None,
            checkpoint_at: None,
            is_stopped_for_good: false,
            has_ended: false,
        }
    }

    /// Adds an ended attempt.
    fn end_attempt(&mut self, exit: &Exit, next: &NextPhase, lost_gpu_ms: Option<u64>, at: Timestamp) {
        let started_at = self.started_at.take();
        let checkpoint_at = self.checkpoint_at.take();
        let (was_stopped_for_good, ran_ms) =
            (self.is_stopped_for_good, started_at.map_or(0, |started| at.since(started)));
        (self.is_stopped_for_good, self.is_placed) = (false, false);
        match next {
            NextPhase::Ended { outcome, .. } => {
                self.has_ended = true;
                let duration = match was_stopped_for_good && *outcome != Outcome::Done {
                    true => WorkDuration::UntilStopped,
                    false => WorkDuration::Known(self.checkpointed_ms + ran_ms),
                };
                self.attempts.push(WorkAttempt { duration, exit: exit.clone() });
            }
            NextPhase::Queued { cause: RequeueCause::Restarted, .. } => {
                self.attempts.push(WorkAttempt {
                    duration: WorkDuration::Known(self.checkpointed_ms + ran_ms),
                    exit: exit.clone(),
                });
                self.checkpointed_ms = 0;
            }
            NextPhase::Queued { .. } | NextPhase::Held { .. } => {
                let lost_ms = lost_gpu_ms.map(|lost| lost / u64::from(self.spec.gpus().max(1)));
                let reported_ms = checkpoint_at.zip(started_at).map_or(0, |(saved, started)| saved.since(started));
                let kept_ms = match lost_ms {
                    Some(lost_ms) => ran_ms - i64::try_from(lost_ms).unwrap_or(i64::MAX),
                    None => checkpointed_ms(&self.spec, ran_ms).max(reported_ms),
                };
                self.checkpointed_ms += kept_ms.clamp(0, ran_ms);
            }
        }
    }
}
