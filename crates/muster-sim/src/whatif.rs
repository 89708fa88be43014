//! What if: the history of a live cluster under other rules.
//!
//! The journal is followed event by event, once as it is and once under the change, as long as the planner would decide
//! the same in both: until then the answer is what really happened, to the millisecond. From the first decision that
//! would have been another one on, both go on simulated, on a [`crate::stage::Stage`]: people do what they did when they
//! did it, nodes come and go as they did, and each job works as long as it really did. So the two differ by the change
//! alone, and the one without it shows how far the simulation can be trusted.

mod change;
mod chronicle;
mod future;
mod tally;
mod track;
mod works;

use std::sync::Arc;

use muster_core::{State, Timestamp};
use muster_protocol::whatif::{WhatIf, WhatIfJob, WhatIfRefused, WhatIfTenant};
use muster_server::http::{Fault, stamp};
use muster_server::policies::Interpreter;
use muster_server::whatif::{Oracle, Question};
use muster_store::Tables;

use crate::decisions;
use change::Otherwise;
use chronicle::Chronicle;
use future::Future;
use tally::{Compared, Tally};
use track::Fork;

/// A job that starts or ends at most so much sooner or later is none that gains or loses.
const NOTICEABLE_MS: i64 = 1_000;

/// Answers from the journal of a server.
#[derive(Clone, Default)]
pub struct Historian {
    /// Who runs the policies that were in force, from where history goes another way; before, their answers are on
    /// record.
    pub interpreter: Option<Arc<dyn Interpreter>>,
}

impl Oracle for Historian {
    fn answer(&self, history: &dyn Tables, question: &Question) -> Result<WhatIf, Fault> {
        let chronicle = Chronicle::read(history, question.since)?;
        answer(&chronicle, question, self.interpreter.as_ref())
    }
}

/// Answer from what was read.
fn answer(
    chronicle: &Chronicle,
    question: &Question,
    interpreter: Option<&Arc<dyn Interpreter>>,
) -> Result<WhatIf, Fault> {
    let play = |fork: &Fork, otherwise: &Otherwise, state: &State| {
        let future = future(chronicle, fork, otherwise, state);
        future.asking(interpreter).play(question.until)
    };
    let change = &question.change;
    let otherwise = Otherwise::of(change, chronicle, interpreter)?;
    let (decisions, different) = decisions::count(&chronicle.start, &chronicle.entries);
    let really = what_happened(chronicle, question.until);
    let fork = track::first_difference(chronicle, &otherwise, question.until)?;
    let (replayed, changed, refused) = match &fork {
        Some(fork) => {
            let none = Otherwise::default();
            let without = play(fork, &none, &fork.real);
            let with = play(fork, &otherwise, &fork.changed);
            (without.tally, with.tally, with.refused)
        }
        None => (really.clone(), really.clone(), Vec::new()),
    };
    let compared =
        Compared { really: &really, replayed: &replayed, changed: &changed, until: question.until };
    let mut jobs = compared.jobs();
    let noticed = |jobs: &[WhatIfJob], sooner: bool| {
        let gains = |job: &&WhatIfJob| if sooner { job.gained_s > 0.0 } else { job.gained_s < 0.0 };
        jobs.iter().filter(gains).count() as u64
    };
    let tenants: Vec<WhatIfTenant> = compared.tenants(&jobs);
    let (sooner, later) = (noticed(&jobs, true), noticed(&jobs, false));
    jobs.sort_by(|a, b| b.gained_s.abs().total_cmp(&a.gained_s.abs()).then_with(|| a.job_id.cmp(&b.job_id)));
    jobs.truncate(question.jobs);
    Ok(WhatIf {
        since: stamp(chronicle.since.0),
        until: stamp(question.until.0),
        changes: change.words(),
        decisions,
        decisions_different: different,
        differs_from: fork.as_ref().map(|fork| stamp(fork.at.0)),
        really: compared.figures(&really, None),
        replayed: compared.figures(&replayed, None),
        changed: compared.figures(&changed, None),
        sooner,
        later,
        tenants,
        jobs,
        refused: refused
            .into_iter()
            .map(|(job, why)| WhatIfRefused { job_id: job.to_string(), why })
            .collect(),
        guessed: changed.started_unlike(&really),
    })
}

fn what_happened(chronicle: &Chronicle, until: Timestamp) -> Tally {
    let mut tally = Tally::new(&chronicle.start, chronicle.since);
    for entry in chronicle.entries.iter().take_while(|entry| entry.at <= until) {
        tally.note(&entry.event);
    }
    tally.close(until);
    tally
}

/// Up to the fork as it was, from there on simulated.
fn future<'a>(
    chronicle: &'a Chronicle,
    fork: &'a Fork,
    otherwise: &'a Otherwise,
    state: &State,
) -> Future<'a> {
    let mut tally = Tally::new(&chronicle.start, chronicle.since);
    otherwise.events.iter().for_each(|event| tally.note(event));
    chronicle.entries[..fork.index].iter().for_each(|entry| tally.note(&entry.event));
    Future::new(chronicle, fork, otherwise, state, tally)
}

#[cfg(test)]
mod tests;
