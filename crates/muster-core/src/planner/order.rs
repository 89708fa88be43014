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

use crate::facts::verdict::FairShare;
use crate::ids::JobId;
use crate::objects::job::{Job, Phase};
use crate::objects::settings::{Objective, PRIORITY_MAX, Settings};
use crate::planner::draft::Draft;
use crate::planner::fair_share::{TenantShares, member_share};
use crate::queue::{Bucket, QueueKey, waiting_since};
use crate::state::State;
use crate::state::policy_answers::PolicyAnswer;
use crate::time::{MINUTE, Timestamp};

/// What a job is ordered by, term by term. To displace others it must be stronger by the priority asked for, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityBreakdown {
    /// As asked for, or as policies say.
    pub priority: u32,
    pub aging: u32,
    /// Taken away for being above one's share.
    pub penalty: u32,
    /// How that came about.
    pub share: Option<FairShare>,
    /// GPU-milliseconds that it is expected to take, where that comes first in the order.
    pub size_gpu_ms: Option<u64>,
}

impl PriorityBreakdown {
    pub fn effective(&self) -> i64 {
        i64::from(self.priority) + i64::from(self.aging) - i64::from(self.penalty)
    }
}

/// What a waiting job is ordered by.
pub fn priority_breakdown(state: &State, job: &Job, now: Timestamp) -> PriorityBreakdown {
    let (share, penalty) = member_share(state, now, &job.spec.tenant, &job.spec.user);
    let (aging, penalty) = match is_returning(job) {
        true => (state.settings.aging_max, 0),
        false => (aging(&state.settings, now.since(job.submitted_at)), penalty),
    };
    let fast = state.settings.objective == Objective::Fast;
    let size_gpu_ms = fast.then(|| state.size_gpu_ms(job, now));
    let priority = match job.is_ready() {
        true => {
            let bucket = state.bucket(job);
            state.policy_answer(&bucket).queue_priority(&bucket)
        }
        false => job.spec.priority,
    };
    PriorityBreakdown { priority, aging, penalty, share, size_gpu_ms }
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
enum PriorityClass {
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
pub(crate) struct Rank {
    class: PriorityClass,
    /// Where it comes by the rules of policies; the most urgent of those who are overdue too, or they would starve.
    policy_class: Reverse<u32>,
    /// The GPU time it is expected to take, where the order goes by that; nothing for who is back or waited too long.
    size: Reverse<u64>,
    /// The same for all who are overdue: among them the oldest comes first, or those who asked for little would starve.
    effective: i64,
    queue_key: Reverse<QueueKey>,
}

impl Rank {
    /// Who was running and lost a node is complete again before new work.
    fn of_returning(self, returning: bool) -> Rank {
        if returning { Rank { size: NO_SIZE, ..self } } else { self }
    }
}

/// What ranks are worked out from.
#[derive(Clone, Copy)]
pub(crate) struct RankContext<'a> {
    pub state: &'a State,
    pub now: Timestamp,
}

/// What all jobs of a bucket have in common at a moment.
#[derive(Clone, Copy)]
pub(crate) struct BucketPriority<'a> {
    penalty: u32,
    guaranteed: bool,
    policy: PolicyAnswer<'a>,
}

/// What comes before all sizes.
const NO_SIZE: Reverse<u64> = Reverse(0);

impl<'a> RankContext<'a> {
    pub fn bucket_priority(self, shares: &TenantShares, bucket: &Bucket) -> BucketPriority<'a> {
        self.bucket_priority_with(shares, bucket, self.state.policy_answer(bucket))
    }

    /// The same where it is known what policies say.
    fn bucket_priority_with(
        self,
        shares: &TenantShares,
        bucket: &Bucket,
        word: PolicyAnswer<'a>,
    ) -> BucketPriority<'a> {
        BucketPriority {
            penalty: shares.penalty(&bucket.tenant, &bucket.user),
            guaranteed: shares.usage.cover(&bucket.tenant, &bucket.shape).is_some(),
            policy: word,
        }
    }

    /// The jobs of a bucket in the order of their turns, each with its size. They are in the order of submission already
    /// where sizes do not count.
    pub fn ordered_jobs<'b>(
        self,
        bucket: &Bucket,
        common: BucketPriority,
        places: &'b BTreeSet<QueueKey>,
    ) -> Box<dyn Iterator<Item = (QueueKey, u64)> + 'b> {
        if self.state.settings.objective == Objective::Fair {
            return Box::new(places.iter().map(|place| (*place, 0)));
        }
        let habits = self.state.remaining_model(bucket, self.now);
        let mut ranked: Vec<(Rank, u64)> = places
            .iter()
            .map(|place| {
                let job = self.state.jobs.get(&place.1);
                let (limit_ms, ran_ms) = job.map_or((None, 0), |job| (job.spec.time_limit_ms, job.ran_ms));
                let size = habits.size_gpu_ms(limit_ms, job.map(|job| job.class_number), ran_ms);
                (self.rank_of(bucket, common, (*place, size), job), size)
            })
            .collect();
        ranked.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        Box::new(ranked.into_iter().map(|(rank, size)| (rank.queue_key.0, size)))
    }

    /// The size of a job that is not in the state, with a limit if it has one.
    pub fn size_of_hypothetical(self, bucket: &Bucket, limit_ms: Option<i64>) -> u64 {
        match self.state.settings.objective {
            Objective::Fair => 0,
            Objective::Fast => self.state.remaining_model(bucket, self.now).size_gpu_ms(limit_ms, None, 0),
        }
    }

    /// The rank of a ready job.
    pub fn rank(self, bucket: &Bucket, common: BucketPriority, (place, size): (QueueKey, u64)) -> Rank {
        self.rank_of(bucket, common, (place, size), self.state.jobs.get(&place.1))
    }

    fn rank_of(
        self,
        bucket: &Bucket,
        common: BucketPriority,
        (place, size): (QueueKey, u64),
        job: Option<&Job>,
    ) -> Rank {
        let plain = self.rank_without_wait(bucket, common, (place, size));
        if plain.class < PriorityClass::Overdue && self.waits_too_long(place, job) {
            let standing = PriorityClass::Overdue;
            return Rank { class: standing, policy_class: Reverse(0), size: NO_SIZE, effective: 0, ..plain };
        }
        let returning = job.is_some_and(is_returning);
        let effective = self.effective_priority(bucket, common, place, returning);
        Rank { effective, ..plain }.of_returning(returning)
    }

    /// The rank without asking how long the job has been waiting, and whether it is back; never above the true one.
    pub fn rank_without_wait(
        self,
        bucket: &Bucket,
        common: BucketPriority,
        (place, size): (QueueKey, u64),
    ) -> Rank {
        let standing = match common.guaranteed {
            _ if bucket.priority >= PRIORITY_MAX => PriorityClass::Operator,
            true => PriorityClass::Guaranteed,
            false => PriorityClass::Ordinary,
        };
        let effective = self.effective_priority(bucket, common, place, false);
        let size = if standing == PriorityClass::Operator { NO_SIZE } else { Reverse(size) };
        let class = Reverse(common.policy.class);
        Rank { class: standing, policy_class: class, size, effective, queue_key: Reverse(place) }
    }

    fn effective_priority(
        self,
        bucket: &Bucket,
        common: BucketPriority,
        place: QueueKey,
        returning: bool,
    ) -> i64 {
        let settings = &self.state.settings;
        let (aging, penalty) = match returning {
            true => (settings.aging_max, 0),
            false => (aging(settings, self.now.since(place.0)), common.penalty),
        };
        i64::from(common.policy.queue_priority(bucket)) + i64::from(aging) - i64::from(penalty)
    }

    fn waiting_since(self, place: QueueKey) -> Timestamp {
        self.state.jobs.get(&place.1).and_then(waiting_since).unwrap_or(self.now)
    }

    fn is_returning(self, place: QueueKey) -> bool {
        self.state.jobs.get(&place.1).is_some_and(is_returning)
    }

    /// A job that was preempted counts its wait anew: it has had its turn. Its age in the queue counts on for
    /// aging only.
    fn is_overdue(self, place: QueueKey) -> bool {
        self.waits_too_long(place, self.state.jobs.get(&place.1))
    }

    fn waits_too_long(self, place: QueueKey, job: Option<&Job>) -> bool {
        let (now, limit) = (self.now, self.state.settings.max_wait_ms);
        let ready_since = |job: &Job| waiting_since(job).max(job.spec.start_after);
        now.since(place.0) > limit && job.and_then(ready_since).is_some_and(|since| now.since(since) > limit)
    }
}

/// The priority that a job is ordered by as the draft stands.
pub(crate) fn effective_priority(draft: &Draft, bucket: &Bucket, place: QueueKey) -> i64 {
    let scale = RankContext { state: draft.state, now: draft.now };
    let common = scale.bucket_priority(&draft.shares, bucket);
    scale.effective_priority(bucket, common, place, scale.is_returning(place))
}

/// Whose turn it is.
pub(crate) struct QueueHead<'a> {
    /// The bucket it stands at the head of.
    pub bucket: &'a Bucket,
    /// What policies say of it.
    pub policy: PolicyAnswer<'a>,
    pub job: JobId,
    /// Whether it has waited longer than `max_wait_ms`, whatever its standing.
    pub overdue: bool,
    /// The priority it is ordered by.
    pub effective_priority: i64,
    /// The priority by which it displaces others.
    pub preemption_priority: u32,
    /// Since when it waits.
    waiting_since: Timestamp,
    /// GPU-milliseconds that are left of it, where that counts.
    pub size_gpu_ms: u64,
    returning: bool,
    queue_key: QueueKey,
    rank: Rank,
    behind: JobsBehind<'a>,
}

/// Jobs of a bucket in the order of their turns, each with its size.
type JobsBehind<'a> = Box<dyn Iterator<Item = (QueueKey, u64)> + 'a>;

impl<'a> QueueHead<'a> {
    /// When it was submitted, and its id.
    pub fn queue_key(&self) -> QueueKey {
        self.queue_key
    }

    /// The first of those behind it, each with its size. They stay there.
    pub fn first_behind(&mut self, most: usize) -> Vec<(QueueKey, u64)> {
        let rest: JobsBehind<'a> = std::mem::replace(&mut self.behind, Box::new(std::iter::empty()));
        let mut rest = rest.fuse();
        let first: Vec<(QueueKey, u64)> = rest.by_ref().take(most).collect();
        if !first.is_empty() {
            self.behind = Box::new(first.clone().into_iter().chain(rest));
        }
        first
    }
}

impl QueueHead<'_> {
    /// Whether it may displace a job of this priority that was ordered by `effective` when it was placed.
    pub fn outranks(&self, priority: u32, effective: i64) -> bool {
        self.preemption_priority > priority && self.effective_priority > effective
    }

    /// Whether it was waiting already when another was placed.
    pub fn was_waiting_at(&self, placed_at: Timestamp) -> bool {
        self.waiting_since <= placed_at
    }

    /// Its priority as asked for, and as it is ordered by.
    pub fn priorities(&self) -> (u32, i64) {
        (self.preemption_priority, self.effective_priority)
    }
}

/// Turns are compared by rank only; ranks end in an id, so no two are alike.
impl Ord for QueueHead<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for QueueHead<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for QueueHead<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for QueueHead<'_> {}

/// The ready jobs, best first.
pub(crate) struct Order<'a> {
    scale: RankContext<'a>,
    heads: BinaryHeap<QueueHead<'a>>,
}

impl<'a> Order<'a> {
    /// The order of all ready jobs.
    pub fn new(state: &'a State, now: Timestamp, shares: &TenantShares) -> Order<'a> {
        let mut order = Order { scale: RankContext { state, now }, heads: BinaryHeap::new() };
        for (bucket, places) in state.queue.buckets() {
            let common = order.scale.bucket_priority(shares, bucket);
            let rest = order.scale.ordered_jobs(bucket, common, places);
            order.push(bucket, common, rest);
        }
        order
    }

    /// Let a job take part that is not in the state.
    pub fn add_hypothetical(
        &mut self,
        shares: &TenantShares,
        bucket: &'a Bucket,
        place: QueueKey,
        limit_ms: Option<i64>,
    ) {
        let size = self.scale.size_of_hypothetical(bucket, limit_ms);
        let common = self.scale.bucket_priority(shares, bucket);
        let rank = self.scale.rank_without_wait(bucket, common, (place, size));
        self.heads.push(QueueHead {
            bucket,
            policy: common.policy,
            size_gpu_ms: size,
            job: place.1,
            overdue: false,
            effective_priority: rank.effective,
            preemption_priority: common.policy.preemption_priority(bucket),
            waiting_since: self.scale.now,
            returning: false,
            queue_key: place,
            rank,
            behind: Box::new(std::iter::empty()),
        });
    }

    /// The best of all heads as shares are now. Its bucket is done unless it is brought back.
    pub fn next_head(&mut self, shares: &TenantShares) -> Option<QueueHead<'a>> {
        loop {
            let mut turn = self.heads.pop()?;
            let weakened = turn.update_rank(self.scale, shares);
            if !weakened || self.heads.peek().is_none_or(|next| *next < turn) {
                return Some(turn);
            }
            self.heads.push(turn);
        }
    }

    /// Let the next job of the same bucket take part.
    pub fn next_of_bucket(&mut self, shares: &TenantShares, turn: QueueHead<'a>) {
        let common = self.scale.bucket_priority_with(shares, turn.bucket, turn.policy);
        self.push(turn.bucket, common, turn.behind);
    }

    fn push(&mut self, bucket: &'a Bucket, common: BucketPriority<'a>, mut rest: JobsBehind<'a>) {
        if let Some((place, size)) = rest.next() {
            let returning = self.scale.is_returning(place);
            self.heads.push(QueueHead {
                bucket,
                policy: common.policy,
                size_gpu_ms: size,
                job: place.1,
                overdue: self.scale.is_overdue(place),
                effective_priority: self.scale.effective_priority(bucket, common, place, returning),
                preemption_priority: common.policy.preemption_priority(bucket),
                waiting_since: self.scale.waiting_since(place),
                returning,
                queue_key: place,
                rank: self.scale.rank(bucket, common, (place, size)),
                behind: rest,
            });
        }
    }
}

impl<'a> QueueHead<'a> {
    /// Work out the rank anew. True if it has fallen since.
    fn update_rank(&mut self, scale: RankContext<'a>, shares: &TenantShares) -> bool {
        let common = scale.bucket_priority_with(shares, self.bucket, self.policy);
        self.effective_priority =
            scale.effective_priority(self.bucket, common, self.queue_key, self.returning);
        if self.rank.class == PriorityClass::Overdue {
            return false;
        }
        let plain = scale.rank_without_wait(self.bucket, common, (self.queue_key, self.size_gpu_ms));
        let rank = Rank { effective: self.effective_priority, ..plain }.of_returning(self.returning);
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
