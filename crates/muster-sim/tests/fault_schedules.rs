//! Fault schedules of whole clusters, one for each seed. `SEEDS=` sets their number, `STEPS=` their length and
//! `FIRST=` the first seed.

use std::num::NonZero;

use muster_core::Event;
use muster_core::objects::job::{Exit, StopCause};
use muster_sim::campaign;
use muster_sim::fault_schedule::{FaultSchedule, JobRequest, ScheduledAction};
use muster_sim::minimise::minimise;
use muster_sim::replan_check;
use muster_sim::sim_cluster::{journal_of_schedule, run_schedule, run_schedule_traced};

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn no_fault_schedule_breaks_a_law() {
    let (first, seeds, steps) = (env_number("FIRST", 0), env_number("SEEDS", 1_400), env_number("STEPS", 2_000));
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let campaign = campaign::run(first, seeds, steps, threads);
    if let Some((seed, failure)) = campaign.failure {
        let minimised = minimise(&FaultSchedule::from_seed(seed, steps), 200);
        let (_, trace) = run_schedule_traced(&minimised);
        let last = trace.len().saturating_sub(40);
        let minimised_law = run_schedule(&minimised).err().map(|failure| failure.law).unwrap_or_default();
        panic!("{}\nseed {seed}: {}\nminimised:\n{minimised}{minimised_law}", trace[last..].join("\n"), failure.law);
    }
    assert_eq!(campaign.schedules_passed, seeds);
}

/// Seeds that once found a bug; `seeds.txt` says which.
#[test]
fn regression_seeds_break_no_law() {
    for line in include_str!("seeds.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let mut number = || words.next().and_then(|event| event.parse().ok());
        let (Some(seed), Some(steps)) = (number(), number()) else { continue };
        if let Err(failure) = run_schedule(&FaultSchedule::from_seed(seed, steps)) {
            panic!("{line}: {}", failure.law);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        let schedule = FaultSchedule::from_seed(seed, 1_000);
        assert_eq!(run_schedule_traced(&schedule), run_schedule_traced(&schedule));
    }
}

/// A component is paused from 10 s to 30 s.
#[test]
fn paused_components_do_nothing_and_resume() {
    let without_faults = FaultSchedule {
        seed: 1,
        steps: 600,
        server_count: 1,
        node_gpus: vec![1],
        self_fence_ms: None,
        actions: Vec::new(),
    };
    for (action, event) in [
        (ScheduledAction::PauseServer(0, 20_000), "Engine(0)"),
        (ScheduledAction::FreezeServer(0, 20_000), "Engine(0)"),
        (ScheduledAction::PauseAgent(0, 20_000), "Agent(0)"),
        (ScheduledAction::FreezeNode(0, 20_000), "Agent(0)"),
    ] {
        let schedule = FaultSchedule { actions: vec![(10_000, action.clone())], ..without_faults.clone() };
        let seconds: Vec<f64> = trace_times_s(&run_schedule_traced(&schedule).1, event);
        let during = seconds.iter().filter(|at| (10.01..29.99).contains(*at)).count();
        assert_eq!(during, 0, "{action:?}");
        assert!(seconds.iter().any(|at| (30.0..32.0).contains(at)), "{action:?} resumes: {seconds:?}");
    }
}

/// A server is down for five minutes while its only job ends after seconds.
#[test]
fn a_server_outage_is_not_charged() {
    let job = JobRequest {
        tenant: 0,
        user: 0,
        priority: 100,
        tasks: 1,
        gpus: 1,
        gpu_milli: 1_000,
        time_limit_ms: None,
        restarts: 0,
        has_checkpoints: false,
        depends_on_last: false,
        array_size: None,
        retries_max: 5,
    };
    let mut outages = 0;
    for seed in 0..20 {
        let actions =
            vec![(3_000, ScheduledAction::Submit(job.clone())), (8_000, ScheduledAction::CrashServer(0, 300_000))];
        let schedule =
            FaultSchedule { seed, steps: 2_000, server_count: 1, node_gpus: vec![1], self_fence_ms: None, actions };
        for entry in journal_of_schedule(&schedule).unwrap() {
            let Event::AttemptEnded { charge, at, .. } = &entry.event else { continue };
            // Jobs run for at most two minutes, so a job reported after the outage ended long before.
            if at.0 - 1_700_000_000_000 > 300_000 && charge.gpu_ms > 0 {
                outages += 1;
                assert!(charge.gpu_ms < 130_000, "seed {seed}: {} GPU-ms are charged", charge.gpu_ms);
            }
        }
    }
    assert!(outages >= 5, "{outages} outages");
}

/// A node is isolated for longer than its self-fence deadline, and its jobs run longer than that.
#[test]
fn jobs_of_an_isolated_node_are_requeued_once_their_fence_is_proven() {
    let job = JobRequest {
        tenant: 0,
        user: 0,
        priority: 100,
        tasks: 1,
        gpus: 1,
        gpu_milli: 1_000,
        time_limit_ms: None,
        restarts: 0,
        has_checkpoints: false,
        depends_on_last: false,
        array_size: None,
        retries_max: 5,
    };
    let (mut proven, mut requeued) = (0, 0);
    for seed in 0..40 {
        // Of three jobs in a row, two have `on_node_lost: requeue`.
        let submissions = (0..6).map(|number| (3_000 + number, ScheduledAction::Submit(job.clone())));
        let isolation = [(9_000, ScheduledAction::IsolateNode(0, 90_000))];
        let actions = submissions.chain(isolation).collect();
        let node_gpus = vec![4, 4];
        let schedule =
            FaultSchedule { seed, steps: 3_000, server_count: 2, node_gpus, self_fence_ms: Some(12_000), actions };
        let mut fenced = Vec::new();
        for entry in journal_of_schedule(&schedule).unwrap() {
            match entry.event {
                Event::AttemptEnded { job, exit: Exit::Unknown { why }, .. } if why.contains("self-fence deadline") => {
                    fenced.push(job);
                    proven += 1;
                }
                Event::JobPlaced { job, self_fence, attempt: 2.., .. } if fenced.contains(&job) => {
                    assert!(self_fence.is_some(), "{job} does not wait for its node");
                    requeued += 1;
                }
                _ => {}
            }
        }
    }
    assert!(proven >= 10 && requeued >= 10, "{proven} proven fences, {requeued} requeued jobs");
}

/// The agent of one of two nodes is paused when a gang is placed on both.
#[test]
fn a_gang_of_which_a_node_starts_late_is_stopped_and_runs_later() {
    let (mut late, mut done) = (0, 0);
    for seed in (0..120).step_by(3) {
        let gang = JobRequest { tasks: 2, ..single_job() };
        let actions = vec![
            (9_000, ScheduledAction::Submit(gang)),
            (9_010, ScheduledAction::PauseAgent(1, 7_000 + seed as i64 * 5)),
        ];
        let (server_count, node_gpus) = (1, vec![1, 1]);
        let schedule = FaultSchedule { seed, steps: 2_000, server_count, node_gpus, self_fence_ms: None, actions };
        for entry in journal_of_schedule(&schedule).unwrap() {
            match entry.event {
                Event::AttemptStopping { cause: StopCause::LateStart { nodes, .. }, .. } => {
                    assert_eq!(nodes, ["n1".parse().unwrap()]);
                    late += 1;
                }
                Event::AttemptStarted { whole: true, attempt: 2.., .. } => done += 1,
                _ => {}
            }
        }
    }
    assert!(late >= 10 && done >= 10, "{late} late gangs, {done} started again");
}

/// A leader is frozen with its clock, so that it takes itself for the leader when it resumes. Then agents that follow its
/// successor lose their connections, and some of them come to it.
#[test]
fn an_agent_that_reaches_a_replaced_leader_keeps_its_orders() {
    let mut greetings = 0;
    for seed in 0..60 {
        let mut actions = vec![(9_000, ScheduledAction::FreezeServer(seed as usize % 2, 21_000))];
        let jobs = (0..4).map(|number| (4_000 + number * 6_000, ScheduledAction::Submit(single_job())));
        actions.extend(jobs);
        let breaks = (0..6).flat_map(|node| [(30_010, node), (30_900, node), (31_800, node)]);
        actions.extend(breaks.map(|(at, node)| (at, ScheduledAction::BreakConnection(node, seed * 97 + at as u64))));
        actions.sort_by_key(|(at, _)| *at);
        let node_gpus = vec![1, 2, 2, 1, 1, 1];
        let schedule = FaultSchedule { seed, steps: 2_500, server_count: 2, node_gpus, self_fence_ms: None, actions };
        let (outcome, trace) = run_schedule_traced(&schedule);
        assert!(outcome.is_ok(), "seed {seed}: {outcome:?}\n{schedule}");
        let at_s = |line: &String| line.split_whitespace().nth(1).and_then(|at| at.parse::<f64>().ok()).unwrap_or(0.0);
        let stale = |line: &&String| line.contains("body: Some(Hello");
        let stale = trace.iter().filter(stale).filter(|line| line.contains("epoch: 1") && at_s(line) > 30.0);
        greetings += stale.count();
    }
    assert!(greetings >= 10, "{greetings} agents have come to the replaced leader");
}

fn single_job() -> JobRequest {
    JobRequest {
        tenant: 0,
        user: 0,
        priority: 100,
        tasks: 1,
        gpus: 1,
        gpu_milli: 1_000,
        time_limit_ms: None,
        restarts: 0,
        has_checkpoints: false,
        depends_on_last: false,
        array_size: None,
        retries_max: 5,
    }
}

/// The times of an event in a trace, in seconds.
fn trace_times_s(trace: &[String], event: &str) -> Vec<f64> {
    let lines = trace.iter().filter(|line| line.ends_with(event));
    lines.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect()
}

/// The journal records the state and the time of each plan, which are enough to compute the plan again.
#[test]
fn every_plan_is_reproduced_from_the_journal() {
    let mut plans = 0;
    for seed in 0..40 {
        let entries = journal_of_schedule(&FaultSchedule::from_seed(seed, 2_000)).unwrap();
        plans +=
            replan_check::check_journal(&entries).unwrap_or_else(|difference| panic!("seed {seed}: {difference:?}"));
    }
    assert!(plans > 1_000, "{plans} plans");
}
