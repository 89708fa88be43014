//! Dry run (`muster plan`): what would happen to a job if it were submitted now. A round is planned with the
//! hypothetical job in the queue, so the answer is the planner's own.

use serde::{Deserialize, Serialize};

use crate::facts::plan::Eviction;
use crate::facts::verdict::{Reason, Verdict};
use crate::ids::JobId;
use crate::objects::job::{JobSpec, PlacedTask};
use crate::objects::score::Score;
use crate::planner::draft::Draft;
use crate::planner::explain::position::{Position, position_of_hypothetical};
use crate::planner::fair_share::HypotheticalJob;
use crate::planner::order::Order;
use crate::planner::round;
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

/// What would happen to a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DryRun {
    /// Where the job would start in the next round; `None` if it would wait.
    pub start: Option<Vec<PlacedTask>>,
    /// The score of the placement, if there were alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
    /// The eviction that would be proposed for the job.
    pub eviction: Option<Eviction>,
    /// Why the job would wait; no reasons if it would start.
    pub verdict: Verdict,
    /// Its position among all ready jobs.
    pub position: Position,
}

/// What would happen to a job if it were submitted now.
pub fn dry_run(state: &State, spec: &JobSpec, now: Timestamp) -> DryRun {
    let job = JobId::single(state.next_job);
    let bucket = Bucket::of_spec(spec, None, &state.policies.bucket_criteria);
    let owner = HypotheticalJob { tenant: &spec.tenant, user: &spec.user };
    let mut draft = Draft::new(state, now, Some(&owner));
    draft.hypothetical = Some((job, spec));
    let mut mix = state.workload_mix.clone();
    if mix.add(spec, 1) {
        draft.space.resources.set_mix(mix.snapshot());
    }
    let position = position_of_hypothetical(state, &draft.shares, &bucket, (now, job), spec.time_limit_ms);
    let own = own_reasons(state, spec, now);
    if !own.is_empty() {
        return DryRun { start: None, score: None, eviction: None, verdict: Verdict { reasons: own }, position };
    }
    let mut order = Order::new(state, now, &draft.shares);
    order.add_hypothetical(&draft.shares, &bucket, (now, job), spec.time_limit_ms);
    let planned = round(draft, order);
    let start = planned.plan.starts.into_iter().find(|start| start.job == job);
    let (start, score) = start.map(|start| (start.tasks, start.score)).unzip();
    let eviction = planned.plan.evictions.into_iter().find(|eviction| eviction.job == job);
    let verdict = match start {
        Some(_) => Verdict::default(),
        None => planned.verdicts.of_hypothetical(job, &bucket),
    };
    DryRun { start, score: score.flatten(), eviction, verdict, position }
}

/// Reasons to wait that lie in the job itself: dependencies and a start time.
fn own_reasons(state: &State, spec: &JobSpec, now: Timestamp) -> Vec<Reason> {
    // An ended job may no longer be in the state.
    let open: Vec<JobId> =
        spec.after.iter().map(|dependency| dependency.job).filter(|job| state.is_live(*job)).collect();
    let dependency = (!open.is_empty()).then_some(Reason::Dependency { jobs: open });
    let later = spec.start_after.filter(|at| *at > now).map(|at| Reason::StartTime { at });
    dependency.into_iter().chain(later).collect()
}
