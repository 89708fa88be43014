//! Phase order: who comes first.
//!
//! Effective priority is the priority asked for plus bounded aging, one visible integer. Higher comes first,
//! then earlier submitted, then the lower id. A job that has waited longer than `max_wait_ms` comes before all
//! but operator priority, oldest first, whatever it asked for: that bounds every wait.
//!
//! Inside a bucket everyone asked for the same, so submission decides and only the heads are compared: a round
//! costs O(buckets + placements × log buckets).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap, btree_set};

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::Job;
use crate::queue::{Bucket, Place, bucket_of, place_of, waiting_since};
use crate::settings::{PRIORITY_MAX, Settings};
use crate::state::State;
use crate::time::{MINUTE, Timestamp};

/// The priority a job is ordered by after it has waited for `waited_ms`. Preemption never looks at it.
pub fn effective_priority(settings: &Settings, priority: u32, waited_ms: i64) -> u32 {
    let aged_ms = waited_ms.saturating_sub(settings.aging_after_ms).max(0);
    let gained = i128::from(aged_ms) * i128::from(settings.aging_per_minute) / i128::from(MINUTE);
    let gained = gained.min(i128::from(settings.aging_max)) as u32;
    priority.saturating_add(gained)
}

/// Which class a job is ordered in, before any priority is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// Ordered by effective priority.
    Ordinary,
    /// Has waited longer than `max_wait_ms`.
    Overdue,
    /// Asked for the highest priority there is. Nothing else goes before those who waited too long.
    Operator,
}

/// A place in the order of all ready jobs; the greater comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    standing: Standing,
    /// 0 for the overdue: among them the oldest comes first, or those who asked for little would starve.
    effective: u32,
    place: Reverse<Place>,
}

impl Rank {
    /// The rank of a ready job.
    pub fn of(state: &State, now: Timestamp, bucket: &Bucket, place: Place) -> Rank {
        let plain = Rank::unless_overdue(state, now, bucket, place);
        match plain.standing {
            Standing::Ordinary if is_overdue(state, now, place) => {
                Rank { standing: Standing::Overdue, effective: 0, ..plain }
            }
            _ => plain,
        }
    }

    /// The rank without asking how long the job has been waiting; never above the true one, and falling from
    /// place to place inside a bucket.
    fn unless_overdue(state: &State, now: Timestamp, bucket: &Bucket, place: Place) -> Rank {
        let operator = bucket.priority >= PRIORITY_MAX;
        Rank {
            standing: if operator { Standing::Operator } else { Standing::Ordinary },
            effective: effective_priority(&state.settings, bucket.priority, now.since(place.0)),
            place: Reverse(place),
        }
    }
}

/// A job that was preempted counts its wait anew: it has had its turn. Its age in the queue counts on for
/// aging only.
fn is_overdue(state: &State, now: Timestamp, place: Place) -> bool {
    let limit = state.settings.max_wait_ms;
    let ready_since = |job: &Job| waiting_since(job).max(job.spec.start_after);
    now.since(place.0) > limit
        && state.jobs.get(&place.1).and_then(ready_since).is_some_and(|since| now.since(since) > limit)
}

/// Whose turn it is.
pub(super) struct Turn<'a> {
    /// The bucket it stands at the head of.
    pub bucket: &'a Bucket,
    /// The job itself.
    pub job: JobId,
    /// Whether it has waited longer than `max_wait_ms`, whatever its standing.
    pub overdue: bool,
    /// Its priority with aging.
    effective: u32,
    rank: Rank,
    /// Those behind it.
    rest: btree_set::Iter<'a, Place>,
}

impl Turn<'_> {
    /// Whether it may displace a job of this priority that was ordered by `effective` when it was placed.
    pub fn outranks(&self, priority: u32, effective: u32) -> bool {
        self.bucket.priority > priority && self.effective > effective
    }

    /// Its priority as asked for, and with aging.
    pub fn strength(&self) -> (u32, u32) {
        (self.bucket.priority, self.effective)
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
    state: &'a State,
    now: Timestamp,
    heads: BinaryHeap<Turn<'a>>,
}

impl<'a> Order<'a> {
    /// The order of all ready jobs.
    pub fn new(state: &'a State, now: Timestamp) -> Order<'a> {
        let mut order = Order { state, now, heads: BinaryHeap::new() };
        for (bucket, places) in state.queue.buckets() {
            order.push(bucket, places.iter());
        }
        order
    }

    /// Let a job take part that is not in the state.
    pub fn invite(&mut self, bucket: &'a Bucket, place: Place) {
        let rank = Rank::unless_overdue(self.state, self.now, bucket, place);
        self.heads.push(Turn {
            bucket,
            job: place.1,
            overdue: false,
            effective: rank.effective,
            rank,
            rest: btree_set::Iter::default(),
        });
    }

    /// The best of all heads. Its bucket is done unless it is brought back.
    pub fn next_turn(&mut self) -> Option<Turn<'a>> {
        self.heads.pop()
    }

    /// Let the next job of the same bucket take part.
    pub fn next_of_bucket(&mut self, turn: Turn<'a>) {
        self.push(turn.bucket, turn.rest);
    }

    fn push(&mut self, bucket: &'a Bucket, mut rest: btree_set::Iter<'a, Place>) {
        if let Some(place) = rest.next() {
            self.heads.push(Turn {
                bucket,
                job: place.1,
                overdue: is_overdue(self.state, self.now, *place),
                effective: Rank::unless_overdue(self.state, self.now, bucket, *place).effective,
                rank: Rank::of(self.state, self.now, bucket, *place),
                rest,
            });
        }
    }
}

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
    let bucket = bucket_of(job, state.is_limited(job.id));
    let places = state.queue.bucket(&bucket)?;
    let place = place_of(job);
    if !places.contains(&place) {
        return None;
    }
    // Nobody overtakes an earlier job of its own bucket, so the lowest rank up to here is the one that counts.
    let own = places.range(..=place).map(|place| Rank::of(state, now, &bucket, *place)).min()?;
    let ahead = places.range(..place).count() as u64 + ahead_elsewhere(state, now, &bucket, own);
    Some(Position { position: ahead + 1, of: ready(state) })
}

/// Where a job would stand that is not in the state.
pub(super) fn position_of_guest(state: &State, now: Timestamp, bucket: &Bucket, place: Place) -> Position {
    let own = Rank::unless_overdue(state, now, bucket, place);
    let same = state.queue.bucket(bucket).map_or(0, |places| places.len() as u64);
    Position { position: same + ahead_elsewhere(state, now, bucket, own) + 1, of: ready(state) + 1 }
}

fn ready(state: &State) -> u64 {
    state.queue.buckets().map(|(_, places)| places.len() as u64).sum()
}

fn ahead_elsewhere(state: &State, now: Timestamp, own: &Bucket, rank: Rank) -> u64 {
    let others = state.queue.buckets().filter(|(bucket, _)| *bucket != own);
    others.map(|(bucket, places)| ahead_in(state, now, bucket, places, rank)).sum()
}

fn ahead_in(state: &State, now: Timestamp, bucket: &Bucket, places: &BTreeSet<Place>, rank: Rank) -> u64 {
    let surely = |place: &Place| Rank::unless_overdue(state, now, bucket, *place) > rank;
    if places.last().is_some_and(surely) {
        return places.len() as u64;
    }
    let ahead = |place: &&Place| surely(place) || Rank::of(state, now, bucket, **place) > rank;
    places.iter().take_while(ahead).count() as u64
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
            (0, 100),
            (5 * MINUTE, 100),
            (6 * MINUTE, 110),
            (6 * MINUTE + MINUTE / 2, 115),
            (i64::MAX, 150),
            (-7, 100),
        ];
        for (waited_ms, expected) in cases {
            assert_eq!(effective_priority(&settings, 100, waited_ms), expected, "{waited_ms}");
        }
    }
}
