//! The verdicts of a planning round: every reason why each waiting job waits.

use std::collections::BTreeMap;

use crate::facts::verdict::{Reason, Verdict};
use crate::ids::JobId;
use crate::objects::job::{Attempt, Job, Phase, Unkillable};
use crate::objects::node::PowerAction;
use crate::objects::policy::FailedAttempt;
use crate::objects::settings::Objective;
use crate::planner::explain::position::position;
use crate::planner::order::priority_breakdown;
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

/// The verdicts of one round on all waiting jobs. Jobs of one bucket share a verdict, so the size does not grow with
/// the number of waiting jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdicts {
    buckets: BTreeMap<Bucket, Verdict>,
    /// Jobs with reasons of their own: preemptors, claimants, and jobs that wait for releasing space.
    jobs: BTreeMap<JobId, Verdict>,
    /// Latest expected starts of the jobs with a reservation.
    reserved: BTreeMap<JobId, Timestamp>,
}

impl Verdicts {
    /// Every reason why a job waits. Never empty for a waiting job. A running job has reasons only while one of its
    /// nodes is lost.
    pub fn of(&self, state: &State, job: &Job, now: Timestamp) -> Verdict {
        let mut verdict = self.without_position(state, job);
        let is_own = self.jobs.contains_key(&job.id) || state.claims.contains_key(&job.id);
        if !is_own {
            let ahead = position(state, job, now).map_or(0, |position| position.position - 1);
            verdict.reasons.extend((ahead > 0).then_some(Reason::Priority { ahead }));
            verdict.reasons.extend(above_share(state, job, now).filter(|_| ahead > 0));
        }
        verdict
    }

    /// The same without the number of jobs ahead, which costs a walk along the queue: for lists of jobs.
    pub fn without_position(&self, state: &State, job: &Job) -> Verdict {
        let own = own_reasons(state, job);
        let reasons = match (self.jobs.get(&job.id), state.claims.get(&job.id)) {
            _ if !own.is_empty() || !job.is_queued() => own,
            (Some(verdict), _) => verdict.reasons.clone(),
            // A plan adopted since this round evicted victims for the job.
            (None, Some(claim)) => vec![Reason::Claimed { victims: claim.victims.clone() }],
            (None, None) => self.of_hypothetical(job.id, &state.bucket(job)).reasons,
        };
        Verdict { reasons }
    }

    /// The latest expected start of a job with a reservation.
    pub fn reserved_at(&self, job: JobId) -> Option<Timestamp> {
        self.reserved.get(&job).copied()
    }

    /// The verdict of a blocked bucket.
    pub fn of_bucket(&self, bucket: &Bucket) -> Option<&Verdict> {
        self.buckets.get(bucket)
    }

    /// Every blocked bucket, in a fixed order.
    pub fn buckets(&self) -> impl Iterator<Item = (&Bucket, &Verdict)> {
        self.buckets.iter()
    }

    /// The verdict of a hypothetical job that took part in the round.
    pub(crate) fn of_hypothetical(&self, job: JobId, bucket: &Bucket) -> Verdict {
        let verdict = self.jobs.get(&job).or_else(|| self.buckets.get(bucket));
        verdict.cloned().unwrap_or(Verdict { reasons: vec![Reason::Considering] })
    }

    pub(crate) fn add(&mut self, bucket: Bucket, verdict: Verdict) {
        assert!(!verdict.reasons.is_empty(), "a bucket was blocked without a reason");
        self.buckets.insert(bucket, verdict);
    }

    pub(crate) fn add_reservation(&mut self, job: JobId, at: Timestamp) {
        self.reserved.insert(job, at);
    }

    /// Add a reason to the verdict of the job's bucket.
    pub(crate) fn add_reason(&mut self, state: &State, job: JobId, reason: Reason) {
        let bucket = state.jobs.get(&job).map(|job| state.bucket(job));
        if let Some(verdict) = bucket.and_then(|bucket| self.buckets.get_mut(&bucket)) {
            verdict.reasons.push(reason);
        }
    }

    pub(crate) fn add_job(&mut self, job: JobId, verdict: Verdict) {
        self.jobs.insert(job, verdict);
    }
}

/// The fair-share reason, if usage above the fair share is a cause of the job's position.
fn above_share(state: &State, job: &Job, now: Timestamp) -> Option<Reason> {
    if state.settings.objective == Objective::Fast {
        return None;
    }
    let share = priority_breakdown(state, job, now).share.filter(|share| share.factor_milli < 500)?;
    Some(Reason::FairShare { tenant: job.spec.tenant.clone(), share })
}

/// Reasons to wait that lie in the job itself: a hold, dependencies, a start time, or a restart that policies have not
/// decided.
fn own_reasons(state: &State, job: &Job) -> Vec<Reason> {
    let mut reasons = Vec::new();
    if let Phase::Held { by, why, .. } = &job.phase {
        reasons.push(Reason::Held { by: by.clone(), why: why.clone() });
    }
    if job.attempt().is_none() && !job.open_dependencies.is_empty() {
        let jobs = job.open_dependencies.iter().map(|open| open.job).collect();
        reasons.push(Reason::Dependency { jobs });
    }
    match (job.attempt(), job.wakes_at, state.failure_of(job.id)) {
        (None, Some(_), Some(FailedAttempt { failed: Some(error), .. })) => {
            reasons.push(Reason::Policy { why: format!("a policy failed: {error}") });
        }
        (None, Some(_), Some(_)) => reasons.push(Reason::PolicyUnasked),
        (None, Some(at), None) => reasons.push(Reason::StartTime { at }),
        _ => {}
    }
    reasons.extend(job.attempt().and_then(gang_starting));
    reasons.extend(job.attempt().into_iter().flat_map(|attempt| lost_nodes(state, attempt)));
    if let Some(Unkillable { node, processes, since }) = job.attempt().and_then(|attempt| attempt.unkillable.as_deref())
    {
        reasons.push(Reason::Unkillable { node: node.clone(), processes: processes.clone(), since: *since });
    }
    reasons
}

/// For a gang of which some nodes have started.
fn gang_starting(attempt: &Attempt) -> Option<Reason> {
    let stops_at = attempt.start_deadline().filter(|_| attempt.stopping.is_none())?;
    let nodes = attempt.unreported_nodes().into_iter().collect();
    Some(Reason::GangStarting { nodes, since: attempt.first_started_at?, stops_at })
}

/// The lost nodes on which an attempt may still run.
fn lost_nodes<'a>(state: &'a State, attempt: &'a Attempt) -> impl Iterator<Item = Reason> + 'a {
    let nodes = attempt.nodes().into_iter().filter_map(|node| state.nodes.get(&node));
    let lost = nodes.filter(|node| node.is_lost() && attempt.has_open_part(&node.id));
    lost.map(|node| {
        let since = node.state.silent_since.unwrap_or(node.state.sight.since);
        let fence_failure = node.power_failure.as_deref().filter(|failure| failure.action == PowerAction::Fence);
        let power_failure = fence_failure.map(|failure| failure.why.clone());
        let node = node.id.clone();
        match attempt.self_fence.map(|fence| since.plus(fence.proven_after_ms)) {
            None => Reason::LostNode { node, since, power_failure },
            Some(ends_at) => Reason::FencePending { node, since, ends_at, power_failure },
        }
    })
}
