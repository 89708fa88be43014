//! Step 7, phase order: the queue order of ready jobs, by priority class and effective priority.
//!
//! Effective priority is one integer sum that users can see: the requested priority, plus bounded aging, minus the
//! fair-share penalty. A job that is requeued after a lost node counts as fully aged and has no penalty, so that it
//! starts before new jobs of its priority. The higher effective priority comes first, then the earlier submission,
//! then the lower id. An overdue job (it has waited longer than `max_wait_ms`) precedes all jobs but those of operator
//! priority, the oldest first, at any requested priority: that bounds every wait. Jobs within the guarantee of their
//! tenant come next, then all others.
//!
//! Under the objective `fast` (SRPT) the expected remaining GPU time of a job precedes its effective priority, within a
//! bucket too: there every job is examined.
//!
//! Jobs of one bucket have the same request, so submission decides among them and only the heads are compared: a round
//! costs O(buckets + placements × log buckets). Each start adds to the load of its tenant and so lowers the rank of the
//! tenant's other heads. Ranks only fall within a round, so a head is ranked again when it reaches the top of the heap.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};

use serde::{Deserialize, Serialize};

use crate::facts::verdict::FairShare;
use crate::ids::JobId;
use crate::objects::job::{Job, Phase};
use crate::objects::settings::{Objective, PRIORITY_MAX, Settings};
use crate::planner::fair_share::{TenantShares, member_share};
use crate::queue::{Bucket, QueueKey, waiting_since};
use crate::state::State;
use crate::state::policy_answers::PolicyAnswer;
use crate::time::{MINUTE, Timestamp};

/// The terms of the effective priority of a job. To preempt, a job must also have the higher requested priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriorityBreakdown {
    /// As requested, or as policies answered.
    pub priority: u32,
    pub aging: u32,
    /// Fair-share penalty: grows with usage relative to the entitlement.
    pub penalty: u32,
    /// The fair share that the penalty follows from; `None` if the tenant does not exist.
    pub share: Option<FairShare>,
    /// Expected remaining GPU-milliseconds; `None` unless the objective is `fast`.
    pub size_gpu_ms: Option<u64>,
}

impl PriorityBreakdown {
    pub fn effective(&self) -> i64 {
        i64::from(self.priority) + i64::from(self.aging) - i64::from(self.penalty)
    }
}

/// The priority breakdown of a waiting job.
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

/// The priority class of a job, compared before any priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PriorityClass {
    /// Ordered by effective priority.
    Ordinary,
    /// Within the guarantee of its tenant; ordered by effective priority.
    Guaranteed,
    /// Has waited longer than `max_wait_ms`.
    Overdue,
    /// Has the highest possible priority. No other class precedes overdue jobs.
    Operator,
}

/// The sort key of a ready job in the queue order; the greater comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    class: PriorityClass,
    /// The class by the priority rules of policies, 0 the most urgent. It is 0 for overdue jobs, or they would starve.
    policy_class: Reverse<u32>,
    /// Expected remaining GPU time under the objective `fast`; 0 for operator, overdue and returning jobs.
    size: Reverse<u64>,
    /// Equal for all overdue jobs: among them the oldest comes first, or jobs of low priority would starve.
    effective: i64,
    queue_key: Reverse<QueueKey>,
}

impl Rank {
    /// A job that is requeued after a lost node starts before new jobs.
    fn of_returning(self, returning: bool) -> Rank {
        if returning { Rank { size: NO_SIZE, ..self } } else { self }
    }
}

/// A job of a bucket, with its expected remaining GPU-milliseconds under the objective `fast`, else 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SizedKey {
    pub key: QueueKey,
    pub size_gpu_ms: u64,
}

/// The state and time that ranks are computed from.
#[derive(Clone, Copy)]
pub(crate) struct RankContext<'a> {
    pub state: &'a State,
    pub now: Timestamp,
}

/// The inputs of a rank that all jobs of a bucket share.
#[derive(Clone, Copy)]
pub(crate) struct BucketPriority<'a> {
    penalty: u32,
    guaranteed: bool,
    policy: PolicyAnswer<'a>,
}

/// Precedes all sizes.
const NO_SIZE: Reverse<u64> = Reverse(0);

impl<'a> RankContext<'a> {
    pub fn bucket_priority(self, shares: &TenantShares, bucket: &Bucket) -> BucketPriority<'a> {
        self.bucket_priority_with(shares, bucket, self.state.policy_answer(bucket))
    }

    /// The same with a known policy answer.
    fn bucket_priority_with(
        self,
        shares: &TenantShares,
        bucket: &Bucket,
        policy: PolicyAnswer<'a>,
    ) -> BucketPriority<'a> {
        BucketPriority {
            penalty: shares.penalty(&bucket.tenant, &bucket.user),
            guaranteed: shares.usage.cover(&bucket.tenant, &bucket.shape).is_some(),
            policy,
        }
    }

    /// The jobs of a bucket in queue order, each with its size. Under the objective `fair` sizes do not count (0), and
    /// the keys are in submission order already.
    pub fn ordered_jobs<'b>(
        self,
        bucket: &Bucket,
        bucket_priority: BucketPriority,
        keys: &'b BTreeSet<QueueKey>,
    ) -> Box<dyn Iterator<Item = SizedKey> + 'b> {
        if self.state.settings.objective == Objective::Fair {
            return Box::new(keys.iter().map(|key| SizedKey { key: *key, size_gpu_ms: 0 }));
        }
        let model = self.state.remaining_model(bucket, self.now);
        let mut ranked: Vec<(Rank, u64)> = keys
            .iter()
            .map(|key| {
                let job = self.state.jobs.get(&key.1);
                let (limit_ms, ran_ms) = job.map_or((None, 0), |job| (job.spec.time_limit_ms, job.ran_ms));
                let size = model.size_gpu_ms(limit_ms, job.map(|job| job.class_number), ran_ms);
                (self.rank_of(bucket, bucket_priority, SizedKey { key: *key, size_gpu_ms: size }, job), size)
            })
            .collect();
        ranked.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
        Box::new(ranked.into_iter().map(|(rank, size_gpu_ms)| SizedKey { key: rank.queue_key.0, size_gpu_ms }))
    }

    /// The size of a job that is not in the state; `limit_ms` is its time limit, if any.
    pub fn size_of_hypothetical(self, bucket: &Bucket, limit_ms: Option<i64>) -> u64 {
        match self.state.settings.objective {
            Objective::Fair => 0,
            Objective::Fast => self.state.remaining_model(bucket, self.now).size_gpu_ms(limit_ms, None, 0),
        }
    }

    /// The rank of a ready job.
    pub fn rank(self, bucket: &Bucket, bucket_priority: BucketPriority, job: SizedKey) -> Rank {
        self.rank_of(bucket, bucket_priority, job, self.state.jobs.get(&job.key.1))
    }

    fn rank_of(self, bucket: &Bucket, bucket_priority: BucketPriority, sized: SizedKey, job: Option<&Job>) -> Rank {
        let key = sized.key;
        let plain = self.rank_without_wait(bucket, bucket_priority, sized);
        if plain.class < PriorityClass::Overdue && self.waits_too_long(key, job) {
            let class = PriorityClass::Overdue;
            return Rank { class, policy_class: Reverse(0), size: NO_SIZE, effective: 0, ..plain };
        }
        let returning = job.is_some_and(is_returning);
        let effective = self.effective_priority(bucket, bucket_priority, key, returning);
        Rank { effective, ..plain }.of_returning(returning)
    }

    /// A lower bound of the rank: it ignores whether the job is overdue or returning.
    pub fn rank_without_wait(
        self,
        bucket: &Bucket,
        bucket_priority: BucketPriority,
        SizedKey { key, size_gpu_ms: size }: SizedKey,
    ) -> Rank {
        let class = match bucket_priority.guaranteed {
            _ if bucket.priority >= PRIORITY_MAX => PriorityClass::Operator,
            true => PriorityClass::Guaranteed,
            false => PriorityClass::Ordinary,
        };
        let effective = self.effective_priority(bucket, bucket_priority, key, false);
        let size = if class == PriorityClass::Operator { NO_SIZE } else { Reverse(size) };
        let policy_class = Reverse(bucket_priority.policy.class);
        Rank { class, policy_class, size, effective, queue_key: Reverse(key) }
    }

    fn effective_priority(
        self,
        bucket: &Bucket,
        bucket_priority: BucketPriority,
        key: QueueKey,
        returning: bool,
    ) -> i64 {
        let settings = &self.state.settings;
        let (aging, penalty) = match returning {
            true => (settings.aging_max, 0),
            false => (aging(settings, self.now.since(key.0)), bucket_priority.penalty),
        };
        i64::from(bucket_priority.policy.queue_priority(bucket)) + i64::from(aging) - i64::from(penalty)
    }

    /// The effective priority of a job that takes no part in the order, with the fair shares of now.
    pub fn effective_priority_of(self, shares: &TenantShares, bucket: &Bucket, key: QueueKey) -> i64 {
        let bucket_priority = self.bucket_priority(shares, bucket);
        self.effective_priority(bucket, bucket_priority, key, self.is_returning(key))
    }

    fn waiting_since(self, key: QueueKey) -> Timestamp {
        self.state.jobs.get(&key.1).and_then(waiting_since).unwrap_or(self.now)
    }

    fn is_returning(self, key: QueueKey) -> bool {
        self.state.jobs.get(&key.1).is_some_and(is_returning)
    }

    /// A preempted job starts a new wait, because it has run already. Its time since submission counts for aging only.
    fn is_overdue(self, key: QueueKey) -> bool {
        self.waits_too_long(key, self.state.jobs.get(&key.1))
    }

    fn waits_too_long(self, key: QueueKey, job: Option<&Job>) -> bool {
        let (now, limit) = (self.now, self.state.settings.max_wait_ms);
        let ready_since = |job: &Job| waiting_since(job).max(job.spec.start_after);
        now.since(key.0) > limit && job.and_then(ready_since).is_some_and(|since| now.since(since) > limit)
    }
}

/// The head of a bucket: its first job that this round has not tried yet.
pub(crate) struct QueueHead<'a> {
    pub bucket: &'a Bucket,
    /// What policies answered for the bucket.
    pub policy: PolicyAnswer<'a>,
    pub job: JobId,
    /// The job has waited longer than `max_wait_ms`, whatever its priority class.
    pub overdue: bool,
    pub effective_priority: i64,
    /// The priority with which the job preempts.
    pub preemption_priority: u32,
    waiting_since: Timestamp,
    /// Expected remaining GPU-milliseconds under the objective `fast`, else 0.
    pub size_gpu_ms: u64,
    returning: bool,
    queue_key: QueueKey,
    rank: Rank,
    behind: JobsBehind<'a>,
}

/// Jobs of a bucket in queue order, each with its size.
type JobsBehind<'a> = Box<dyn Iterator<Item = SizedKey> + 'a>;

impl<'a> QueueHead<'a> {
    pub fn queue_key(&self) -> QueueKey {
        self.queue_key
    }

    /// The first `most` jobs behind the head in its bucket, each with its size. They stay in the bucket.
    pub fn first_behind(&mut self, most: usize) -> Vec<SizedKey> {
        let rest: JobsBehind<'a> = std::mem::replace(&mut self.behind, Box::new(std::iter::empty()));
        let mut rest = rest.fuse();
        let first: Vec<SizedKey> = rest.by_ref().take(most).collect();
        if !first.is_empty() {
            self.behind = Box::new(first.clone().into_iter().chain(rest));
        }
        first
    }
}

impl QueueHead<'_> {
    /// True if the head may preempt a job of this priority whose effective priority at placement was `effective`.
    pub fn outranks(&self, priority: u32, effective: i64) -> bool {
        self.preemption_priority > priority && self.effective_priority > effective
    }

    /// True if the head was already waiting when another job was placed.
    pub fn was_waiting_at(&self, placed_at: Timestamp) -> bool {
        self.waiting_since <= placed_at
    }

    /// The preemption priority and the effective priority.
    pub fn priorities(&self) -> (u32, i64) {
        (self.preemption_priority, self.effective_priority)
    }
}

/// Heads are compared by rank only. A rank ends in a job id, so no two are equal.
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

/// The ready jobs in queue order: a heap of bucket heads.
pub(crate) struct Order<'a> {
    context: RankContext<'a>,
    heads: BinaryHeap<QueueHead<'a>>,
}

impl<'a> Order<'a> {
    pub fn new(state: &'a State, now: Timestamp, shares: &TenantShares) -> Order<'a> {
        let mut order = Order { context: RankContext { state, now }, heads: BinaryHeap::new() };
        for (bucket, keys) in state.queue.buckets() {
            let bucket_priority = order.context.bucket_priority(shares, bucket);
            let rest = order.context.ordered_jobs(bucket, bucket_priority, keys);
            order.push(bucket, bucket_priority, rest);
        }
        order
    }

    /// Add a job that is not in the state.
    pub fn add_hypothetical(
        &mut self,
        shares: &TenantShares,
        bucket: &'a Bucket,
        key: QueueKey,
        limit_ms: Option<i64>,
    ) {
        let size = self.context.size_of_hypothetical(bucket, limit_ms);
        let bucket_priority = self.context.bucket_priority(shares, bucket);
        let rank = self.context.rank_without_wait(bucket, bucket_priority, SizedKey { key, size_gpu_ms: size });
        self.heads.push(QueueHead {
            bucket,
            policy: bucket_priority.policy,
            size_gpu_ms: size,
            job: key.1,
            overdue: false,
            effective_priority: rank.effective,
            preemption_priority: bucket_priority.policy.preemption_priority(bucket),
            waiting_since: self.context.now,
            returning: false,
            queue_key: key,
            rank,
            behind: Box::new(std::iter::empty()),
        });
    }

    /// Remove the first head under the current fair shares. Its bucket is finished unless `next_of_bucket` follows.
    pub fn next_head(&mut self, shares: &TenantShares) -> Option<QueueHead<'a>> {
        loop {
            let mut head = self.heads.pop()?;
            let weakened = head.update_rank(self.context, shares);
            if !weakened || self.heads.peek().is_none_or(|next| *next < head) {
                return Some(head);
            }
            self.heads.push(head);
        }
    }

    /// Add the next job of a head's bucket as the new head.
    pub fn next_of_bucket(&mut self, shares: &TenantShares, head: QueueHead<'a>) {
        let bucket_priority = self.context.bucket_priority_with(shares, head.bucket, head.policy);
        self.push(head.bucket, bucket_priority, head.behind);
    }

    fn push(&mut self, bucket: &'a Bucket, bucket_priority: BucketPriority<'a>, mut rest: JobsBehind<'a>) {
        if let Some(job @ SizedKey { key, size_gpu_ms }) = rest.next() {
            let returning = self.context.is_returning(key);
            self.heads.push(QueueHead {
                bucket,
                policy: bucket_priority.policy,
                size_gpu_ms,
                job: key.1,
                overdue: self.context.is_overdue(key),
                effective_priority: self.context.effective_priority(bucket, bucket_priority, key, returning),
                preemption_priority: bucket_priority.policy.preemption_priority(bucket),
                waiting_since: self.context.waiting_since(key),
                returning,
                queue_key: key,
                rank: self.context.rank(bucket, bucket_priority, job),
                behind: rest,
            });
        }
    }
}

impl<'a> QueueHead<'a> {
    /// Recompute the rank. True if it has fallen.
    fn update_rank(&mut self, context: RankContext<'a>, shares: &TenantShares) -> bool {
        let bucket_priority = context.bucket_priority_with(shares, self.bucket, self.policy);
        self.effective_priority =
            context.effective_priority(self.bucket, bucket_priority, self.queue_key, self.returning);
        if self.rank.class == PriorityClass::Overdue {
            return false;
        }
        let job = SizedKey { key: self.queue_key, size_gpu_ms: self.size_gpu_ms };
        let plain = context.rank_without_wait(self.bucket, bucket_priority, job);
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
        let settings =
            Settings { aging_after_ms: 5 * MINUTE, aging_per_minute: 10, aging_max: 50, ..Settings::default() };
        let cases = [(0, 0), (5 * MINUTE, 0), (6 * MINUTE, 10), (6 * MINUTE + MINUTE / 2, 15), (i64::MAX, 50), (-7, 0)];
        for (waited_ms, expected) in cases {
            assert_eq!(aging(&settings, waited_ms), expected, "{waited_ms}");
        }
    }
}
