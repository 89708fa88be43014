//! Step 7, plan: one scheduling round, from the state to a plan and a verdict for every job that waits.
//!
//! The planner proposes and changes nothing; `AdoptPlan` checks each gang again against the current state.
//! The cost grows with the number of buckets and decisions, not with the number of waiting jobs: the queue is read
//! bucket by bucket, and if the head of a bucket does not fit, no job behind it is examined.

mod admit;
mod backfill;
mod draft;
mod explain;
mod fair_share;
mod forecast;
mod order;
pub mod place;
mod policy_score;
mod preempt;
mod repartition;
mod request;

use crate::facts::plan::Plan;
use crate::state::State;
use crate::time::Timestamp;

use draft::Draft;
use order::{Order, QueueHead};

pub use explain::dry_run::{DryRun, dry_run};
pub use explain::holders::{DeviceHolder, holders, holders_of_node};
pub use explain::position::{Position, first_ahead, position};
pub use explain::remedies::{Remedy, remedies};
pub use explain::verdicts::Verdicts;
pub use fair_share::fair_shares;
pub use forecast::earliest_start::EarliestStarts;
pub use forecast::{Forecast, forecast};
pub use order::{PriorityBreakdown, priority_breakdown};
pub use preempt::defragment::{Move, moves};

/// The result of one round.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    pub plan: Plan,
    /// The reasons why the other jobs wait.
    pub verdicts: Verdicts,
}

/// Run one round: the plan, and a verdict for every job that waits.
pub fn plan(state: &State, now: Timestamp) -> Planned {
    let draft = Draft::new(state, now, None);
    let order = Order::new(state, now, &draft.shares);
    round(draft, order)
}

/// The phases of a round. `dry_run` runs the same round with a hypothetical job in the order.
fn round<'a>(mut draft: Draft<'a>, order: Order<'a>) -> Planned {
    round_until_blocked(&mut draft, order);
    preempt::defragment::propose_if_enabled(&mut draft);
    preempt::srpt_group::evict_for_group(&mut draft);
    place::elastic::grow_started_gangs(&mut draft);
    repartition::propose(&mut draft);
    explain::explain_blocked(draft)
}

/// Try the queue heads in order until every bucket is empty or blocked.
fn round_until_blocked<'a>(draft: &mut Draft<'a>, mut order: Order<'a>) {
    preempt::claims::start_claimants(draft);
    while let Some(head) = order.next_head(&draft.shares) {
        match try_head(draft, &head) {
            HeadOutcome::Settled => order.next_of_bucket(&draft.shares, head),
            HeadOutcome::Blocked => draft.note_blocked(head),
        }
    }
}

/// The result of trying a queue head.
enum HeadOutcome {
    /// The job starts, or space is set aside for it: the next job of its bucket is tried.
    Settled,
    /// The job can neither start nor preempt. No job behind it in the bucket can either: all have the same request.
    Blocked,
}

fn try_head(draft: &mut Draft, head: &QueueHead) -> HeadOutcome {
    if draft.is_claimant(head.job) {
        return HeadOutcome::Settled;
    }
    if draft.is_blocked(head) {
        return HeadOutcome::Blocked;
    }
    let request = draft.request(head.bucket);
    if !admit::blockers(draft, head.bucket, head.policy, &request).is_empty() {
        return HeadOutcome::Blocked;
    }
    if place::start_at_best_fit(draft, head, &request)
        || preempt::evict(draft, head, &request)
        || preempt::srpt::evict_loss_free(draft, head, &request)
    {
        return HeadOutcome::Settled;
    }
    if let Some(placement) = backfill::reservation::earliest_placement(draft, head, &request) {
        if preempt::srpt::evict_for_net_gain(draft, head, &request, placement.at) {
            return HeadOutcome::Settled;
        }
        backfill::reservation::reserve(draft, head, placement);
    }
    HeadOutcome::Blocked
}
