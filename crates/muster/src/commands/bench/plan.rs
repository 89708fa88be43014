//! `muster bench plan`: CPU time and memory of the planner on synthetic clusters, on one core.
//!
//! The baseline is measured in the same run: a planner without buckets or indexes, which compares every waiting job
//! with every node.

use std::hint::black_box;

use muster_core::facts::command::{Actor, Command};
use muster_core::objects::settings::Objective;
use muster_core::objects::shape::Shape;
use muster_core::planner::plan;
use muster_core::time::{MINUTE, SECOND};
use muster_core::{JobId, State, Timestamp};
use muster_sim::synthetic::{
    SyntheticJob, TENANTS, end_job, job_spec, mixed_job, plan_and_adopt, submission, submit_jobs, synthetic_cluster,
};
use serde::Serialize;

use super::timing::{cpu_ms, median_cpu_ms};
use crate::error::{CommandResult, ExitStatus};
use crate::output::{self, ShowArgs};

/// One line of the table.
#[derive(Debug, Serialize)]
struct PlanMeasure {
    what: &'static str,
    nodes: usize,
    value: f64,
    unit: &'static str,
    goal: Option<&'static str>,
}

pub fn run(quick: bool, show: &ShowArgs) -> CommandResult {
    let sizes: &[usize] = if quick { &[100, 1_000] } else { &[100, 1_000, 10_000] };
    let mut measures = Vec::new();
    for nodes in sizes {
        measures.extend(placements(*nodes));
    }
    measures.extend(large_gang());
    measures.extend(infeasible());
    measures.push(preemption());
    measures.extend(fair_round());
    let text = format!("{}\n", table(&measures));
    output::print_text(show, &text, "plan", &measures)?;
    Ok(ExitStatus::SUCCESS)
}

fn table(measures: &[PlanMeasure]) -> String {
    let line = |measure: &PlanMeasure| {
        let goal = measure.goal.map(|goal| format!("goal {goal}")).unwrap_or_default();
        let value = match measure.value {
            value if value >= 1_000.0 => format!("{value:.0}"),
            value if value >= 10.0 => format!("{value:.1}"),
            value => format!("{value:.2}"),
        };
        let PlanMeasure { what, nodes, unit, .. } = measure;
        format!("{nodes:>6} nodes  {what:<52} {value:>10} {unit:<4} {goal}").trim_end().to_string()
    };
    measures.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The first round on an empty cluster with more jobs and gangs than it holds, then steady rounds in which some jobs
/// end and as many arrive.
fn placements(nodes: usize) -> Vec<PlanMeasure> {
    let before = resident_mib();
    let mut state = synthetic_cluster(nodes, TENANTS, false);
    (0..nodes * 4).for_each(|index| submit_jobs(&mut state, mixed_job(index), 1));
    let waiting = state.queue.len();
    let (ms, planned) = median_cpu_ms(5, || plan(&state, Timestamp(0)));
    let starts = planned.plan.starts.len();
    let command = Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 1 };
    let (adopt_ms, _) = median_cpu_ms(3, || state.decide(&Actor::system(), &command, Timestamp(0)).is_ok());
    let baseline_us = compare_every_node_us(&state);
    let mut rounds = steady_rounds(&mut state, nodes);
    rounds.sort_by(f64::total_cmp);
    let at = |part: f64| rounds[((rounds.len() - 1) as f64 * part) as usize];
    let grown = (resident_mib() - before).max(0.0);
    let goal = match nodes {
        1_000 => Some("50"),
        10_000 => Some("twice that at 1,000"),
        _ => None,
    };
    let line = |what, value, unit, goal| PlanMeasure { what, nodes, value, unit, goal };
    vec![
        line("waiting jobs, some of them gangs", waiting as f64, "", None),
        line("placements in the first round", starts as f64, "", None),
        line("CPU per placement", ms * 1e3 / starts as f64, "µs", goal),
        line("CPU per placement with adoption", (ms + adopt_ms) * 1e3 / starts as f64, "µs", None),
        line("baseline: compare one job with every node", baseline_us, "µs", None),
        line("decisions", starts as f64 / ms * 1e3, "/s", None),
        line("steady round, median", at(0.5), "ms", None),
        line("steady round, 99th percentile", at(0.99), "ms", None),
        line("memory of the cluster and its jobs", grown, "MiB", None),
    ]
}

/// CPU milliseconds of each round while jobs arrive and end.
fn steady_rounds(state: &mut State, nodes: usize) -> Vec<f64> {
    let (count, each) = (100, (nodes / 25).max(4));
    let mut rounds = Vec::new();
    let mut now = Timestamp(0);
    plan_and_adopt(state, now);
    let mut next = nodes * 4;
    for _ in 0..count {
        now = now.plus(10 * SECOND);
        let running: Vec<JobId> = state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
        let step = (running.len() / each).max(1);
        running.iter().step_by(step).for_each(|job| end_job(state, *job, now));
        for _ in 0..each {
            submit_jobs(state, mixed_job(next), 1);
            next += 1;
        }
        rounds.push(cpu_ms(|| plan(state, now)).0);
        plan_and_adopt(state, now);
    }
    rounds
}

/// A gang of 512 nodes: placed on an empty cluster, and reserved on one where half of the nodes are in use.
fn large_gang() -> Vec<PlanMeasure> {
    let gang = SyntheticJob { tasks: 512, gpus: 8, ..SyntheticJob::default() };
    let measure = |what, state: &State| {
        let (ms, planned) = median_cpu_ms(5, || plan(state, Timestamp(MINUTE)));
        assert_eq!(
            planned.plan.starts.len(),
            usize::from(what == GANG_PLACED),
            "the gang starts on the empty cluster only"
        );
        PlanMeasure { what, nodes: 1_000, value: ms, unit: "ms", goal: Some("50") }
    };
    let mut empty = synthetic_cluster(1_000, TENANTS, false);
    submit_jobs(&mut empty, gang, 1);
    let mut busy = synthetic_cluster(1_000, TENANTS, false);
    // Jobs fill 500 of the 1,000 nodes, so that 500 are left.
    (0..500).for_each(|_| submit_jobs(&mut busy, SyntheticJob { gpus: 8, ..SyntheticJob::default() }, 1));
    plan_and_adopt(&mut busy, Timestamp(0));
    submit_jobs(&mut busy, gang, 1);
    vec![measure(GANG_PLACED, &empty), measure("a gang of 512 nodes gets a reservation", &busy)]
}

const GANG_PLACED: &str = "a gang of 512 nodes is placed";

/// The refusal of a job that fits no node, and of a gang that exceeds the cluster.
fn infeasible() -> Vec<PlanMeasure> {
    let state = synthetic_cluster(1_000, TENANTS, false);
    let refuse = |what, job: SyntheticJob| {
        let command = Command::SubmitJob(submission(job_spec(job)));
        let (ms, refused) = median_cpu_ms(9, || state.decide(&Actor::system(), &command, Timestamp(0)).is_err());
        assert!(refused, "an infeasible job is refused");
        PlanMeasure { what, nodes: 1_000, value: ms, unit: "ms", goal: Some("10") }
    };
    vec![
        refuse("an infeasible job is refused with its reason", SyntheticJob { gpus: 16, ..SyntheticJob::default() }),
        refuse(
            "an infeasible gang is refused with its reason",
            SyntheticJob { gpus: 8, tasks: 1_001, ..SyntheticJob::default() },
        ),
    ]
}

/// One job of higher priority on a full cluster of 400 tenants with guarantees, each of which also borrows.
fn preemption() -> PlanMeasure {
    let tenants = 400;
    let mut state = synthetic_cluster(1_000, tenants, true);
    for index in 0..4_000 {
        submit_jobs(&mut state, SyntheticJob { gpus: 2, tenant: index % tenants, ..SyntheticJob::default() }, 1);
    }
    plan_and_adopt(&mut state, Timestamp(0));
    submit_jobs(&mut state, SyntheticJob { gpus: 8, tenant: 7, priority: 900, ..SyntheticJob::default() }, 1);
    let (ms, planned) = median_cpu_ms(5, || plan(&state, Timestamp(MINUTE)));
    assert_eq!(planned.plan.evictions.len(), 1, "one eviction is planned");
    PlanMeasure { what: "preemption decision, 400 tenants", nodes: 1_000, value: ms, unit: "ms", goal: Some("100") }
}

/// Rounds with 320,000 waiting jobs of 200 shapes and 100 tenants, on an empty and on a full cluster.
fn fair_round() -> Vec<PlanMeasure> {
    let tenants = 100;
    let mut state = synthetic_cluster(1_000, tenants, false);
    for shape in 0..200 {
        for copy in 0..16 {
            let job = SyntheticJob {
                gpus: 1 + shape as u32 % 8,
                cpus: 1 + shape as u32 / 50,
                tenant: (shape * 16 + copy) % tenants,
                memory_mib: 1_000 + shape as u64,
                ..SyntheticJob::default()
            };
            submit_jobs(&mut state, job, 100);
        }
    }
    assert_eq!(state.queue.len(), 320_000);
    let line = |what, value| PlanMeasure { what, nodes: 1_000, value, unit: "ms", goal: Some("300") };
    let (filling, _) = median_cpu_ms(3, || plan(&state, Timestamp(0)));
    let first = line("fair round, 320,000 waiting jobs, empty cluster", filling);
    plan_and_adopt(&mut state, Timestamp(0));
    let (full, _) = median_cpu_ms(3, || plan(&state, Timestamp(MINUTE)));
    state.settings.objective = Objective::Fast;
    let (fast, _) = median_cpu_ms(3, || plan(&state, Timestamp(MINUTE)));
    let fast = PlanMeasure { goal: None, ..line("the same with the objective `fast`", fast) };
    vec![first, line("fair round, 320,000 waiting jobs, full cluster", full), fast]
}

/// The baseline: CPU time of one job's comparison with every node.
fn compare_every_node_us(state: &State) -> f64 {
    let sample = 50;
    let jobs: Vec<Shape> =
        state.jobs.values().filter(|job| job.is_queued()).take(sample).map(|job| Shape::of(&job.spec)).collect();
    let (ms, ()) = median_cpu_ms(3, || {
        for shape in &jobs {
            for (_, entry) in state.resources.nodes() {
                black_box(entry.kind.fit(shape, entry.free));
            }
        }
    });
    ms * 1e3 / jobs.len() as f64
}

/// Resident memory of this process; 0 where the system does not report it.
fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or_default() / 1_024.0
}
