//! Step 7, plan: draw up what should run next, and say of everyone else why they wait.
//!
//! The planner proposes and changes nothing; `AdoptPlan` checks each gang again against the state of now.
//! Cost grows with kinds of jobs and with decisions, not with waiting jobs: the queue is read bucket by
//! bucket, and when the head of a bucket does not fit, nobody behind it is looked at.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::PlacedTask;
use crate::state::State;
use crate::time::Timestamp;

mod across;
mod admit;
pub mod advice;
mod ask;
mod claims;
mod cut;
mod defragment;
mod draft;
mod earliest;
mod explain;
mod feasible;
mod forecast;
mod grow;
mod hasten;
mod holders;
mod leaving;
mod offers;
mod order;
mod outlook;
mod place;
pub mod policy;
mod position;
mod preempt;
mod remedies;
mod reserve;
mod running;
pub mod score;
mod seats;
mod shares;
mod spread;
mod timeline;
mod together;

use advice::{Advice, Silent};
use draft::Draft;
use order::{Order, Turn};
use score::Score;

pub use crate::verdict::Verdicts;
pub use cut::Cut;
pub use defragment::{Move, moves};
pub use earliest::EarliestStarts;
pub use feasible::infeasible;
pub use forecast::{Forecast, Range, forecast};
pub use holders::{Holder, holders};
pub use order::{Strength, strength};
pub use outlook::{Outlook, outlook};
pub use position::{Position, first_ahead, position};
pub use remedies::{Remedy, remedies};
pub use shares::{FairShare, fair_shares};

/// What should happen next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// How many events the planner had seen.
    pub snapshot: u64,
    /// The planner's `now`.
    pub now: Timestamp,
    /// Gangs to start, in order.
    pub starts: Vec<Start>,
    /// Gangs to make room for, in order.
    pub claims: Vec<MakeRoom>,
    /// Idle devices to partition otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<Cut>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.claims.is_empty() && self.cuts.is_empty()
    }
}

/// A gang to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Which job.
    pub job: JobId,
    /// Which task sits where.
    pub tasks: Vec<PlacedTask>,
    /// The priority it was ordered by.
    #[serde(default)]
    pub effective: Option<i64>,
    /// How long it is expected to run, where it has no time limit.
    #[serde(default)]
    pub expected_ms: Option<i64>,
    /// It has its space on loan: those it passes may ask it to leave when that time is over.
    #[serde(default)]
    pub lent: bool,
    /// Why it starts there, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
}

/// Running jobs to displace so that another fits afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MakeRoom {
    /// For which job.
    pub job: JobId,
    /// Which of its tasks will sit where.
    pub tasks: Vec<PlacedTask>,
    /// Who must go, least loss first.
    pub victims: Vec<JobId>,
}

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
    plan_with(state, now, &Silent)
}

/// The same with the advice of others on where jobs go.
pub fn plan_with(state: &State, now: Timestamp, advice: &dyn Advice) -> Planned {
    let mut draft = Draft::new(state, now, None);
    draft.advice = advice;
    draft.tells_nodes_apart |= advice.tells_nodes_apart();
    let order = Order::new(state, now, &draft.shares);
    round(draft, order)
}

/// The phases of a round. `outlook` runs the same round with a guest in the order.
fn round<'a>(mut draft: Draft<'a>, order: Order<'a>) -> Planned {
    round_until_blocked(&mut draft, order);
    defragment::make_room(&mut draft);
    together::make_room(&mut draft);
    grow::take_the_rest(&mut draft);
    cut::propose(&mut draft);
    explain::all_blocked(draft)
}

/// Everyone has their turn, until all are settled or blocked.
fn round_until_blocked<'a>(draft: &mut Draft<'a>, mut order: Order<'a>) {
    claims::start_where_room_is_made(draft);
    while let Some(turn) = order.next_turn(&draft.shares) {
        match take_turn(draft, &turn) {
            Tried::Settled => order.next_of_bucket(&draft.shares, turn),
            Tried::Blocked => draft.note_blocked(turn),
        }
    }
}

/// What came of a turn.
enum Tried {
    /// The job starts, or space is set aside for it: the next one of its bucket may try.
    Settled,
    /// Nothing can be done for it, so nothing can be done for the jobs behind it, which ask for the same.
    Blocked,
}

fn take_turn(draft: &mut Draft, turn: &Turn) -> Tried {
    if draft.is_claimant(turn.job) {
        return Tried::Settled;
    }
    if draft.is_blocked(turn) {
        return Tried::Blocked;
    }
    let ask = draft.ask(turn.bucket);
    if !admit::blockers(draft, (turn.bucket, turn.word), &ask).is_empty() {
        return Tried::Blocked;
    }
    if place::best_fit(draft, turn, &ask)
        || preempt::make_room(draft, turn, &ask)
        || hasten::make_room_gently(draft, turn, &ask)
    {
        return Tried::Settled;
    }
    if let Some(place) = reserve::earliest_place(draft, turn, &ask) {
        if hasten::make_room(draft, turn, &ask, place.at) {
            return Tried::Settled;
        }
        reserve::keep(draft, turn, place);
    }
    Tried::Blocked
}
