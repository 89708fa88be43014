//! Time that policy queries add to a planner round.
//!
//! A round is one planner pass plus the policy queries it triggers. With policies, a job of a new kind starts one round
//! later than without. Wall-clock time is measured, because the worker answers while the planner waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use muster_core::facts::command::{Actor, Command};
use muster_core::facts::plan::Plan;
use muster_core::objects::policy::PolicyScope;
use muster_core::planner::plan;
use muster_core::{State, Timestamp};
use muster_server::policies::{Interpreter, PolicyQuerier};
use muster_sim::synthetic::{SyntheticJob, TENANTS, apply_command, mixed_job, submit_jobs, synthetic_cluster};

use super::PolicyMeasure;
use crate::commands::bench::timing::{median_cpu_ms, median_wall_ms};
use crate::error::CliError;
use crate::interpreter::StarlarkInterpreter;

const NOW: Timestamp = Timestamp(0);
/// Distinct memory requests, which give jobs different shapes.
const MEMORY_AMOUNTS: usize = 17;
/// A round this soon after the last query reuses all answers.
const BEFORE_REFRESH: Duration = Duration::from_secs(1);
/// After this time all answers are refreshed.
const AFTER_REFRESH: Duration = Duration::from_secs(60);

/// Rounds on an empty cluster with four waiting jobs per node, without policies and with them.
pub fn measure_rounds(nodes: usize, rounds: usize) -> Result<Vec<PolicyMeasure>, CliError> {
    let mut state = cluster_with_queue(nodes);
    let (bare, planned) = median_wall_ms(rounds, || plan(&state, NOW).plan.starts.len());
    let interpreter: Arc<dyn Interpreter> = Arc::new(StarlarkInterpreter::for_simulation());
    apply_policies(&mut state, &*interpreter)?;
    let buckets = state.queue.buckets().count();
    // Start the worker first: a server does it once, outside of rounds.
    PolicyQuerier::new(interpreter.clone()).new_answers(&state, &Plan::default(), (NOW, Duration::ZERO));
    let (first, _) =
        median_wall_ms(rounds, || round(&mut PolicyQuerier::new(interpreter.clone()), &state, Duration::ZERO));
    let mut querier = PolicyQuerier::new(interpreter.clone());
    let recording = record_all_answers(&mut querier, &mut state);
    let (steady, starts) = median_wall_ms(rounds, || round(&mut querier, &state, BEFORE_REFRESH));
    // The rounds must do comparable work. Policies change placements, so the numbers of starts differ a little.
    if starts.abs_diff(planned) > planned / 20 {
        return Err(CliError::failed(format!("{starts} jobs start with the policies, but {planned} without")));
    }
    let (refreshed, _) =
        median_wall_ms(rounds, || round(&mut PolicyQuerier::new(interpreter.clone()), &state, AFTER_REFRESH));
    let until_start = first + recording + steady;
    let line =
        |what: &str, ms| PolicyMeasure::of(format!("round, {nodes} nodes, {buckets} job kinds: {what}"), ms, "ms");
    Ok(vec![
        line("no policies", bare),
        line("all answers cached", steady).times(steady / bare, Some("1.5×")),
        line("no answers cached", first).times(first / bare, Some("1.5×")),
        line("recording the answers", recording),
        line("until jobs of new kinds start", until_start).times(until_start / bare, None),
        line("all answers refreshed, every 30 s", refreshed).times(refreshed / bare, None),
    ])
}

/// One round as on the planner thread. Returns the number of starts.
fn round(querier: &mut PolicyQuerier, state: &State, elapsed: Duration) -> usize {
    let planned = plan(state, NOW);
    querier.new_answers(state, &planned.plan, (NOW, elapsed));
    planned.plan.starts.len()
}

/// A cluster with waiting jobs of many shapes.
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
    let bundle =
        interpreter.compile(&PolicyScope::Cluster, files).map_err(|errors| CliError::failed(errors.join("; ")))?;
    let (scope, why) = (PolicyScope::Cluster, String::new());
    apply_command(state, &Command::ApplyPolicy { scope, bundle: Arc::new(bundle), why });
    Ok(())
}

/// Query until every answer is known. Returns the CPU milliseconds of deciding the commands that record the answers.
fn record_all_answers(querier: &mut PolicyQuerier, state: &mut State) -> f64 {
    let mut ms = 0.0;
    while let Some(answers) = querier.new_answers(state, &Plan::default(), (NOW, Duration::ZERO)) {
        let (deciding, _) = median_cpu_ms(1, || state.decide(&Actor::system(), &answers, NOW).is_ok());
        apply_command(state, &answers);
        ms += deciding;
    }
    ms
}
