//! Where a job stands in the order, without drawing up a round.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::Job;
use crate::plan::order::{Rank, Scale};
use crate::plan::shares::Shares;
use crate::queue::{Bucket, Place, place_of};
use crate::settings::Objective;
use crate::state::State;
use crate::time::Timestamp;

/// Where a job stands among all that are ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// 1 for the first.
    pub position: u64,
    /// How many are ready.
    pub of: u64,
}

/// Where a job stands in the real order; nothing for a job that is not ready.
///
/// Buckets that are wholly before or behind it cost one comparison; only those that interleave are walked.
pub fn position(state: &State, job: &Job, now: Timestamp) -> Option<Position> {
    let bucket = state.bucket(job);
    let places = state.queue.bucket(&bucket)?;
    let place = place_of(job);
    if !places.contains(&place) {
        return None;
    }
    let (scale, shares) = (Scale { state, now }, Shares::of(state, now, None).with_models(state));
    let common = scale.common(&shares, &bucket);
    // Nobody overtakes who has their turn earlier in the bucket, so the lowest rank up to here is the one that counts.
    let (mut before, mut own) = (0, None);
    for one in scale.places(&bucket, common, places) {
        let rank = scale.rank(&bucket, common, one);
        own = Some(own.map_or(rank, |own: Rank| own.min(rank)));
        if one.0 == place {
            break;
        }
        before += 1;
    }
    let ahead = before + ahead_elsewhere(scale, &shares, &bucket, own?);
    Some(Position { position: ahead + 1, of: ready(state) })
}

/// The first of those who are ahead of a ready job, best first.
pub fn first_ahead(state: &State, job: &Job, now: Timestamp, most: usize) -> Vec<JobId> {
    let own = state.bucket(job);
    let place = place_of(job);
    let Some(places) = state.queue.bucket(&own).filter(|places| places.contains(&place)) else {
        return Vec::new();
    };
    let (scale, shares) = (Scale { state, now }, Shares::of(state, now, None).with_models(state));
    let common = scale.common(&shares, &own);
    let mut until = scale.places(&own, common, places);
    let mut passed = false;
    let until = std::iter::from_fn(|| {
        let next = until.next().filter(|_| !passed)?;
        passed = next.0 == place;
        Some(next)
    });
    let rank = until.map(|one| scale.rank(&own, common, one)).min();
    let mut ahead: Vec<(Rank, JobId)> = Vec::new();
    for (bucket, places) in state.queue.buckets() {
        let common = scale.common(&shares, bucket);
        let ranked = scale.places(bucket, common, places);
        let ranked = ranked.map(|one| (scale.rank(bucket, common, one), one.0.1));
        let before =
            |(other, id): &(Rank, JobId)| if *bucket == own { *id != job.id } else { Some(*other) > rank };
        // Nobody overtakes in a bucket: a rank counts only as far as those before it let it.
        let mut lowest = None;
        let held_back = ranked.map(|(rank, id)| {
            let rank = lowest.map_or(rank, |lowest: Rank| lowest.min(rank));
            lowest = Some(rank);
            (rank, id)
        });
        ahead.extend(held_back.take_while(before).take(most));
    }
    // Held back ranks repeat inside a bucket, whose order is kept.
    ahead.sort_by_key(|(rank, _)| std::cmp::Reverse(*rank));
    ahead.into_iter().map(|(_, id)| id).take(most).collect()
}

/// Where a job would stand that is not in the state and comes now, with a limit if it has one.
pub(super) fn position_of_guest(
    state: &State,
    shares: &Shares,
    bucket: &Bucket,
    place: Place,
    limit_ms: Option<i64>,
) -> Position {
    let scale = Scale { state, now: place.0 };
    let size = scale.size_of_guest(bucket, limit_ms);
    let own = scale.plain_rank(bucket, scale.common(shares, bucket), (place, size));
    let same = state.queue.bucket(bucket).map_or(0, |places| match state.settings.objective {
        Objective::Fair => places.len() as u64,
        Objective::Fast => ahead_in(scale, shares, bucket, places, own),
    });
    Position { position: same + ahead_elsewhere(scale, shares, bucket, own) + 1, of: ready(state) + 1 }
}

fn ready(state: &State) -> u64 {
    state.queue.buckets().map(|(_, places)| places.len() as u64).sum()
}

fn ahead_elsewhere(scale: Scale, shares: &Shares, own: &Bucket, rank: Rank) -> u64 {
    let others = scale.state.queue.buckets().filter(|(bucket, _)| *bucket != own);
    others.map(|(bucket, places)| ahead_in(scale, shares, bucket, places, rank)).sum()
}

fn ahead_in(scale: Scale, shares: &Shares, bucket: &Bucket, places: &BTreeSet<Place>, rank: Rank) -> u64 {
    let common = scale.common(shares, bucket);
    let surely = |one: &(Place, u64)| scale.plain_rank(bucket, common, *one) > rank;
    let by_age = scale.state.settings.objective == Objective::Fair;
    if by_age && places.last().is_some_and(|place| surely(&(*place, 0))) {
        return places.len() as u64;
    }
    let ahead = |one: &(Place, u64)| surely(one) || scale.rank(bucket, common, *one) > rank;
    scale.places(bucket, common, places).take_while(ahead).count() as u64
}
