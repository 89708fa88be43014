//! Adapter (WhatIfReplay): the history of a live cluster under other quotas, settings, policies or nodes.
//!
//! The journal is followed event by event, once unchanged and once under the change, as long as the planner decides
//! the same in both: until then the answer is what really happened, to the millisecond. From the first different
//! decision (the fork) on, both are simulated on a [`crate::sim_loop::SimLoop`]: users repeat their commands at the
//! recorded times, nodes join and leave as recorded, and each job works as long as it really did. The two
//! simulations differ by the change alone, and the one without the change shows how far the simulation can be
//! trusted.

mod applied_change;
mod continuation;
mod divergence;
mod journal_history;
mod recorded_commands;
mod tally;
mod work_history;

use std::sync::Arc;

use muster_core::{State, Timestamp};
use muster_protocol::whatif::{WhatIf, WhatIfJob, WhatIfRefusal, WhatIfTenant};
use muster_server::http::rfc3339;
use muster_server::policies::Interpreter;
use muster_server::whatif::{WhatIfError, WhatIfQuery, WhatIfReplay};
use muster_store::Tables;

use crate::replan_check;
use applied_change::AppliedChange;
use continuation::Continuation;
use divergence::HistoryFork;
use journal_history::JournalHistory;
use tally::{Comparison, HistoryTally};

/// A job gains or loses only if its start or end shifts by more than this.
const NOTICEABLE_SHIFT_MS: i64 = 1_000;

/// Answers from the journal of a server.
#[derive(Clone, Default)]
pub struct WhatIfSimulator {
    /// Evaluates the active policies after the fork; before it, their answers are in the journal. `None` if
    /// policies cannot be evaluated.
    pub interpreter: Option<Arc<dyn Interpreter>>,
}

impl WhatIfReplay for WhatIfSimulator {
    fn answer(&self, history: &dyn Tables, query: &WhatIfQuery) -> Result<WhatIf, WhatIfError> {
        let journal = JournalHistory::read(history, query.since)?;
        answer(&journal, query, self.interpreter.as_ref())
    }
}

/// Answers a query from a journal.
fn answer(
    journal: &JournalHistory,
    query: &WhatIfQuery,
    interpreter: Option<&Arc<dyn Interpreter>>,
) -> Result<WhatIf, WhatIfError> {
    let simulate = |fork: &HistoryFork, applied: &AppliedChange, state: &State| {
        let continuation = continuation_of(journal, fork, applied, state);
        continuation.with_interpreter(interpreter).run_until(query.until)
    };
    let change = &query.change;
    let applied = AppliedChange::new(change, journal, interpreter)?;
    let (decisions, differences) = replan_check::count_differences(&journal.start_state, &journal.entries);
    let really = tally_of_journal(journal, query.until);
    let fork = divergence::first_difference(journal, &applied, query.until)?;
    let (replayed, changed, refused) = match &fork {
        Some(fork) => {
            let none = AppliedChange::default();
            let without = simulate(fork, &none, &fork.real);
            let with = simulate(fork, &applied, &fork.changed);
            (without.tally, with.tally, with.refused)
        }
        None => (really.clone(), really.clone(), Vec::new()),
    };
    let comparison = Comparison { really: &really, replayed: &replayed, changed: &changed, until: query.until };
    let mut jobs = comparison.jobs();
    let count_changed = |jobs: &[WhatIfJob], sooner: bool| {
        let has_changed = |job: &&WhatIfJob| if sooner { job.gained_s > 0.0 } else { job.gained_s < 0.0 };
        jobs.iter().filter(has_changed).count() as u64
    };
    let tenants: Vec<WhatIfTenant> = comparison.tenants(&jobs);
    let (sooner, later) = (count_changed(&jobs, true), count_changed(&jobs, false));
    jobs.sort_by(|a, b| b.gained_s.abs().total_cmp(&a.gained_s.abs()).then_with(|| a.job_id.cmp(&b.job_id)));
    jobs.truncate(query.jobs_listed_max);
    Ok(WhatIf {
        since: rfc3339(journal.since.0),
        until: rfc3339(query.until.0),
        changes: change.description_lines(),
        decisions,
        decisions_different: differences,
        differs_from: fork.as_ref().map(|fork| rfc3339(fork.at.0)),
        really: comparison.figures(&really, None),
        replayed: comparison.figures(&replayed, None),
        changed: comparison.figures(&changed, None),
        sooner,
        later,
        tenants,
        jobs,
        refused: refused.into_iter().map(|(job, why)| WhatIfRefusal { job_id: job.to_string(), why }).collect(),
        guessed: changed.count_started_only_here(&really),
    })
}

fn tally_of_journal(journal: &JournalHistory, until: Timestamp) -> HistoryTally {
    let mut tally = HistoryTally::new(&journal.start_state, journal.since);
    for entry in journal.entries.iter().take_while(|entry| entry.at <= until) {
        tally.add_event(&entry.event);
    }
    tally.close(until);
    tally
}

/// The continuation of a history: as recorded up to the fork, simulated from there on.
fn continuation_of<'a>(
    journal: &'a JournalHistory,
    fork: &'a HistoryFork,
    applied: &'a AppliedChange,
    state: &State,
) -> Continuation<'a> {
    let mut tally = HistoryTally::new(&journal.start_state, journal.since);
    applied.events.iter().for_each(|event| tally.add_event(event));
    journal.entries[..fork.index].iter().for_each(|entry| tally.add_event(&entry.event));
    Continuation::new(journal, fork, applied, state, tally)
}

#[cfg(test)]
mod tests;
