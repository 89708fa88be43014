//! How long the jobs of a journal really worked, try by try.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::event::{Back, Event, Next};
use muster_core::job::{Exit, Outcome, StopCause};
use muster_core::{JobId, JobSpec, Timestamp};

use crate::stage::{Lasts, Player, Trial, kept_ms};

/// What is known of the work of every job.
#[derive(Debug, Clone, Default)]
pub struct Works {
    jobs: BTreeMap<JobId, Work>,
}

/// What is known of the work of one job.
#[derive(Debug, Clone)]
struct Work {
    spec: Arc<JobSpec>,
    /// The tries that are over.
    trials: Vec<Trial>,
    /// What was done and saved of the one at hand.
    saved_ms: i64,
    /// An attempt has its place.
    placed: bool,
    started_at: Option<Timestamp>,
    saved_at: Option<Timestamp>,
    /// It was told to stop for good.
    ends: bool,
    over: bool,
}

impl Works {
    /// One more event.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { job, spec, array, .. } => {
                let indexes = array.as_ref().map(|array| &array.indexes[..]);
                for member in members(*job, indexes) {
                    self.jobs.insert(member, Work::new(spec.clone()));
                }
            }
            Event::JobPlaced { job, .. } => self.of(*job, |work| work.placed = true),
            Event::AttemptStarted { job, whole: true, at, .. } => {
                self.of(*job, |work| work.started_at = Some(*at));
            }
            Event::CheckpointSaved { job, at, .. } => self.of(*job, |work| work.saved_at = Some(*at)),
            Event::AttemptStopping { job, cause, .. } => {
                let ends = matches!(cause, StopCause::Cancelled { .. } | StopCause::TimeLimit);
                self.of(*job, |work| work.ends = ends);
            }
            Event::AttemptEnded { job, exit, next, receipt, at, .. } => {
                let lost_gpu_ms = receipt.as_ref().map(|receipt| receipt.lost_gpu_ms);
                self.of(*job, |work| work.end(exit, next, lost_gpu_ms, *at));
            }
            Event::JobEnded { job, .. } => self.of(*job, |work| work.over = true),
            _ => {}
        }
    }

    /// Jobs that are over are of no interest any more.
    pub fn forget_the_past(&mut self) {
        self.jobs.retain(|_, work| !work.over);
    }

    /// What a job does from here on, if `self` is all that is known and `then` was known at that moment.
    pub fn player(&self, then: Option<&Works>, job: JobId) -> Player {
        let Some(work) = self.jobs.get(&job) else { return Player::new([Trial::unknown()], 0) };
        let before = then.and_then(|then| then.jobs.get(&job));
        let (tried, saved_ms) = before.map_or((0, 0), |before| (before.trials.len(), before.saved_ms));
        let open = match (work.over, work.placed) {
            (false, true) => Some(Lasts::On),
            (false, false) => Some(Lasts::Unknown),
            (true, _) => work.trials.is_empty().then_some(Lasts::Unknown),
        };
        let open = open.map(|lasts| Trial { lasts, exit: Exit::Code { code: 0 } });
        Player::new(work.trials.iter().skip(tried).cloned().chain(open), saved_ms)
    }

    fn of(&mut self, job: JobId, change: impl FnOnce(&mut Work)) {
        if let Some(work) = self.jobs.get_mut(&job) {
            change(work);
        }
    }
}

impl Work {
    fn new(spec: Arc<JobSpec>) -> Work {
        Work {
            spec,
            trials: Vec::new(),
            saved_ms: 0,
            placed: false,
            started_at: None,
            saved_at: None,
            ends: false,
            over: false,
        }
    }

    /// An attempt is over.
    fn end(&mut self, exit: &Exit, next: &Next, lost_gpu_ms: Option<u64>, at: Timestamp) {
        let started_at = self.started_at.take();
        let saved_at = self.saved_at.take();
        let (was_ended, ran_ms) = (self.ends, started_at.map_or(0, |started| at.since(started)));
        (self.ends, self.placed) = (false, false);
        match next {
            Next::Ended { outcome, .. } => {
                self.over = true;
                let lasts = match was_ended && *outcome != Outcome::Done {
                    true => Lasts::On,
                    false => Lasts::For(self.saved_ms + ran_ms),
                };
                self.trials.push(Trial { lasts, exit: exit.clone() });
            }
            Next::Queued { because: Back::Restarted, .. } => {
                self.trials.push(Trial { lasts: Lasts::For(self.saved_ms + ran_ms), exit: exit.clone() });
                self.saved_ms = 0;
            }
            Next::Queued { .. } | Next::Held { .. } => {
                let lost_ms = lost_gpu_ms.map(|lost| lost / u64::from(self.spec.gpus().max(1)));
                let said_ms = saved_at.zip(started_at).map_or(0, |(saved, started)| saved.since(started));
                let kept_ms = match lost_ms {
                    Some(lost_ms) => ran_ms - i64::try_from(lost_ms).unwrap_or(i64::MAX),
                    None => kept_ms(&self.spec, ran_ms).max(said_ms),
                };
                self.saved_ms += kept_ms.clamp(0, ran_ms);
            }
        }
    }
}

/// The jobs that a submission made.
pub fn members(job: JobId, indexes: Option<&[u32]>) -> Vec<JobId> {
    match indexes {
        Some(indexes) => indexes.iter().map(|index| JobId::of_array(job.number, *index)).collect(),
        None => vec![job],
    }
}
