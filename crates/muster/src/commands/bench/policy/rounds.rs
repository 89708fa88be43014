//! What asking policies adds to a round of the planner.
//!
//! A round is what the planner's thread does: draw up a plan, then ask about those of whom something is not known. So with
//! policies in force a new kind of job starts in the round after the one in which it was asked about. Times are those of the
//! wall clock: policies answer in a worker while the planner waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::command::{Actor, Command};
use muster_core::plan::{Plan, plan};
use muster_core::policy::Scope;
use muster_core::{State, Timestamp};
use muster_server::policies::{Asker, Interpreter};

use super::Measure;
use crate::commands::bench::cpu::{median, median_wall};
use crate::commands::bench::synthetic::{Ask, TENANTS, cluster, mixed, submit, tell};
use crate::error::CliError;
use crate::interpreter::Starlark;

const NOW: Timestamp = Timestamp(0);
/// Amounts of memory that jobs ask for: they set shapes apart that are otherwise alike.
const AMOUNTS: usize = 17;
/// Rounds that follow each other so soon ask about nobody a second time.
const SOON: Duration = Duration::from_secs(1);
/// After so long everyone is asked about anew.
const LATER: Duration = Duration::from_secs(60);

/// Rounds over an empty cluster with four jobs for each node, without policies and with them.
pub fn measured(nodes: usize, rounds: usize) -> Result<Vec<Measure>, CliError> {
    let mut state = waiting(nodes);
    let (bare, planned) = median_wall(rounds, || plan(&state, NOW).plan.starts.len());
    let interpreter: Arc<dyn Interpreter> = Arc::new(Starlark::unhurried());
    put_into_force(&mut state, &*interpreter)?;
    let buckets = state.queue.buckets().count();
    // A server starts the worker of what is in force once; that is no part of a round.
    Asker::new(interpreter.clone()).news(&state, &Plan::default(), (NOW, Duration::ZERO));
    let (first, _) =
        median_wall(rounds, || round(&mut Asker::new(interpreter.clone()), &state, Duration::ZERO));
    let mut asker = Asker::new(interpreter.clone());
    let noting = note_everything(&mut asker, &mut state);
    let (steady, starts) = median_wall(rounds, || round(&mut asker, &state, SOON));
    // Otherwise rounds of different work would be compared. Places may be others, and so how full nodes get.
    if starts.abs_diff(planned) > planned / 20 {
        return Err(CliError::failed(format!(
            "{starts} jobs start with these policies and {planned} without"
        )));
    }
    let (anew, _) = median_wall(rounds, || round(&mut Asker::new(interpreter.clone()), &state, LATER));
    let line = |what: &str, ms| {
        Measure::of(format!("round, {nodes} nodes, {buckets} kinds of jobs: {what}"), ms, "ms")
    };
    Ok(vec![
        line("no policies", bare),
        line("all asked", steady).times(steady / bare, Some("1.5×")),
        line("none asked", first).times(first / bare, Some("1.5×")),
        line("answers put on record", noting),
        line("until new kinds start", first + noting + steady).times((first + noting + steady) / bare, None),
        line("asked anew, every 30 s", anew).times(anew / bare, None),
    ])
}

/// One round, as the planner's thread has it: how many jobs start.
fn round(asker: &mut Asker, state: &State, elapsed: Duration) -> usize {
    let planned = plan(state, NOW);
    asker.news(state, &planned.plan, (NOW, elapsed));
    planned.plan.starts.len()
}

/// Jobs of many shapes that wait.
fn waiting(nodes: usize) -> State {
    let mut state = cluster(nodes, TENANTS, false);
    for index in 0..nodes * 4 {
        submit(&mut state, Ask { memory_mib: 1_024 + (index % AMOUNTS) as u64, ..mixed(index) }, 1);
    }
    state
}

fn put_into_force(state: &mut State, interpreter: &dyn Interpreter) -> Result<(), CliError> {
    let files = [("queue.gsky", include_str!("queue.gsky")), ("score.gsky", include_str!("score.gsky"))];
    let files: BTreeMap<String, String> =
        files.into_iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    let bundle =
        interpreter.compile(&Scope::Cluster, files).map_err(|errors| CliError::failed(errors.join("; ")))?;
    let (scope, why) = (Scope::Cluster, String::new());
    tell(state, &Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why });
    Ok(())
}

/// Ask until nothing is left to ask, and say how many milliseconds it takes to put the answers on record.
fn note_everything(asker: &mut Asker, state: &mut State) -> f64 {
    let mut ms = 0.0;
    while let Some(answers) = asker.news(state, &Plan::default(), (NOW, Duration::ZERO)) {
        let (deciding, _) = median(1, || state.decide(&Actor::system(), &answers, NOW).is_ok());
        tell(state, &answers);
        ms += deciding;
    }
    ms
}
