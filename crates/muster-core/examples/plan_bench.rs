//! How fast the planner is. `cargo run --release -p muster-core --example plan_bench`
//!
//! Decisions: an empty cluster and more jobs than it holds; one round places as many as fit. Round: a full
//! cluster and many waiting jobs of 200 shapes; one round finds room for none and says why, or (`preempting`,
//! in ms) displaces whoever is weaker. The anchor, `job by job`, is measured in the same run: every waiting job
//! compared with every node, as a planner without buckets does. Times are those of one core, without
//! neighbours.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use muster_core::command::{Actor, ArrayAsk, Command, SubmitJob};
use muster_core::job::{JobSpec, OnNodeLost, Resources, RestartRule, Run, TaskGroup, Topology};
use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::plan::{outlook, plan, position};
use muster_core::queue::Shape;
use muster_core::tenant::TenantConfig;
use muster_core::time::HOUR;
use muster_core::{State, Timestamp};

fn main() {
    println!("decisions: an empty cluster, 8 GPUs a node, jobs of 1 to 8 GPUs");
    println!(
        "{:>7} {:>8} {:>10} {:>14} {:>20}",
        "nodes", "starts", "plan ms", "decisions/s", "with adopt, per s"
    );
    for nodes in [100, 250, 1_000] {
        decisions(nodes);
    }
    println!();
    println!("round: a full cluster of 1,000 nodes, nobody fits, 200 shapes");
    println!(
        "{:>8} {:>8} {:>9} {:>12} {:>12} {:>9} {:>10} {:>13}",
        "waiting", "buckets", "round ms", "preempting", "claims", "why us", "outlook ms", "job by job ms"
    );
    for waiting in [10_000, 30_000, 100_000] {
        round(waiting, 1);
    }
    println!("the same with 5 tenants and 4 priorities");
    round(100_000, 20);
    println!();
    println!("preemption: a full cluster of low priority, jobs of high priority arrive");
    println!("{:>8} {:>9} {:>12}", "arrivals", "claims", "round ms");
    for arrivals in [100, 1_000, 4_000] {
        preemption(arrivals);
    }
}

fn decisions(nodes: usize) {
    let mut state = cluster(nodes);
    let sizes = [1, 1, 1, 2, 2, 4, 8];
    for index in 0..nodes * 4 {
        submit(&mut state, &spec(sizes[index % sizes.len()], 1 + index as u32 % 3, 0, 100), 1);
    }
    let (ms, planned) = average(|| plan(&state, Timestamp(0)));
    let starts = planned.plan.starts.len();
    let command = Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 1 };
    let (copy_ms, _) = average(|| state.clone());
    let (adopt_ms, _) = average(|| {
        let mut copy = state.clone();
        tell(&mut copy, &command);
        copy
    });
    let adopt_ms = (adopt_ms - copy_ms).max(0.0);
    let per_s = |ms: f64| starts as f64 / ms * 1e3;
    println!("{nodes:>7} {starts:>8} {ms:>10.2} {:>14.0} {:>20.0}", per_s(ms), per_s(ms + adopt_ms));
}

fn round(waiting: usize, copies: usize) {
    let now = Timestamp(HOUR);
    let mut state = full_cluster(1_000, 500);
    queue(&mut state, waiting, copies);
    let buckets = state.queue.buckets().count();
    let (ms, _) = average(|| plan(&state, now));
    let mut strong = full_cluster(1_000, 10);
    queue(&mut strong, waiting, copies);
    let (strong_ms, planned) = average(|| plan(&strong, now));
    let last = state.jobs.values().next_back().cloned();
    let verdicts = plan(&state, now).verdicts;
    let (why_ms, _) =
        average(|| last.as_ref().map(|job| (verdicts.of(&state, job, now), position(&state, job, now))));
    let (outlook_ms, _) = average(|| outlook(&state, &spec(4, 4, 0, 100), now));
    println!(
        "{waiting:>8} {buckets:>8} {ms:>9.2} {strong_ms:>12.2} {:>12} {:>9.0} {outlook_ms:>10.2} {:>13.0}",
        planned.plan.claims.len(),
        why_ms * 1e3,
        job_by_job_ms(&state)
    );
}

/// The anchor: look at every waiting job and every node, as a planner without buckets does. Measured on a
/// sample of the jobs and scaled up.
fn job_by_job_ms(state: &State) -> f64 {
    let sample = 200;
    let waiting = state.jobs.values().filter(|job| job.is_queued()).count();
    let (ms, _) = average(|| {
        for job in state.jobs.values().filter(|job| job.is_queued()).take(sample) {
            let shape = Shape::of(&job.spec);
            for (_, filed) in state.capacity.nodes() {
                black_box(filed.kind.fit(&shape, filed.free));
            }
        }
    });
    ms * waiting as f64 / sample as f64
}

fn preemption(arrivals: usize) {
    let mut state = full_cluster(1_000, 10);
    for index in 0..arrivals {
        submit(&mut state, &spec(1 + (index % 4) as u32, 1, 0, 900), 1);
    }
    let (ms, planned) = average(|| plan(&state, Timestamp(HOUR)));
    println!("{arrivals:>8} {:>9} {ms:>12.2}", planned.plan.claims.len());
}

/// Nodes of 8 GPUs and 64 cores in four kinds.
fn cluster(nodes: usize) -> State {
    let mut state = State::default();
    for tenant in 0..5 {
        let (id, config) = (tenant_name(tenant), Box::new(TenantConfig::unlimited("bench")));
        tell(
            &mut state,
            &Command::CreateTenant { id: id.parse().unwrap_or_else(|_| unreachable!()), config },
        );
    }
    for index in 0..nodes {
        let node = format!("gpu{index:04}").parse().unwrap_or_else(|_| unreachable!());
        tell(&mut state, &Command::RegisterNode { node, facts: Box::new(facts(index % 4)) });
    }
    state
}

/// Every GPU held by jobs of two GPUs of this priority.
fn full_cluster(nodes: usize, priority: u32) -> State {
    let mut state = cluster(nodes);
    submit(&mut state, &spec(2, 2, 0, priority), nodes * 4);
    let planned = plan(&state, Timestamp(0));
    assert_eq!(planned.plan.starts.len(), nodes * 4);
    tell(&mut state, &Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 1 });
    state
}

/// Waiting jobs of 200 shapes, each in `copies` combinations of tenant and priority.
fn queue(state: &mut State, waiting: usize, copies: usize) {
    for shape in 0..200 {
        for copy in 0..copies {
            let mut spec =
                spec(1 + shape as u32 % 8, 2 + shape as u32 / 8, copy % 5, 100 + (copy / 5) as u32);
            spec.tasks[0].each.memory_mib = 1_000 + shape as u64;
            submit(state, &spec, waiting / 200 / copies);
        }
    }
}

fn submit(state: &mut State, spec: &JobSpec, count: usize) {
    let array = (count > 1).then(|| ArrayAsk { indexes: (0..count as u32).collect(), running_max: None });
    let ask = SubmitJob {
        spec: Arc::new(spec.clone()),
        array,
        hold: false,
        key: None,
        known_outcomes: BTreeMap::new(),
    };
    tell(state, &Command::SubmitJob(ask));
}

fn tell(state: &mut State, command: &Command) {
    match state.decide(&Actor::system(), command, Timestamp(0)) {
        Ok(decision) => decision.events.iter().for_each(|event| state.apply(event)),
        Err(refusal) => panic!("{refusal}"),
    }
}

/// Milliseconds of one run: so many runs that the clock of the system is fine enough.
fn average<T>(work: impl Fn() -> T) -> (f64, T) {
    let (mut total, mut result) = measured(&work);
    let mut runs = 1;
    while total < 150.0 && runs < 2_000 {
        let (ms, next) = measured(&work);
        (total, result, runs) = (total + ms, next, runs + 1);
    }
    (total / f64::from(runs), result)
}

/// Milliseconds that the work took on its core.
fn measured<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let (wall, core) = (Instant::now(), core_ns());
    let result = black_box(work());
    let spent = core_ns().zip(core).map(|(now, then)| (now - then) as f64 / 1e6);
    (spent.unwrap_or(wall.elapsed().as_secs_f64() * 1e3), result)
}

/// Time this thread has spent on a core, where the system says so: neighbours do not count.
fn core_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

fn tenant_name(index: usize) -> String {
    format!("team-{index}")
}

fn facts(kind: usize) -> NodeFacts {
    let models = ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"];
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: models[kind].to_string(),
        memory_mib: 81_920,
        numa_node: None,
        nvlink: Vec::new(),
        power_limit_milliwatts: None,
    };
    NodeFacts {
        hostname: String::new(),
        address: String::new(),
        cpus: 64,
        memory_mib: 1 << 20,
        gpus: (0..8).map(gpu).collect(),
        rack: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        simulated: true,
    }
}

fn spec(gpus: u32, cpus: u32, tenant: usize, priority: u32) -> JobSpec {
    let each = Resources {
        gpus,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus,
        memory_mib: 1_024,
    };
    JobSpec {
        name: "bench".to_string(),
        tenant: tenant_name(tenant).parse().unwrap_or_else(|_| unreachable!()),
        user: "bench".to_string(),
        priority,
        tasks: vec![TaskGroup { name: "task".to_string(), count: 1, each }],
        topology: Topology::Any,
        time_limit_ms: None,
        restart: RestartRule::default(),
        on_node_lost: OnNodeLost::Wait,
        checkpoint: None,
        after: Vec::new(),
        start_after: None,
        pool: None,
        node_labels: BTreeMap::new(),
        run: Run { command: vec!["true".to_string()], ..Run::default() },
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}
