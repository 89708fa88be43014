//! Checks that the decisions of a journal are the planner's own: recomputes every adopted plan from its recorded
//! state and time, and compares the recorded placements with the proposed ones.

use std::collections::BTreeMap;

use muster_core::facts::plan::Plan;
use muster_core::planner::plan;
use muster_core::{Event, State, Timestamp};
use muster_store::Entry;

/// A recorded decision that differs from the recomputed plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanDifference {
    /// The journal entry of the adoption.
    pub seq: u64,
    pub difference: String,
}

/// An adopted plan, as recorded in the journal.
struct AdoptedPlan<'a> {
    seq: u64,
    now: Timestamp,
    /// The number of accepted and rejected gangs.
    proposed: usize,
    placed: Vec<&'a Event>,
}

/// Recomputes every plan of a journal and returns their number. Only one state is kept in memory, so a plan from
/// before the first entry is not checked.
pub fn check_journal(entries: &[Entry]) -> Result<usize, PlanDifference> {
    let mut plan_count = 0;
    for outcome in Replanner::new(&State::empty(), entries) {
        outcome?;
        plan_count += 1;
    }
    Ok(plan_count)
}

/// The number of plans of a part of a journal that can be recomputed, and how many of them differ.
pub fn count_differences(start: &State, entries: &[Entry]) -> (u64, u64) {
    let outcomes = Replanner::new(start, entries);
    outcomes.fold((0, 0), |(plans, different), outcome| (plans + 1, different + u64::from(outcome.is_err())))
}

/// Recomputes the plans one after the other.
struct Replanner<'a> {
    state: State,
    entries: std::slice::Iter<'a, Entry>,
    /// By the last entry of the state that each plan was computed from.
    plans_by_snapshot: BTreeMap<u64, Vec<AdoptedPlan<'a>>>,
    due_plans: Vec<AdoptedPlan<'a>>,
}

impl<'a> Replanner<'a> {
    fn new(start: &State, entries: &'a [Entry]) -> Replanner<'a> {
        let mut adopted: BTreeMap<u64, Vec<AdoptedPlan>> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            if let Event::PlanAdopted { snapshot, now, placed, claimed, rejected } = &entry.event {
                let proposed = (placed + claimed + rejected) as usize;
                let placed = placements_before(&entries[..index], *placed as usize);
                adopted.entry(*snapshot).or_default().push(AdoptedPlan { seq: entry.seq, now: *now, proposed, placed });
            }
        }
        let due = adopted.remove(&start.seq).unwrap_or_default();
        Replanner { state: start.clone(), entries: entries.iter(), plans_by_snapshot: adopted, due_plans: due }
    }
}

impl Iterator for Replanner<'_> {
    type Item = Result<(), PlanDifference>;

    fn next(&mut self) -> Option<Result<(), PlanDifference>> {
        while self.due_plans.is_empty() {
            self.state.apply(&self.entries.next()?.event);
            self.due_plans = self.plans_by_snapshot.remove(&self.state.seq).unwrap_or_default();
        }
        let adopted = self.due_plans.pop()?;
        Some(compare_plan(&adopted, &plan(&self.state, adopted.now).plan))
    }
}

/// The last `count` placements before an adoption, which are in the same batch.
fn placements_before(entries: &[Entry], count: usize) -> Vec<&Event> {
    let placed = entries.iter().rev().map(|entry| &entry.event);
    placed.filter(|event| matches!(event, Event::JobPlaced { .. })).take(count).collect()
}

fn compare_plan(adopted: &AdoptedPlan, replanned: &Plan) -> Result<(), PlanDifference> {
    let different = |what: String| Err(PlanDifference { seq: adopted.seq, difference: what });
    let proposed = replanned.starts.len() + replanned.evictions.len();
    if proposed != adopted.proposed {
        return different(format!(
            "the adopted plan proposed {} gangs; replanning proposes {proposed}",
            adopted.proposed
        ));
    }
    for event in &adopted.placed {
        let Event::JobPlaced { job, tasks, effective_priority, expected_ms, revocable, score, .. } = event else {
            continue;
        };
        let Some(start) = replanned.starts.iter().find(|start| start.job == *job) else {
            return different(format!("{job} was started; replanning does not start it"));
        };
        let recorded = (tasks, effective_priority, expected_ms, revocable, score);
        let proposed_now =
            (&start.tasks, &start.effective_priority, &start.expected_ms, &start.revocable, &start.score);
        if recorded != proposed_now {
            return different(format!("{job} was started as {recorded:?}; replanning gives {proposed_now:?}"));
        }
    }
    Ok(())
}
