//! What policies cost: how often functions are called, how soon files are loaded, and what asking adds to a round of the
//! planner.
//!
//! Functions are called as the server calls them, with all bounds in force. Next to that, other interpreters call the same
//! functions with the same arguments, as far as a Python has them. Times are those of the core that did the work.

mod calls;
mod load;
mod peers;
mod rounds;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::commands::{Code, Ending};
use crate::error::CliError;
use crate::output::{self, ShowArgs};
use calls::Call;

/// `muster bench policy`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A Python that has other interpreters of Starlark [env: MUSTER_PYTHON] [default: python3]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Nodes of the cluster whose rounds are measured
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    nodes: usize,
    /// Rounds of each measurement; the median counts
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    rounds: usize,
    #[command(flatten)]
    show: ShowArgs,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Measure {
    what: String,
    /// Nothing where it could not be measured.
    value: Option<f64>,
    unit: &'static str,
    /// How many times another measure that is, or another this; of our own package how many times starlark-pyo3.
    times: Option<f64>,
    goal: Option<&'static str>,
    /// Why it could not be measured, and what to do.
    missing: Option<String>,
}

impl Measure {
    fn of(what: impl Into<String>, value: f64, unit: &'static str) -> Measure {
        Measure { what: what.into(), value: Some(value), unit, times: None, goal: None, missing: None }
    }

    fn times(self, times: f64, goal: Option<&'static str>) -> Measure {
        Measure { times: Some(times), goal, ..self }
    }
}

/// Measure everything, and print it.
pub fn run(args: &Args) -> Ending {
    let rounds = args.rounds.max(1);
    let calls = [calls::allow()?, calls::score()?];
    let python = args.python.clone().or_else(|| std::env::var_os("MUSTER_PYTHON").map(PathBuf::from));
    let python = python.unwrap_or_else(|| PathBuf::from("python3"));
    // We and they by turns: what a neighbour takes from the machine it takes from both.
    let turns: Vec<Turn> = (0..rounds).map(|_| Turn::taken(&calls, &python)).collect::<Result<_, _>>()?;
    let mut measures = Vec::new();
    for call in &calls {
        measures.extend(evaluations(call, &turns));
        let (what, rate) =
            (format!("{}: calls in a worker", call.function), call.per_second_in_worker(rounds)?);
        let here = measures.iter().find(|one| one.what == format!("{}: calls", call.function));
        let times = here.and_then(|here| here.value).map(|here| rate / here);
        measures.push(Measure { times, ..Measure::of(what, rate, "/s") });
    }
    measures.push(load::hundred_files(rounds)?);
    measures.extend(rounds::measured(args.nodes.max(1), rounds)?);
    output::say(&args.show, &format!("{}\n", table(&measures)), "policy", &measures)?;
    Ok(Code::DONE)
}

/// How often functions were called in a second, one after the other by us and by others.
struct Turn {
    /// By name: as the product calls it, and with everything made anew.
    ours: BTreeMap<&'static str, (f64, f64)>,
    others: peers::Outcome,
}

impl Turn {
    fn taken(calls: &[Call], python: &Path) -> Result<Turn, CliError> {
        let rates = |call: &Call| Ok((call.function, (call.per_second()?, call.per_second_anew()?)));
        let ours = calls.iter().map(rates).collect::<Result<_, CliError>>()?;
        Ok(Turn { ours, others: peers::measured(python, calls)? })
    }
}

/// How often a function is called here, and by others. The middle of all turns counts.
fn evaluations(call: &Call, turns: &[Turn]) -> Vec<Measure> {
    let name = call.function;
    let ours = |turn: &Turn| turn.ours.get(name).copied();
    let of_ours = |which: fn((f64, f64)) -> f64| middle(turns, |turn| ours(turn).map(which)).unwrap_or(0.0);
    let mut measures = vec![
        Measure::of(format!("{name}: calls"), of_ours(|(rate, _)| rate), "/s"),
        Measure::of(
            format!("{name}: calls, all arguments made anew for each"),
            of_ours(|(_, anew)| anew),
            "/s",
        ),
    ];
    for peer in peers::ALL {
        let version = turns.iter().find_map(|turn| turn.others.version(peer)).unwrap_or_default();
        let what = format!("{name}: calls by {} {version}", peer.package).trim_end().to_string();
        let rate = |turn: &Turn| turn.others.rate(peer.package, name);
        let Some(theirs) = middle(turns, rate) else {
            let missing = turns.first().map(|turn| turn.others.missing(peer));
            measures.push(Measure { what, value: None, unit: "/s", times: None, goal: peer.goal, missing });
            continue;
        };
        let times = middle(turns, |turn| match peer.against {
            None => Some(ours(turn)?.0 / rate(turn)?),
            Some(other) => Some(rate(turn)? / turn.others.rate(other, name)?),
        });
        measures.push(Measure { times, goal: peer.goal, ..Measure::of(what, theirs, "/s") });
    }
    measures
}

/// The median of what is known of each turn.
fn middle(turns: &[Turn], known: impl Fn(&Turn) -> Option<f64>) -> Option<f64> {
    let mut values: Vec<f64> = turns.iter().filter_map(known).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn table(measures: &[Measure]) -> String {
    let line = |measure: &Measure| {
        let Measure { what, unit, .. } = measure;
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
        format!("{what:<58} {value:>10} {unit:<2} {:>7} {rest}", times.unwrap_or_default())
            .trim_end()
            .to_string()
    };
    measures.iter().map(line).collect::<Vec<_>>().join("\n")
}
