//! Step 4, decide: `Tick`, which expires time limits, claims, windows, cooling periods and old outcomes and wakes
//! sleeping jobs; and `NoteForecast`.

use std::collections::BTreeMap;

use crate::facts::event::Event;
use crate::gpu::device::GpuHealth;
use crate::ids::{GpuId, JobId};
use crate::objects::job::StopCause;
use crate::objects::node::Node;
use crate::objects::start_range::StartRange;
use crate::state::apply::time_limit_end;
use crate::state::decision::Decision;
use crate::state::{Claim, State};
use crate::time::Timestamp;

impl State {
    pub(super) fn decide_tick(&self, now: Timestamp) -> Decision {
        let mut events = Vec::new();
        let due = self.queue.due(now).filter(|job| self.failure_of(*job).is_none());
        events.extend(due.map(|job| Event::JobWoken { job, at: now }));
        self.stop_overdue(now, &mut events);
        self.stop_at_drain_deadlines(now, &mut events);
        self.end_old_claims(now, &mut events);
        self.close_old_windows(now, &mut events);
        self.end_cooling(now, &mut events);
        self.end_old_join_tokens(now, &mut events);
        self.forget(now, &mut events);
        Decision::done(events)
    }

    /// Only the first forecast of a wait is recorded: later ones are nearer to the start, and easier.
    pub(super) fn decide_forecast(&self, ranges: &[(JobId, StartRange)], now: Timestamp) -> Decision {
        let first = ranges
            .iter()
            .filter(|(job, _)| self.jobs.get(job).is_some_and(|job| job.is_queued() && job.first_forecast.is_none()));
        Decision::done(first.map(|(job, range)| Event::StartForecast { job: *job, range: *range, at: now }).collect())
    }

    /// Stop attempts whose time limit has passed, and signal those whose time limit passes soon.
    fn stop_overdue(&self, now: Timestamp, events: &mut Vec<Event>) {
        for (_, id) in self.deadlines.iter().take_while(|(deadline, _)| *deadline <= now) {
            let Some((job, attempt)) = self.jobs.get(id).and_then(|job| Some((job, job.attempt()?))) else { continue };
            if attempt.start_deadline().is_some() {
                continue; // No time limit runs until the whole gang does.
            }
            match job.spec.early_signal {
                Some(early) if time_limit_end(job).is_some_and(|end| end > now) => {
                    let (job, attempt, signal) = (job.id, attempt.number, early.signal);
                    events.push(Event::AttemptSignalled { job, attempt, signal, at: now });
                }
                _ => events.push(self.stop(job, attempt, StopCause::TimeLimit, now)),
            }
        }
    }

    /// End claims that have expired, so that no space stays empty forever, and claims that have become unusable for
    /// their preemptor.
    fn end_old_claims(&self, now: Timestamp, events: &mut Vec<Event>) {
        let is_usable =
            |job: &JobId, claim: &Claim| self.jobs.get(job).is_some_and(|job| self.is_claim_usable(job, claim, now));
        let why = |job: &JobId, claim: &Claim| match claim.until <= now {
            true => Some("the claim expired"),
            false if !is_usable(job, claim) => Some("some of the claimed space is no longer usable"),
            false => None,
        };
        let ended = self.claims.iter().filter_map(|(job, claim)| Some((*job, why(job, claim)?)));
        events.extend(ended.map(|(job, why)| Event::ClaimEnded { job, why: why.to_string(), at: now }));
    }

    fn end_cooling(&self, now: Timestamp, events: &mut Vec<Event>) {
        for node in self.nodes.values() {
            events.extend(cooled(node, now));
        }
    }

    /// Forget outcomes and keys in batches, every hundredth of their retention time; earlier if there are too many.
    fn forget(&self, now: Timestamp, events: &mut Vec<Event>) {
        let keep = self.settings.memory_ms;
        let before = now.plus(-keep);
        let due = before >= self.forgotten_before.plus(keep / 100);
        let trimmed_before = self.too_many_before();
        if trimmed_before.is_some() {
            let before = if due { before } else { self.forgotten_before };
            events.push(Event::Forgotten { before, trimmed_before });
        } else if due && !(self.ended.is_empty() && self.keys.is_empty()) {
            events.push(Event::Forgotten { before, trimmed_before });
        }
    }

    /// The time before which outcomes and keys leave memory, if there are too many of either.
    fn too_many_before(&self) -> Option<Timestamp> {
        let most = usize::try_from(self.settings.remembered_max).unwrap_or(usize::MAX);
        let keys: usize = self.keys.values().map(BTreeMap::len).sum();
        let ends = (self.ended.len() > most).then(|| newest_to_drop(self.ended.values().map(|end| end.at), most));
        let used = self.keys.values().flat_map(BTreeMap::values).map(|used| used.at);
        let keys = (keys > most).then(|| newest_to_drop(used, most));
        ends.into_iter().chain(keys).flatten().max().map(|at| at.plus(1))
    }
}

/// The newest time to drop so that at most nine tenths of `most` remain: trimming entries one by one would scan all of
/// them each time.
fn newest_to_drop(moments: impl Iterator<Item = Timestamp>, most: usize) -> Option<Timestamp> {
    let mut moments: Vec<Timestamp> = moments.collect();
    moments.sort_unstable();
    let kept = most - most / 10;
    moments.len().checked_sub(kept + 1).map(|last| moments[last])
}

fn cooled(node: &Node, now: Timestamp) -> impl Iterator<Item = Event> + '_ {
    node.gpu_health.iter().enumerate().filter_map(move |(index, health)| {
        let over = health.cooling_until.is_some_and(|until| until <= now);
        over.then(|| {
            let gpu = GpuId { node: node.id.clone(), index: index as u8 };
            let health = GpuHealth { since: now, cooling_until: None, ..health.clone() };
            Event::gpu_health_changed(gpu, health, Vec::new())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trimming_keeps_at_most_nine_tenths_and_splits_no_timestamp() {
        let moments = |of: &[i64]| of.iter().copied().map(Timestamp).collect::<Vec<_>>().into_iter();
        let all: Vec<i64> = (0..12).rev().collect();
        assert_eq!(newest_to_drop(moments(&all), 10), Some(Timestamp(2)), "nine of twelve remain");
        assert_eq!(newest_to_drop(moments(&[7; 12]), 10), Some(Timestamp(7)), "equal timestamps are dropped together");
        assert_eq!(newest_to_drop(moments(&[5, 3]), 0), Some(Timestamp(5)), "a limit of zero drops all");
    }
}
