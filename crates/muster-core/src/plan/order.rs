//! Phase order: who comes first.
//!
//! Effective priority is the priority asked for, plus bounded aging, less what being above one's fair share costs:
//! one visible integer sum. A job that lost a node counts as fully aged and without a penalty, so that it is complete
//! again before new work of its priority starts. Higher comes first, then earlier submitted, then the lower id. A job that has waited longer than
//! `max_wait_ms` comes before all but operator priority, oldest first, whatever it asked for: that bounds every
//! wait. After those come the jobs that stay within what their tenants are guaranteed, then all others.
//!
//! Where the objective is `fast`, the GPU time that is left of a job comes before its effective priority, inside a bucket
//! too: there every job is looked at.
//!
//! Inside a bucket everyone asked for the same, so submission decides and only the heads are compared: a round
//! costs O(buckets + placements × log buckets). Each start makes its tenant's fair share smaller and so weakens
//! those behind it. Ranks only fall in a round, so a head is looked at again when it comes out on top.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::{Job, Phase};
use crate::plan::draft::Draft;
use crate::plan::policy::Word;
use crate::plan::shares::{FairShare, Shares};
use crate::queue::{Bucket, Place, waiting_since};
use crate::settings::{Objective, PRIORITY_MAX, Settings};
use crate::state::State;
use crate::time::{MINUTE, Timestamp};

/// What a job is ordered by, term by term. To displace others it must be stronger by the priority asked for, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strength {
    /// As asked for, or as policies say.
    pub priority: u32,
    /// For waiting.
    pub aging: u32,
    /// Taken away for being above one's share.
    pub penalty: u32,
    /// How that came about.
    pub share: Option<FairShare>,
    /// GPU-milliseconds that it is expected to take, where that comes first in the order.
    pub size_gpu_ms: Option<u64>,
}

impl Strength {
    /// The sum.
    pub fn effective(&self) -> i64 {
        i64::from(self.priority) + i64::from(self.aging) - i64::from(self.penalty)
    }
}

/// What a waiting job is ordered by.
pub fn strength(state: &State, job: &Job, now: Timestamp) -> Strength {
    let shares = Shares::of(state, now, None);
    let (tenant, user) = (&job.spec.tenant, &job.spec.user);
    let (aging, penalty) = match is_returning(job) {
        true => (state.settings.aging_max, 0),
        false => (aging(&state.settings, now.since(job.submitted_at)), shares.penalty(tenant, user)),
    };
    let share = shares.fair_share(tenant, user);
    let fast = state.settings.objective == Objective::Fast;
    let size_gpu_ms = fast.then(|| state.size(job, now));
    let priority = match job.is_ready() {
        true => {
            let bucket = state.bucket(job);
            state.word(&bucket).ordered_priority(&bucket)
        }
        false => job.spec.priority,
    };
    Strength { priority, aging, penalty, share, size_gpu_ms }
}

fn is_returning(job: &Job) -> bool {
    matches!(job.phase, Phase::Queued { returning: true, .. })
}

/// Priority that a job gains by waiting.
fn aging(settings: &Settings, waited_ms: i64) -> u32 {
    let aged_ms = waited_ms.saturating_sub(settings.aging_after_ms).max(0);
    let gained = i128::from(aged_ms) * i128::from(settings.aging_per_minute) / i128::from(MINUTE);
    gained.min(i128::from(settings.aging_max)) as u32
}

/// Which class a job is ordered in, before any priority is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Ordered by effective priority.
    Ordinary,
    /// Stays within what its tenant is guaranteed; ordered by effective priority.
    Guaranteed,
    /// Has waited longer than `max_wait_ms`.
    Overdue,
    /// Asked for the highest priority there is. Nothing else goes before those who waited too long.
    Operator,
}

/// A place in the order of all ready jobs; the greater comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    standing: Standing,
    /// Where it comes by the rules of policies; the most urgent of those who are overdue too, or they would starve.
    class: Reverse<u32>,
    /// The GPU time it is expected to take, where the order goes by that; nothing for who is back or waited too long.
    size: Reverse<u64>,
    /// The same for all who are overdue: among them the oldest comes first, or those who asked for little would starve.
    effective: i64,
    place: Reverse<Place>,
}

impl Rank {
    /// Who was running and lost a node is complete again before new work.
    fn of_returning(self, returning: bool) -> Rank {
        if returning { Rank { size: NO_SIZE, ..self } } else { self }
    }
}

/// What ranks are worked out from.
#[derive(Clone, Copy)]
pub(super) struct Scale<'a> {
    pub state: &'a State,
    pub now: Timestamp,
}

/// What all jobs of a bucket have in common at a moment.
#[derive(Clone, Copy)]
pub(super) struct Common<'a> {
    penalty: u32,
    guaranteed: bool,
    word: Word<'a>,
}

/// What comes before all sizes.
const NO_SIZE: Reverse<u64> = Reverse(0);

impl<'a> Scale<'a> {
    pub fn common(self, shares: &Shares, bucket: &Bucket) -> Common<'a> {
        self.common_with(shares, bucket, self.state.word(bucket))
    }

    /// The same where it is known what policies say.
    fn common_with(self, shares: &Shares, bucket: &Bucket, word: Word<'a>) -> Common<'a> {
        Common {
            penalty: shares.penalty(&bucket.tenant, &bucket.user),
            guaranteed: shares.cover(self.state, &bucket.tenant, &bucket.shape).is_some(),
            word,
        }
    }

    /// The jobs of a bucket in the order of their turns, each with its size. They are in the order of submission already
    /// where sizes do not count.
    pub fn places<'b>(
        self,
        bucket: &Bucket,
        common: Common,
        places: &'b BTreeSet<Place>,
    ) -> Box<dyn Iterator<Item = (Place, u64)> + 'b> {
        if self.state.settings.objective == Objective::Fair {
            return Box::new(places.iter().map(|place| (*place, 0)));
        }
        let habits = self.state.habits_of(bucket, self.now);
        let mut ranked: Vec<(Rank, u64)> = places
            .iter()
            .map(|place| {
                let job = self.state.jobs.get(&place.1);
                let (limit_ms, ran_ms) = job.map_or((None, 0), |job| (job.spec.time_limit_ms, job.ran_ms));
                let size = habits.size(limit_ms, job.map(|job| job.number), ran_ms);
                (self.rank_of(bucket, common, (*place, size), job), size)
            })
            .collect();
        ranked.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        Box::new(ranked.into_iter().map(|(rank, size)| (rank.place.0, size)))
    }

    /// The size of a job that is not in the state, with a limit if it has one.
    pub fn size_of_guest(self, bucket: &Bucket, limit_ms: Option<i64>) -> u64 {
        match self.state.settings.objective {
            Objective::Fair => 0,
            Objective::Fast => self.state.habits_of(bucket, self.now).size(limit_ms, None, 0),
        }
    }

    /// The rank of a ready job.
    pub fn rank(self, bucket: &Bucket, common: Common, (place, size): (Place, u64)) -> Rank {
        self.rank_of(bucket, common, (place, size), self.state.jobs.get(&place.1))
    }

    fn rank_of(
        self,
        bucket: &Bucket,
        common: Common,
        (place, size): (Place, u64),
        job: Option<&Job>,
    ) -> Rank {
        let plain = self.plain_rank(bucket, common, (place, size));
        if plain.standing < Standing::Overdue && self.waits_too_long(place, job) {
            let standing = Standing::Overdue;
            return Rank { standing, class: Reverse(0), size: NO_SIZE, effective: 0, ..plain };
        }
        let returning = job.is_some_and(is_returning);
        let effective = self.effective(bucket, common, place, returning);
        Rank { effective, ..plain }.of_returning(returning)
    }

    /// The rank without asking how long the job has been waiting, and whether it is back; never above the true one.
    pub fn plain_rank(self, bucket: &Bucket, common: Common, (place, size): (Place, u64)) -> Rank {
        let standing = match common.guaranteed {
            _ if bucket.priority >= PRIORITY_MAX => Standing::Operator,
            true => Standing::Guaranteed,
            false => Standing::Ordinary,
        };
        let effective = self.effective(bucket, common, place, false);
        let size = if standing == Standing::Operator { NO_SIZE } else { Reverse(size) };
        let class = Reverse(common.word.class);
        Rank { standing, class, size, effective, place: Reverse(place) }
    }

    fn effective(self, bucket: &Bucket, common: Common, place: Place, returning: bool) -> i64 {
        let settings = &self.state.settings;
        let (aging, penalty) = match returning {
            true => (settings.aging_max, 0),
            false => (aging(settings, self.now.since(place.0)), common.penalty),
        };
        i64::from(common.word.ordered_priority(bucket)) + i64::from(aging) - i64::from(penalty)
    }

    fn waits_since(self, place: Place) -> Timestamp {
        self.state.jobs.get(&place.1).and_then(waiting_since).unwrap_or(self.now)
    }

    fn is_returning(self, place: Place) -> bool {
        self.state.jobs.get(&place.1).is_some_and(is_returning)
    }

    /// A job that was preempted counts its wait anew: it has had its turn. Its age in the queue counts on for
    /// aging only.
    fn is_overdue(self, place: Place) -> bool {
        self.waits_too_long(place, self.state.jobs.get(&place.1))
    }

    fn waits_too_long(self, place: Place, job: Option<&Job>) -> bool {
        let (now, limit) = (self.now, self.state.settings.max_wait_ms);
        let ready_since = |job: &Job| waiting_since(job).max(job.spec.start_after);
        now.since(place.0) > limit && job.and_then(ready_since).is_some_and(|since| now.since(since) > limit)
    }
}

/// The priority that a job is ordered by as the draft stands.
pub(super) fn effective(draft: &Draft, bucket: &Bucket, place: Place) -> i64 {
    let scale = Scale { state: draft.state, now: draft.now };
    let common = scale.common(&draft.shares, bucket);
    scale.effective(bucket, common, place, scale.is_returning(place))
}

/// Whose turn it is.
pub(super) struct Turn<'a> {
    /// The bucket it stands at the head of.
    pub bucket: &'a Bucket,
    /// What policies say of it.
    pub word: Word<'a>,
    /// The job itself.
    pub job: JobId,
    /// Whether it has waited longer than `max_wait_ms`, whatever its standing.
    pub overdue: bool,
    /// The priority it is ordered by.
    pub effective: i64,
    /// The priority by which it displaces others.
    pub displaces_with: u32,
    /// Since when it waits.
    since: Timestamp,
    /// GPU-milliseconds that are left of it, where that counts.
    pub size: u64,
    returning: bool,
    place: Place,
    rank: Rank,
    /// Those behind it.
    rest: Rest<'a>,
}

/// Jobs of a bucket in the order of their turns, each with its size.
type Rest<'a> = Box<dyn Iterator<Item = (Place, u64)> + 'a>;

impl<'a> Turn<'a> {
    /// When it was submitted, and its id.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The first of those behind it, each with its size. They stay there.
    pub fn behind(&mut self, most: usize) -> Vec<(Place, u64)> {
        let rest: Rest<'a> = std::mem::replace(&mut self.rest, Box::new(std::iter::empty()));
        let mut rest = rest.fuse();
        let first: Vec<(Place, u64)> = rest.by_ref().take(most).collect();
        if !first.is_empty() {
            self.rest = Box::new(first.clone().into_iter().chain(rest));
        }
        first
    }
}

impl Turn<'_> {
    /// Whether it may displace a job of this priority that was ordered by `effective` when it was placed.
    pub fn outranks(&self, priority: u32, effective: i64) -> bool {
        self.displaces_with > priority && self.effective > effective
    }

    /// Whether it was waiting already when another was placed.
    pub fn was_passed(&self, placed_at: Timestamp) -> bool {
        self.since <= placed_at
    }

    /// Its priority as asked for, and as it is ordered by.
    pub fn strength(&self) -> (u32, i64) {
        (self.displaces_with, self.effective)
    }
}

/// Turns are compared by rank only; ranks end in an id, so no two are alike.
impl Ord for Turn<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for Turn<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Turn<'_> {}

/// The ready jobs, best first.
pub(super) struct Order<'a> {
    scale: Scale<'a>,
    heads: BinaryHeap<Turn<'a>>,
}

impl<'a> Order<'a> {
    /// The order of all ready jobs.
    pub fn new(state: &'a State, now: Timestamp, shares: &Shares) -> Order<'a> {
        let mut order = Order { scale: Scale { state, now }, heads: BinaryHeap::new() };
        for (bucket, places) in state.queue.buckets() {
            let common = order.scale.common(shares, bucket);
            let rest = order.scale.places(bucket, common, places);
            order.push(bucket, common, rest);
        }
        order
    }

    /// Let a job take part that is not in the state.
    pub fn invite(&mut self, shares: &Shares, bucket: &'a Bucket, place: Place, limit_ms: Option<i64>) {
        let size = self.scale.size_of_guest(bucket, limit_ms);
        let common = self.scale.common(shares, bucket);
        let rank = self.scale.plain_rank(bucket, common, (place, size));
        self.heads.push(Turn {
            bucket,
            word: common.word,
            size,
            job: place.1,
            overdue: false,
            effective: rank.effective,
            displaces_with: common.word.displacing_priority(bucket),
            since: self.scale.now,
            returning: false,
            place,
            rank,
            rest: Box::new(std::iter::empty()),
        });
    }

    /// The best of all heads as shares are now. Its bucket is done unless it is brought back.
    pub fn next_turn(&mut self, shares: &Shares) -> Option<Turn<'a>> {
        loop {
            let mut turn = self.heads.pop()?;
            let weakened = turn.weigh(self.scale, shares);
            if !weakened || self.heads.peek().is_none_or(|next| *next < turn) {
                return Some(turn);
            }
            self.heads.push(turn);
        }
    }

    /// Let the next job of the same bucket take part.
    pub fn next_of_bucket(&mut self, shares: &Shares, turn: Turn<'a>) {
        let common = self.scale.common_with(shares, turn.bucket, turn.word);
        self.push(turn.bucket, common, turn.rest);
    }

    fn push(&mut self, bucket: &'a Bucket, common: Common<'a>, mut rest: Rest<'a>) {
        if let Some((place, size)) = rest.next() {
            let returning = self.scale.is_returning(place);
            self.heads.push(Turn {
                bucket,
                word: common.word,
                size,
                job: place.1,
                overdue: self.scale.is_overdue(place),
                effective: self.scale.effective(bucket, common, place, returning),
                displaces_with: common.word.displacing_priority(bucket),
                since: self.scale.waits_since(place),
                returning,
                place,
                rank: self.scale.rank(bucket, common, (place, size)),
                rest,
            });
        }
    }
}

impl<'a> Turn<'a> {
    /// Work out the rank anew. True if it has fallen since.
    fn weigh(&mut self, scale: Scale<'a>, shares: &Shares) -> bool {
        let common = scale.common_with(shares, self.bucket, self.word);
        self.effective = scale.effective(self.bucket, common, self.place, self.returning);
        if self.rank.standing == Standing::Overdue {
            return false;
        }
        let plain = scale.plain_rank(self.bucket, common, (self.place, self.size));
        let rank = Rank { effective: self.effective, ..plain }.of_returning(self.returning);
        let before = std::mem::replace(&mut self.rank, rank);
        self.rank < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aging_starts_late_grows_by_the_minute_and_is_bounded() {
        let settings = Settings {
            aging_after_ms: 5 * MINUTE,
            aging_per_minute: 10,
            aging_max: 50,
            ..Settings::default()
        };
        let cases = [
            (0, 0),
            (5 * MINUTE, 0),
            (6 * MINUTE, 10),
            (6 * MINUTE + MINUTE / 2, 15),
            (i64::MAX, 50),
            (-7, 0),
        ];
        for (waited_ms, expected) in cases {
            assert_eq!(aging(&settings, waited_ms), expected, "{waited_ms}");
        }
    }
}
