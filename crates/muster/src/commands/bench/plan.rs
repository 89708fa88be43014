//! The planner by itself, on one core, on clusters that exist in memory only.
//!
//! Times are those of the core that did the work, so neighbours on the machine hardly count. The anchor is measured
//! in the same run: a planner without buckets or indexes, which compares every waiting job with every node.

use std::hint::black_box;

use muster_core::command::{Actor, Command, SubmitJob};
use muster_core::plan::plan;
use muster_core::queue::Shape;
use muster_core::settings::Objective;
use muster_core::time::{MINUTE, SECOND};
use muster_core::{JobId, State, Timestamp};
use serde::Serialize;

use super::cpu::{measured, median};
use super::synthetic::{Ask, TENANTS, adopt_round, cluster, end, mixed, spec, submit};
use crate::commands::{Code, Ending};
use crate::output::{self, ShowArgs};

/// One line of the table.
#[derive(Debug, Serialize)]
struct Measure {
    what: &'static str,
    nodes: usize,
    value: f64,
    unit: &'static str,
    goal: Option<&'static str>,
}

/// Measure everything, and print it.
pub fn run(quick: bool, show: &ShowArgs) -> Ending {
    let sizes: &[usize] = if quick { &[100, 1_000] } else { &[100, 1_000, 10_000] };
    let mut measures = Vec::new();
    for nodes in sizes {
        measures.extend(placements(*nodes));
    }
    measures.extend(large_gang());
    measures.extend(impossible());
    measures.push(preemption());
    measures.extend(fair_round());
    let text = format!("{}\n", table(&measures));
    output::say(show, &text, "plan", &measures)?;
    Ok(Code::DONE)
}

fn table(measures: &[Measure]) -> String {
    let line = |measure: &Measure| {
        let goal = measure.goal.map(|goal| format!("goal {goal}")).unwrap_or_default();
        let value = match measure.value {
            value if value >= 1_000.0 => format!("{value:.0}"),
            value if value >= 10.0 => format!("{value:.1}"),
            value => format!("{value:.2}"),
        };
        let Measure { what, nodes, unit, .. } = measure;
        format!("{nodes:>6} nodes  {what:<52} {value:>10} {unit:<4} {goal}").trim_end().to_string()
    };
    measures.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// An empty cluster and more mixed jobs and gangs than it holds; then rounds in which a fiftieth of them end and as
/// many come.
fn placements(nodes: usize) -> Vec<Measure> {
    let before = resident_mib();
    let mut state = cluster(nodes, TENANTS, false);
    (0..nodes * 4).for_each(|index| submit(&mut state, mixed(index), 1));
    let waiting = state.queue.len();
    let (ms, planned) = median(5, || plan(&state, Timestamp(0)));
    let starts = planned.plan.starts.len();
    let command = Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 1 };
    let (adopt_ms, _) = median(3, || state.decide(&Actor::system(), &command, Timestamp(0)).is_ok());
    let anchor_us = job_by_job_us(&state);
    let mut rounds = steady_rounds(&mut state, nodes);
    rounds.sort_by(f64::total_cmp);
    let at = |part: f64| rounds[((rounds.len() - 1) as f64 * part) as usize];
    let grown = (resident_mib() - before).max(0.0);
    let goal = match nodes {
        1_000 => Some("50"),
        10_000 => Some("twice that at 1,000"),
        _ => None,
    };
    let line = |what, value, unit, goal| Measure { what, nodes, value, unit, goal };
    vec![
        line("waiting jobs, of which some are gangs", waiting as f64, "", None),
        line("placements in the first round", starts as f64, "", None),
        line("CPU per placement", ms * 1e3 / starts as f64, "µs", goal),
        line("CPU per placement, adoption included", (ms + adopt_ms) * 1e3 / starts as f64, "µs", None),
        line("anchor: compare one job with every node", anchor_us, "µs", None),
        line("decisions", starts as f64 / ms * 1e3, "/s", None),
        line("steady round, median", at(0.5), "ms", None),
        line("steady round, 99 of 100 below", at(0.99), "ms", None),
        line("memory of the cluster and its jobs", grown, "MiB", None),
    ]
}

/// CPU milliseconds of each round while jobs come and go.
fn steady_rounds(state: &mut State, nodes: usize) -> Vec<f64> {
    let (count, each) = (100, (nodes / 25).max(4));
    let mut rounds = Vec::new();
    let mut now = Timestamp(0);
    adopt_round(state, now);
    let mut next = nodes * 4;
    for _ in 0..count {
        now = now.plus(10 * SECOND);
        let running: Vec<JobId> =
            state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
        let step = (running.len() / each).max(1);
        running.iter().step_by(step).for_each(|job| end(state, *job, now));
        for _ in 0..each {
            submit(state, mixed(next), 1);
            next += 1;
        }
        rounds.push(measured(|| plan(state, now)).0);
        adopt_round(state, now);
    }
    rounds
}

/// A gang of 512 nodes, on an empty cluster and on one where jobs are spread over half of the nodes.
fn large_gang() -> Vec<Measure> {
    let gang = Ask { tasks: 512, gpus: 8, ..Ask::default() };
    let measure = |what, state: &State| {
        let (ms, planned) = median(5, || plan(state, Timestamp(MINUTE)));
        assert_eq!(
            planned.plan.starts.len(),
            usize::from(what == EMPTY),
            "the gang starts where there is room"
        );
        Measure { what, nodes: 1_000, value: ms, unit: "ms", goal: Some("50") }
    };
    let mut empty = cluster(1_000, TENANTS, false);
    submit(&mut empty, gang, 1);
    let mut busy = cluster(1_000, TENANTS, false);
    // One GPU of each of 500 nodes, so that too few are left.
    (0..500).for_each(|_| submit(&mut busy, Ask { gpus: 8, ..Ask::default() }, 1));
    adopt_round(&mut busy, Timestamp(0));
    submit(&mut busy, gang, 1);
    vec![measure(EMPTY, &empty), measure("a gang of 512 nodes is given a place in the future", &busy)]
}

const EMPTY: &str = "a gang of 512 nodes is placed";

/// A job that no node could hold, and one that waits for more than there is now.
fn impossible() -> Vec<Measure> {
    let state = cluster(1_000, TENANTS, false);
    let ask = |ask| SubmitJob {
        spec: std::sync::Arc::new(spec(ask)),
        array: None,
        hold: false,
        key: None,
        known_outcomes: Default::default(),
        known_key: None,
        is_operator: true,
    };
    let refuse = |what, wanted: Ask| {
        let command = Command::SubmitJob(ask(wanted));
        let (ms, refused) = median(9, || state.decide(&Actor::system(), &command, Timestamp(0)).is_err());
        assert!(refused, "it is impossible");
        Measure { what, nodes: 1_000, value: ms, unit: "ms", goal: Some("10") }
    };
    vec![
        refuse("an impossible job is refused with its reason", Ask { gpus: 16, ..Ask::default() }),
        refuse(
            "an impossible gang is refused with its reason",
            Ask { gpus: 8, tasks: 1_001, ..Ask::default() },
        ),
    ]
}

/// A full cluster of 400 tenants, each within and beyond its guarantee, and one urgent job.
fn preemption() -> Measure {
    let tenants = 400;
    let mut state = cluster(1_000, tenants, true);
    for index in 0..4_000 {
        submit(&mut state, Ask { gpus: 2, tenant: index % tenants, ..Ask::default() }, 1);
    }
    adopt_round(&mut state, Timestamp(0));
    submit(&mut state, Ask { gpus: 8, tenant: 7, priority: 900, ..Ask::default() }, 1);
    let (ms, planned) = median(5, || plan(&state, Timestamp(MINUTE)));
    assert_eq!(planned.plan.claims.len(), 1, "someone makes room");
    Measure {
        what: "preemption decision, 400 tenants",
        nodes: 1_000,
        value: ms,
        unit: "ms",
        goal: Some("100"),
    }
}

/// 320,000 waiting jobs of 200 shapes and 100 tenants on an empty and on a full cluster.
fn fair_round() -> Vec<Measure> {
    let tenants = 100;
    let mut state = cluster(1_000, tenants, false);
    for shape in 0..200 {
        for copy in 0..16 {
            let ask = Ask {
                gpus: 1 + shape as u32 % 8,
                cpus: 1 + shape as u32 / 50,
                tenant: (shape * 16 + copy) % tenants,
                memory_mib: 1_000 + shape as u64,
                ..Ask::default()
            };
            submit(&mut state, ask, 100);
        }
    }
    assert_eq!(state.queue.len(), 320_000);
    let line = |what, value| Measure { what, nodes: 1_000, value, unit: "ms", goal: Some("300") };
    let (filling, _) = median(3, || plan(&state, Timestamp(0)));
    let first = line("fair round, 320,000 wait, the cluster is empty", filling);
    adopt_round(&mut state, Timestamp(0));
    let (full, _) = median(3, || plan(&state, Timestamp(MINUTE)));
    state.settings.objective = Objective::Fast;
    let (fast, _) = median(3, || plan(&state, Timestamp(MINUTE)));
    let fast = Measure { goal: None, ..line("the same where the objective is `fast`", fast) };
    vec![first, line("fair round, 320,000 wait, the cluster is full", full), fast]
}

/// The anchor: look at every node for one job.
fn job_by_job_us(state: &State) -> f64 {
    let sample = 50;
    let jobs: Vec<Shape> = state
        .jobs
        .values()
        .filter(|job| job.is_queued())
        .take(sample)
        .map(|job| Shape::of(&job.spec))
        .collect();
    let (ms, ()) = median(3, || {
        for shape in &jobs {
            for (_, filed) in state.capacity.nodes() {
                black_box(filed.kind.fit(shape, filed.free));
            }
        }
    });
    ms * 1e3 / jobs.len() as f64
}

/// Memory of this process, where the system says so.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1_024.0
}
