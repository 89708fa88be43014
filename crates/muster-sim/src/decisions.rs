//! Were the decisions of a journal the planner's own? Each plan that was adopted is drawn up again from the state and the
//! moment it says it was drawn from, and what was placed must be what it proposes now.

use std::collections::BTreeMap;

use muster_core::plan::{Plan, plan};
use muster_core::{Event, State, Timestamp};
use muster_store::Entry;

/// A decision that is another one today.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The entry at which a plan was adopted.
    pub seq: u64,
    /// What is different.
    pub what: String,
}

/// An adopted plan, as the journal tells it.
struct Adopted<'a> {
    seq: u64,
    now: Timestamp,
    /// How much was taken and left of it.
    proposed: usize,
    placed: Vec<&'a Event>,
}

/// Draw up every plan of a journal again; how many there were. Memory holds one state, so a plan drawn from before the
/// first entry cannot be looked at.
pub fn check(entries: &[Entry]) -> Result<usize, Difference> {
    let mut looked_at = 0;
    for outcome in Again::new(&State::empty(), entries) {
        outcome?;
        looked_at += 1;
    }
    Ok(looked_at)
}

/// How many plans of a part of a journal, from a state on, can be drawn up again, and how many are others today.
pub fn count(start: &State, entries: &[Entry]) -> (u64, u64) {
    let outcomes = Again::new(start, entries);
    outcomes.fold((0, 0), |(all, others), outcome| (all + 1, others + u64::from(outcome.is_err())))
}

/// Plans, drawn up again one after the other.
struct Again<'a> {
    state: State,
    entries: std::slice::Iter<'a, Entry>,
    /// By the number of the last entry they were drawn from.
    adopted: BTreeMap<u64, Vec<Adopted<'a>>>,
    due: Vec<Adopted<'a>>,
}

impl<'a> Again<'a> {
    fn new(start: &State, entries: &'a [Entry]) -> Again<'a> {
        let mut adopted: BTreeMap<u64, Vec<Adopted>> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if let Event::PlanAdopted { snapshot, now, placed, claimed, left } = &entry.event {
                let proposed = (placed + claimed + left) as usize;
                let placed = starts_before(&entries[..index], *placed as usize);
                adopted.entry(*snapshot).or_default().push(Adopted {
                    seq: entry.seq,
                    now: *now,
                    proposed,
                    placed,
                });
            }
        }
        let due = adopted.remove(&start.seq).unwrap_or_default();
        Again { state: start.clone(), entries: entries.iter(), adopted, due }
    }
}

impl Iterator for Again<'_> {
    type Item = Result<(), Difference>;

    fn next(&mut self) -> Option<Result<(), Difference>> {
        while self.due.is_empty() {
            self.state.apply(&self.entries.next()?.event);
            self.due = self.adopted.remove(&self.state.seq).unwrap_or_default();
        }
        let one = self.due.pop()?;
        Some(compare(&one, &plan(&self.state, one.now).plan))
    }
}

/// The last so many placements before an adoption: they stand in the same batch.
fn starts_before(entries: &[Entry], count: usize) -> Vec<&Event> {
    let placed = entries.iter().rev().map(|entry| &entry.event);
    placed.filter(|event| matches!(event, Event::JobPlaced { .. })).take(count).collect()
}

fn compare(adopted: &Adopted, today: &Plan) -> Result<(), Difference> {
    let different = |what: String| Err(Difference { seq: adopted.seq, what });
    let proposed = today.starts.len() + today.claims.len();
    if proposed != adopted.proposed {
        return different(format!("{} gangs were proposed, today it is {proposed}", adopted.proposed));
    }
    for event in &adopted.placed {
        let Event::JobPlaced { job, tasks, effective, expected_ms, lent, score, .. } = event else {
            continue;
        };
        let Some(start) = today.starts.iter().find(|start| start.job == *job) else {
            return different(format!("{job} was started, today it is not"));
        };
        let then = (tasks, effective, expected_ms, lent, score);
        let now = (&start.tasks, &start.effective, &start.expected_ms, &start.lent, &start.score);
        if then != now {
            return different(format!("{job} was started as {then:?}, today it is {now:?}"));
        }
    }
    Ok(())
}
