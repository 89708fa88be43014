//! `muster bench policy`: the cost of policies, as calls per second, compilation time, and time that policy queries add
//! to a planner round.
//!
//! Functions are called as the server calls them, with all limits in force. Other Starlark interpreters call the same
//! functions with the same arguments if a Python has them. Times are CPU time, and wall-clock time where a worker
//! process does the work.

mod calls;
mod load;
mod peers;
mod rounds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{CliError, CommandResult, ExitStatus};
use crate::output::{self, ShowArgs};
use calls::BenchmarkCall;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// A Python in which other Starlark interpreters are installed [env: MUSTER_PYTHON] [default: python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Nodes of the cluster for planner rounds
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    nodes: usize,
    /// Repetitions of each measurement; the median counts
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    show: ShowArgs,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct PolicyMeasure {
    what: String,
    /// `None` if it could not be measured.
    value: Option<f64>,
    unit: &'static str,
    /// The ratio to another measure: of calls in a worker to those in process, of muster to another interpreter, of
    /// muster's Python package to starlark-pyo3, and of a round with policies to one without.
    times: Option<f64>,
    goal: Option<&'static str>,
    /// Why it could not be measured, with a hint.
    missing: Option<String>,
}

impl PolicyMeasure {
    fn of(what: impl Into<String>, value: f64, unit: &'static str) -> PolicyMeasure {
        PolicyMeasure { what: what.into(), value: Some(value), unit, times: None, goal: None, missing: None }
    }

    fn times(self, times: f64, goal: Option<&'static str>) -> PolicyMeasure {
        PolicyMeasure { times: Some(times), goal, ..self }
    }
}

pub fn run(args: &Args) -> CommandResult {
    let rounds = args.rounds.max(1);
    let calls = [calls::allow()?, calls::score()?];
    let python = args.python.clone().or_else(|| std::env::var_os("MUSTER_PYTHON").map(PathBuf::from));
    let python = python.unwrap_or_else(|| PathBuf::from("python3"));
    // Alternate between muster and the other interpreters, so that load on the machine affects both.
    let measured: Vec<MeasurementRound> =
        (0..rounds).map(|_| MeasurementRound::measure(&calls, &python)).collect::<Result<_, _>>()?;
    let mut measures = Vec::new();
    for call in &calls {
        measures.extend(evaluation_measures(call, &measured));
        let (what, rate) = (format!("{}: calls in a worker", call.function), call.per_second_in_worker(rounds)?);
        let in_process = measures.iter().find(|one| one.what == format!("{}: calls", call.function));
        let times = in_process.and_then(|measure| measure.value).map(|in_process| rate / in_process);
        measures.push(PolicyMeasure { times, ..PolicyMeasure::of(what, rate, "/s") });
    }
    measures.push(load::measure_compilation(rounds)?);
    measures.extend(rounds::measure_rounds(args.nodes.max(1), rounds)?);
    output::print_text(&args.show, &format!("{}\n", table(&measures)), "policy", &measures)?;
    Ok(ExitStatus::SUCCESS)
}

/// Calls per second by muster and then by the other interpreters.
struct MeasurementRound {
    /// By function: called as the server does, and with arguments built for each call.
    ours: BTreeMap<&'static str, (f64, f64)>,
    others: peers::PeerResults,
}

impl MeasurementRound {
    fn measure(calls: &[BenchmarkCall], python: &Path) -> Result<MeasurementRound, CliError> {
        let rates =
            |call: &BenchmarkCall| Ok((call.function, (call.per_second()?, call.per_second_without_sharing()?)));
        let ours = calls.iter().map(rates).collect::<Result<_, CliError>>()?;
        Ok(MeasurementRound { ours, others: peers::measure_peers(python, calls)? })
    }
}

/// The medians of all rounds for one function, by muster and by the other interpreters.
fn evaluation_measures(call: &BenchmarkCall, rounds: &[MeasurementRound]) -> Vec<PolicyMeasure> {
    let name = call.function;
    let ours = |round: &MeasurementRound| round.ours.get(name).copied();
    let of_ours =
        |which: fn((f64, f64)) -> f64| median_of_rounds(rounds, |round| ours(round).map(which)).unwrap_or(0.0);
    let mut measures = vec![
        PolicyMeasure::of(format!("{name}: calls"), of_ours(|(rate, _)| rate), "/s"),
        PolicyMeasure::of(format!("{name}: calls, arguments built for each"), of_ours(|(_, unshared)| unshared), "/s"),
    ];
    for peer in peers::ALL {
        let version = rounds.iter().find_map(|round| round.others.version(peer)).unwrap_or_default();
        let what = format!("{name}: calls by {} {version}", peer.package).trim_end().to_string();
        let rate = |round: &MeasurementRound| round.others.rate(peer.package, name);
        let Some(theirs) = median_of_rounds(rounds, rate) else {
            let missing = rounds.first().map(|round| round.others.missing_reason(peer));
            measures.push(PolicyMeasure { what, value: None, unit: "/s", times: None, goal: peer.goal, missing });
            continue;
        };
        let times = median_of_rounds(rounds, |round| match peer.baseline {
            None => Some(ours(round)?.0 / rate(round)?),
            Some(other) => Some(rate(round)? / round.others.rate(other, name)?),
        });
        measures.push(PolicyMeasure { times, goal: peer.goal, ..PolicyMeasure::of(what, theirs, "/s") });
    }
    measures
}

/// The median over the rounds in which the value was measured.
fn median_of_rounds(rounds: &[MeasurementRound], value: impl Fn(&MeasurementRound) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = rounds.iter().filter_map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn table(measures: &[PolicyMeasure]) -> String {
    let line = |measure: &PolicyMeasure| {
        let PolicyMeasure { what, unit, .. } = measure;
        let value = match measure.value {
            Some(value) if value >= 1_000.0 => format!("{value:.0}"),
            Some(value) if value >= 10.0 => format!("{value:.1}"),
            Some(value) => format!("{value:.2}"),
            None => "-".to_string(),
        };
        let times = measure.times.map(|times| match times {
            many if many >= 10.0 => format!("{many:.0}×"),
            few => format!("{few:.2}×"),
        });
        let goal = measure.goal.map(|goal| format!("goal {goal}")).unwrap_or_default();
        let rest = measure.missing.as_ref().unwrap_or(&goal);
        format!("{what:<58} {value:>10} {unit:<2} {:>7} {rest}", times.unwrap_or_default()).trim_end().to_string()
    };
    measures.iter().map(line).collect::<Vec<_>>().join("\n")
}
