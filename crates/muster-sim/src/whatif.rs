//! What if: the history of a live cluster under other rules.
//!
//! The journal is followed event by event, once as it is and once under the change, as long as the planner would
//! decide the same in both: until then the answer is what really happened, to the millisecond. From the first
//! decision that would have been another one on, both go on simulated, on a [`crate::stage::Stage`]: people do what
//! they did when they did it, nodes come and go as they did, and each job works as long as it really did. So the
//! two differ by the change alone, and the one without it shows how far the simulation can be trusted.

mod applied_change;
mod continuation;
mod divergence;
mod journal_history;
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

/// A job that starts or ends at most so much sooner or later is none that gains or loses.
const NOTICEABLE_SHIFT_MS: i64 = 1_000;

/// Answers from the journal of a server.
#[derive(Clone, Default)]
pub struct WhatIfSimulator {
    /// Who runs the policies that were in force, from where history goes another way; before, their answers are on
    /// record.
    pub interpreter: Option<Arc<dyn Interpreter>>,
}

impl WhatIfReplay for WhatIfSimulator {
    fn answer(&self, history: &dyn Tables, question: &WhatIfQuery) -> Result<WhatIf, WhatIfError> {
        let chronicle = JournalHistory::read(history, question.since)?;
        answer(&chronicle, question, self.interpreter.as_ref())
    }
}

/// Answer from what was read.
fn answer(
    chronicle: &JournalHistory,
    question: &WhatIfQuery,
    interpreter: Option<&Arc<dyn Interpreter>>,
) -> Result<WhatIf, WhatIfError> {
    let play = |fork: &HistoryFork, otherwise: &AppliedChange, state: &State| {
        let future = continuation_of(chronicle, fork, otherwise, state);
        future.with_interpreter(interpreter).run_until(question.until)
    };
    let change = &question.change;
    let otherwise = AppliedChange::new(change, chronicle, interpreter)?;
    let (decisions, different) = replan_check::count_differences(&chronicle.start_state, &chronicle.entries);
    let really = tally_of_journal(chronicle, question.until);
    let fork = divergence::first_difference(chronicle, &otherwise, question.until)?;
    let (replayed, changed, refused) = match &fork {
        Some(fork) => {
            let none = AppliedChange::default();
            let without = play(fork, &none, &fork.real);
            let with = play(fork, &otherwise, &fork.changed);
            (without.tally, with.tally, with.refused)
        }
        None => (really.clone(), really.clone(), Vec::new()),
    };
    let compared =
        Comparison { really: &really, replayed: &replayed, changed: &changed, until: question.until };
    let mut jobs = compared.jobs();
    let noticed = |jobs: &[WhatIfJob], sooner: bool| {
        let gains = |job: &&WhatIfJob| if sooner { job.gained_s > 0.0 } else { job.gained_s < 0.0 };
        jobs.iter().filter(gains).count() as u64
    };
    let tenants: Vec<WhatIfTenant> = compared.tenants(&jobs);
    let (sooner, later) = (noticed(&jobs, true), noticed(&jobs, false));
    jobs.sort_by(|a, b| b.gained_s.abs().total_cmp(&a.gained_s.abs()).then_with(|| a.job_id.cmp(&b.job_id)));
    jobs.truncate(question.jobs_listed_max);
    Ok(WhatIf {
        since: rfc3339(chronicle.since.0),
        until: rfc3339(question.until.0),
        changes: change.description_lines(),
        decisions,
        decisions_different: different,
        differs_from: fork.as_ref().map(|fork| rfc3339(fork.at.0)),
        really: compared.figures(&really, None),
        replayed: compared.figures(&replayed, None),
        changed: compared.figures(&changed, None),
        sooner,
        later,
        tenants,
        jobs,
        refused: refused
            .into_iter()
            .map(|(job, why)| WhatIfRefusal { job_id: job.to_string(), why })
            .collect(),
        guessed: changed.count_started_only_here(&really),
    })
}

fn tally_of_journal(chronicle: &JournalHistory, until: Timestamp) -> HistoryTally {
    let mut tally = HistoryTally::new(&chronicle.start_state, chronicle.since);
    for entry in chronicle.entries.iter().take_while(|entry| entry.at <= until) {
        tally.add_event(&entry.event);
    }
    tally.close(until);
    tally
}

/// Up to the fork as it was, from there on simulated.
fn continuation_of<'a>(
    chronicle: &'a JournalHistory,
    fork: &'a HistoryFork,
    otherwise: &'a AppliedChange,
    state: &State,
) -> Continuation<'a> {
    let mut tally = HistoryTally::new(&chronicle.start_state, chronicle.since);
    otherwise.events.iter().for_each(|event| tally.add_event(event));
    chronicle.entries[..fork.index].iter().for_each(|entry| tally.add_event(&entry.event));
    Continuation::new(chronicle, fork, otherwise, state, tally)
}

#[cfg(test)]
mod tests;
