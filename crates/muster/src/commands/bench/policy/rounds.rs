//! What asking policies adds to a round of the planner.
//!
//! A round is what the planner's thread does: draw up a plan, then ask about those of whom something is not known. So with
//! policies in force a new kind of job starts in the round after the one in which it was asked about. Times are those of the
//! wall clock: policies answer in a worker while the planner waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::facts::command::{Actor, Command};
use muster_core::facts::plan::Plan;
use muster_core::objects::policy::PolicyScope;
use muster_core::planner::plan;
use muster_core::{State, Timestamp};
use muster_server::policies::{Interpreter, PolicyQuerier};

use super::PolicyMeasure;
use crate::commands::bench::timing::{median_cpu_ms, median_wall_ms};
use crate::error::CliError;
use crate::interpreter::StarlarkInterpreter;
use muster_sim::synthetic::{
    SyntheticJob, TENANTS, apply_command, mixed_job, submit_jobs, synthetic_cluster,
};

const NOW: Timestamp = Timestamp(0);
/// Amounts of memory that jobs ask for: they set shapes apart that are otherwise alike.
const MEMORY_AMOUNTS: usize = 17;
/// Rounds that follow each other so soon ask about nobody a second time.
const BEFORE_REFRESH: Duration = Duration::from_secs(1);
/// After so long everyone is asked about anew.
const AFTER_REFRESH: Duration = Duration::from_secs(60);

/// Rounds over an empty cluster with four jobs for each node, without policies and with them.
pub fn measure_rounds(nodes: usize, rounds: usize) -> Result<Vec<PolicyMeasure>, CliError> {
    let mut state = cluster_with_queue(nodes);
    let (bare, planned) = median_wall_ms(rounds, || plan(&state, NOW).plan.starts.len());
    let interpreter: Arc<dyn Interpreter> = Arc::new(StarlarkInterpreter::for_simulation());
    apply_policies(&mut state, &*interpreter)?;
    let buckets = state.queue.buckets().count();
    // A server starts the worker of what is in force once; that is no part of a round.
    PolicyQuerier::new(interpreter.clone()).new_answers(&state, &Plan::default(), (NOW, Duration::ZERO));
    let (first, _) = median_wall_ms(rounds, || {
        round(&mut PolicyQuerier::new(interpreter.clone()), &state, Duration::ZERO)
    });
    let mut asker = PolicyQuerier::new(interpreter.clone());
    let noting = record_all_answers(&mut asker, &mut state);
    let (steady, starts) = median_wall_ms(rounds, || round(&mut asker, &state, BEFORE_REFRESH));
    // Otherwise rounds of different work would be compared. Places may be others, and so how full nodes get.
    if starts.abs_diff(planned) > planned / 20 {
        return Err(CliError::failed(format!(
            "{starts} jobs start with these policies and {planned} without"
        )));
    }
    let (anew, _) =
        median_wall_ms(rounds, || round(&mut PolicyQuerier::new(interpreter.clone()), &state, AFTER_REFRESH));
    let line = |what: &str, ms| {
        PolicyMeasure::of(format!("round, {nodes} nodes, {buckets} kinds of jobs: {what}"), ms, "ms")
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
fn round(asker: &mut PolicyQuerier, state: &State, elapsed: Duration) -> usize {
    let planned = plan(state, NOW);
    asker.new_answers(state, &planned.plan, (NOW, elapsed));
    planned.plan.starts.len()
}

/// Jobs of many shapes that wait.
fn cluster_with_queue(nodes: usize) -> State {
    let mut state = synthetic_cluster(nodes, TENANTS, false);
    for index in 0..nodes * 4 {
        submit_jobs(
            &mut state,
            SyntheticJob { memory_mib: 1_024 + (index % MEMORY_AMOUNTS) as u64, ..mixed_job(index) },
            1,
        );
    }
    state
}

fn apply_policies(state: &mut State, interpreter: &dyn Interpreter) -> Result<(), CliError> {
    let files = [("queue.gsky", include_str!("queue.gsky")), ("score.gsky", include_str!("score.gsky"))];
    let files: BTreeMap<String, String> =
        files.into_iter().map(|(name, source)| (name.to_string(), source.to_string())).collect();
    let bundle = interpreter
        .compile(&PolicyScope::Cluster, files)
        .map_err(|errors| CliError::failed(errors.join("; ")))?;
    let (scope, why) = (PolicyScope::Cluster, String::new());
    apply_command(state, &Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why });
    Ok(())
}

/// Ask until nothing is left to ask, and say how many milliseconds it takes to put the answers on record.
fn record_all_answers(asker: &mut PolicyQuerier, state: &mut State) -> f64 {
    let mut ms = 0.0;
    while let Some(answers) = asker.new_answers(state, &Plan::default(), (NOW, Duration::ZERO)) {
        let (deciding, _) = median_cpu_ms(1, || state.decide(&Actor::system(), &answers, NOW).is_ok());
        apply_command(state, &answers);
        ms += deciding;
    }
    ms
}
