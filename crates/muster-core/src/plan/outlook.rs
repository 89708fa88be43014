//! `muster plan`: what would become of a job if it were submitted now. The same round is drawn up with the job
//! as a guest, so the answer is the planner's own.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::{JobSpec, PlacedTask};
use crate::plan::draft::Draft;
use crate::plan::order::Order;
use crate::plan::position::{Position, position_of_guest};
use crate::plan::score::Score;
use crate::plan::shares::Guest;
use crate::plan::{MakeRoom, round};
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;
use crate::verdict::{Reason, Verdict};

/// What would become of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlook {
    /// Where it would start in the next round; nothing if it would wait.
    pub start: Option<Vec<PlacedTask>>,
    /// Why there, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
    /// Who would be displaced for it, and where.
    pub room: Option<MakeRoom>,
    /// Why it would wait; no reasons if it would start.
    pub verdict: Verdict,
    /// Where it would stand among all that are ready.
    pub position: Position,
}

/// What would become of a job if it were submitted now.
pub fn outlook(state: &State, spec: &JobSpec, now: Timestamp) -> Outlook {
    let job = JobId::single(state.next_job);
    let bucket = Bucket::of_spec(spec, None, &state.policies);
    let guest = Guest { tenant: &spec.tenant, user: &spec.user };
    let mut draft = Draft::new(state, now, Some(&guest));
    draft.guest = Some((job, spec));
    let mut mix = state.mix.clone();
    if mix.add(spec, 1) {
        draft.capacity.learn(mix.lesson());
    }
    let position = position_of_guest(state, &draft.shares, &bucket, (now, job), spec.time_limit_ms);
    let own = own_reasons(state, spec, now);
    if !own.is_empty() {
        return Outlook { start: None, score: None, room: None, verdict: Verdict { reasons: own }, position };
    }
    let mut order = Order::new(state, now, &draft.shares);
    order.invite(&draft.shares, &bucket, (now, job), spec.time_limit_ms);
    let planned = round(draft, order);
    let start = planned.plan.starts.into_iter().find(|start| start.job == job);
    let (start, score) = start.map(|start| (start.tasks, start.score)).unzip();
    let room = planned.plan.claims.into_iter().find(|room| room.job == job);
    let verdict = match start {
        Some(_) => Verdict::default(),
        None => planned.verdicts.of_guest(job, &bucket),
    };
    Outlook { start, score: score.flatten(), room, verdict, position }
}

/// What the job itself says about waiting.
fn own_reasons(state: &State, spec: &JobSpec, now: Timestamp) -> Vec<Reason> {
    // A job that has ended may have left the memory.
    let open: Vec<JobId> =
        spec.after.iter().map(|dependency| dependency.job).filter(|job| state.is_live(*job)).collect();
    let dependency = (!open.is_empty()).then_some(Reason::Dependency { jobs: open });
    let later = spec.start_after.filter(|at| *at > now).map(|at| Reason::StartTime { at });
    dependency.into_iter().chain(later).collect()
}
