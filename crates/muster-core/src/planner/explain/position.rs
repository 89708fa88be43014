//! The position of a job in the queue, computed without a planning round.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::objects::job::Job;
use crate::objects::settings::Objective;
use crate::planner::fair_share::TenantShares;
use crate::planner::order::{Rank, RankContext, SizedKey};
use crate::queue::{Bucket, QueueKey, queue_key};
use crate::state::State;
use crate::time::Timestamp;

/// The position of a job among all ready jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// 1 for the first.
    pub position: u64,
    /// Number of ready jobs.
    pub of: u64,
}

/// The position of a job in the order of the planner. `None` for a job that is not ready.
///
/// Buckets that are wholly ahead of the job or behind it cost one comparison; only those that interleave are walked.
pub fn position(state: &State, job: &Job, now: Timestamp) -> Option<Position> {
    let bucket = state.bucket(job);
    let keys = state.queue.bucket(&bucket)?;
    let key = queue_key(job);
    if !keys.contains(&key) {
        return None;
    }
    let (context, shares) = (RankContext { state, now }, TenantShares::of(state, now, None));
    let priority = context.bucket_priority(&shares, &bucket);
    // Jobs of a bucket are tried in order, so the lowest rank up to and including the job is the one that counts.
    let (mut before, mut own) = (0, None);
    for one in context.ordered_jobs(&bucket, priority, keys) {
        let rank = context.rank(&bucket, priority, one);
        own = Some(own.map_or(rank, |own: Rank| own.min(rank)));
        if one.key == key {
            break;
        }
        before += 1;
    }
    let ahead = before + ahead_elsewhere(context, &shares, &bucket, own?);
    Some(Position { position: ahead + 1, of: ready(state) })
}

/// The first jobs ahead of a ready job, at most `most`, best first.
pub fn first_ahead(state: &State, job: &Job, now: Timestamp, most: usize) -> Vec<JobId> {
    let own = state.bucket(job);
    let key = queue_key(job);
    let Some(keys) = state.queue.bucket(&own).filter(|keys| keys.contains(&key)) else {
        return Vec::new();
    };
    let (context, shares) = (RankContext { state, now }, TenantShares::of(state, now, None));
    let priority = context.bucket_priority(&shares, &own);
    let mut ordered = context.ordered_jobs(&own, priority, keys);
    let mut passed = false;
    let up_to_job = std::iter::from_fn(|| {
        let next = ordered.next().filter(|_| !passed)?;
        passed = next.key == key;
        Some(next)
    });
    let rank = up_to_job.map(|one| context.rank(&own, priority, one)).min();
    let mut ahead: Vec<(Rank, JobId)> = Vec::new();
    for (bucket, keys) in state.queue.buckets() {
        let priority = context.bucket_priority(&shares, bucket);
        let ranked = context.ordered_jobs(bucket, priority, keys);
        let ranked = ranked.map(|one| (context.rank(bucket, priority, one), one.key.1));
        let before = |(other, id): &(Rank, JobId)| if *bucket == own { *id != job.id } else { Some(*other) > rank };
        // Jobs of a bucket are tried in order: the rank of a job counts as at most the lowest rank before it.
        let mut lowest = None;
        let lowered = ranked.map(|(rank, id)| {
            let rank = lowest.map_or(rank, |lowest: Rank| lowest.min(rank));
            lowest = Some(rank);
            (rank, id)
        });
        ahead.extend(lowered.take_while(before).take(most));
    }
    // Lowered ranks repeat inside a bucket; the stable sort keeps the order of the bucket.
    ahead.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    ahead.into_iter().map(|(_, id)| id).take(most).collect()
}

/// The position of a hypothetical job that is submitted now, with its time limit if it has one.
pub(crate) fn position_of_hypothetical(
    state: &State,
    shares: &TenantShares,
    bucket: &Bucket,
    key: QueueKey,
    limit_ms: Option<i64>,
) -> Position {
    let context = RankContext { state, now: key.0 };
    let size = context.size_of_hypothetical(bucket, limit_ms);
    let own =
        context.rank_without_wait(bucket, context.bucket_priority(shares, bucket), SizedKey { key, size_gpu_ms: size });
    let same = state.queue.bucket(bucket).map_or(0, |keys| match state.settings.objective {
        Objective::Fair => keys.len() as u64,
        Objective::Fast => ahead_in(context, shares, bucket, keys, own),
    });
    Position { position: same + ahead_elsewhere(context, shares, bucket, own) + 1, of: ready(state) + 1 }
}

fn ready(state: &State) -> u64 {
    state.queue.buckets().map(|(_, keys)| keys.len() as u64).sum()
}

fn ahead_elsewhere(context: RankContext, shares: &TenantShares, own: &Bucket, rank: Rank) -> u64 {
    let others = context.state.queue.buckets().filter(|(bucket, _)| *bucket != own);
    others.map(|(bucket, keys)| ahead_in(context, shares, bucket, keys, rank)).sum()
}

fn ahead_in(
    context: RankContext,
    shares: &TenantShares,
    bucket: &Bucket,
    keys: &BTreeSet<QueueKey>,
    rank: Rank,
) -> u64 {
    let priority = context.bucket_priority(shares, bucket);
    let outranks_without_wait = |one: &SizedKey| context.rank_without_wait(bucket, priority, *one) > rank;
    let by_age = context.state.settings.objective == Objective::Fair;
    if by_age && keys.last().is_some_and(|key| outranks_without_wait(&SizedKey { key: *key, size_gpu_ms: 0 })) {
        return keys.len() as u64;
    }
    let ahead = |one: &SizedKey| outranks_without_wait(one) || context.rank(bucket, priority, *one) > rank;
    context.ordered_jobs(bucket, priority, keys).take_while(ahead).count() as u64
}
