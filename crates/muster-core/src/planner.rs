//! Step 7, plan: draw up what should run next, and say of everyone else why they wait.
//!
//! The planner proposes and changes nothing; `AdoptPlan` checks each gang again against the state of now.
//! Cost grows with kinds of jobs and with decisions, not with waiting jobs: the queue is read bucket by
//! bucket, and when the head of a bucket does not fit, nobody behind it is looked at.

mod admit;
mod backfill;
mod draft;
mod explain;
mod fair_share;
mod forecast;
mod order;
pub mod place;
mod preempt;
mod repartition;
mod request;

use crate::facts::plan::Plan;
use crate::state::State;
use crate::time::Timestamp;

use draft::Draft;
use order::{Order, QueueHead};

pub use explain::dry_run::{DryRun, dry_run};
pub use explain::holders::{Holder, holders};
pub use explain::position::{Position, first_ahead, position};
pub use explain::remedies::{Remedy, remedies};
pub use explain::verdicts::Verdicts;
pub use fair_share::fair_shares;
pub use forecast::earliest_start::EarliestStarts;
pub use forecast::{Forecast, forecast};
pub use order::{PriorityBreakdown, priority_breakdown};
pub use preempt::defragment::{Move, moves};

/// One round of planning: what should happen, and why everyone else waits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// What should happen next.
    pub plan: Plan,
    /// Why the others wait.
    pub verdicts: Verdicts,
}

/// Draw up what should run next. The verdicts say why each other job waits.
pub fn plan(state: &State, now: Timestamp) -> Planned {
    let draft = Draft::new(state, now, None);
    let order = Order::new(state, now, &draft.shares);
    round(draft, order)
}

/// The phases of a round. `outlook` runs the same round with a guest in the order.
fn round<'a>(mut draft: Draft<'a>, order: Order<'a>) -> Planned {
    round_until_blocked(&mut draft, order);
    preempt::defragment::propose_if_enabled(&mut draft);
    preempt::srpt_group::evict_for_group(&mut draft);
    place::elastic::grow_started_gangs(&mut draft);
    repartition::propose(&mut draft);
    explain::explain_blocked(draft)
}

/// Everyone has their turn, until all are settled or blocked.
fn round_until_blocked<'a>(draft: &mut Draft<'a>, mut order: Order<'a>) {
    preempt::claims::start_claimants(draft);
    while let Some(turn) = order.next_head(&draft.shares) {
        match try_head(draft, &turn) {
            HeadOutcome::Settled => order.next_of_bucket(&draft.shares, turn),
            HeadOutcome::Blocked => draft.note_blocked(turn),
        }
    }
}

/// What came of a turn.
enum HeadOutcome {
    /// The job starts, or space is set aside for it: the next one of its bucket may try.
    Settled,
    /// Nothing can be done for it, so nothing can be done for the jobs behind it, which ask for the same.
    Blocked,
}

fn try_head(draft: &mut Draft, turn: &QueueHead) -> HeadOutcome {
    if draft.is_claimant(turn.job) {
        return HeadOutcome::Settled;
    }
    if draft.is_blocked(turn) {
        return HeadOutcome::Blocked;
    }
    let ask = draft.request(turn.bucket);
    if !admit::blockers(draft, turn.bucket, turn.policy, &ask).is_empty() {
        return HeadOutcome::Blocked;
    }
    if place::start_at_best_fit(draft, turn, &ask)
        || preempt::evict(draft, turn, &ask)
        || preempt::srpt::evict_loss_free(draft, turn, &ask)
    {
        return HeadOutcome::Settled;
    }
    if let Some(place) = backfill::reservation::earliest_placement(draft, turn, &ask) {
        if preempt::srpt::evict_for_net_gain(draft, turn, &ask, place.at) {
            return HeadOutcome::Settled;
        }
        backfill::reservation::reserve(draft, turn, place);
    }
    HeadOutcome::Blocked
}
