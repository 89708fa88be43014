//! Laws about time, which random stories are too short for: every wait is bounded, and nobody is started only
//! to be killed.

use std::collections::BTreeMap;

use muster_core::command::{Answer, Command, JobChange, Said};
use muster_core::job::{Attempt, CheckpointRule, Exit, Job};
use muster_core::plan::{Range, forecast};
use muster_core::settings::Objective;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{Event, JobId, JobSpec, Settings, Timestamp};

use crate::model;
use crate::world::{World, facts, spec, submission};

/// Jobs run this long.
const RUNTIME: i64 = 10 * MINUTE;

#[test]
fn a_stream_of_small_urgent_jobs_starves_no_gang() {
    let gangs = [((1, 4), 1), ((1, 4), 2), ((1, 3), 2), ((1, 2), 1), ((4, 4), 1), ((3, 3), 2), ((4, 4), 4)];
    let both = |gang| [(Objective::Fair, gang), (Objective::Fast, gang)];
    for (objective, ((tasks, gang), small)) in gangs.into_iter().flat_map(both) {
        let mut world = cluster(Settings {
            objective,
            preemption: false,
            max_wait_ms: HOUR,
            aging_per_minute: 0,
            ..Settings::default()
        });
        fill(&mut world, small, 500);
        let gang = submit_gang(&mut world, (tasks, gang), 100);
        let bound = HOUR + 2 * RUNTIME;
        while world.state.jobs.get(&gang).is_some_and(|job| job.is_queued()) {
            assert!(world.now.0 <= bound, "{gang} has waited for {} minutes", world.now.0 / MINUTE);
            fill(&mut world, small, 500);
            minute(&mut world);
        }
        assert!(world.now.0 > HOUR, "the stream never filled the cluster");
    }
}

#[test]
fn who_starts_by_age_is_not_killed_by_those_it_went_before() {
    let settings =
        Settings { aging_after_ms: 0, aging_per_minute: 10, aging_max: 500, ..Settings::default() };
    let mut world = cluster(settings);
    let old: Vec<JobId> = (0..12).map(|_| submit(&mut world, 4, 100)).collect();
    for _ in 0..20 {
        submit(&mut world, 4, 300);
    }
    for _ in 0..300 {
        minute(&mut world);
    }
    let stops = world.events.iter().filter(|event| matches!(event, Event::AttemptStopping { .. })).count();
    // Whoever was running when the strong ones came may be displaced once; after that the order decides.
    assert!(stops <= 4, "{stops} attempts were displaced");
    assert!(old.iter().all(|job| world.state.ended.contains_key(job)), "an old job never ran to its end");
}

/// Where the least GPU time comes first, a long job waits for its turn and may have to give way once; then it runs.
#[test]
fn a_stream_of_short_jobs_lets_a_long_one_end() {
    for long_gpus in [1, 4] {
        let rules = Settings { objective: Objective::Fast, max_wait_ms: HOUR, ..Settings::default() };
        let mut world = cluster(rules);
        let mut runtimes = BTreeMap::new();
        let with_limit = |gpus: u32, limit: i64| JobSpec { time_limit_ms: Some(limit), ..spec("line", gpus) };
        let long = accept(&mut world, with_limit(long_gpus, 3 * HOUR));
        runtimes.insert(long, 2 * HOUR);
        let mut displaced = 0;
        while !world.state.ended.contains_key(&long) {
            while world.state.queue.len() < 20 {
                runtimes.insert(accept(&mut world, with_limit(2, RUNTIME)), RUNTIME);
            }
            world.plan();
            start_all(&mut world);
            world.tick(MINUTE);
            displaced += end_stopped(&mut world).iter().filter(|job| **job == long).count();
            end_all(&mut world, &runtimes);
            let bound = 2 * (HOUR + 2 * RUNTIME) + 4 * HOUR;
            assert!(world.now.0 <= bound, "{long} has not ended after {} minutes", world.now.0 / MINUTE);
        }
        assert!(displaced <= 1, "{long} gave way {displaced} times");
    }
}

/// The same jobs come under both objectives. Where the least GPU time comes first they are done sooner, in the mean.
#[test]
fn fast_is_faster() {
    let percent = |one: &Settings, other: &Settings, next: NextJob| {
        let minutes = |rules| (0..8).map(|seed| time_to_the_end(seed, rules, next)).sum::<i64>();
        100 * minutes(one) / minutes(other)
    };
    let rules = |objective, preemption| Settings { objective, preemption, ..Settings::default() };
    let (fair, fast) = (rules(Objective::Fair, true), rules(Objective::Fast, true));
    let sooner = percent(&fast, &fair, random_job);
    let patient = rules(Objective::Fast, false);
    let giving_way = percent(&fast, &patient, short_or_long);
    println!(
        "{sooner} % of the time of `fair`; {giving_way} % where longer work gives way of where it does not"
    );
    assert!(sooner < 85, "{sooner} % of the time of `fair`");
    assert!(giving_way < 90, "{giving_way} % where longer work gives way");
}

/// Long jobs that save their work fill a cluster without guarantees, and shorter ones come: one of the long ones gives
/// way to several who are worth more only together, or nobody does, and a naive planner says the same.
#[test]
fn a_naive_planner_agrees_on_who_gives_way_to_several() {
    let mut gave_way = 0;
    for seed in 0..150u64 {
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut world = cluster(Settings { objective: Objective::Fast, ..Settings::default() });
        for _ in 0..6 {
            let gpus = 2 + chance.below(3) as u32;
            let hours = 4 + chance.below(16) as i64;
            accept(&mut world, saver(gpus, hours * 60));
        }
        world.plan();
        start_all(&mut world);
        world.tick((10 + chance.below(100) as i64) * MINUTE);
        for _ in 0..4 {
            for _ in 0..chance.below(6) {
                let gpus = 1 + chance.below(2) as u32;
                let minutes = 60 + chance.below(1_200) as i64;
                accept(&mut world, saver(gpus, minutes));
            }
            model::compare(&world.state, world.now);
            world.plan();
            start_all(&mut world);
            gave_way += end_stopped(&mut world).len();
            world.tick((1 + chance.below(30) as i64) * MINUTE);
        }
    }
    assert!(gave_way > 50, "{gave_way} gave way");
}

/// One that saves its work every five minutes.
fn saver(gpus: u32, limit_minutes: i64) -> JobSpec {
    let mut spec = spec("line", gpus);
    spec.time_limit_ms = Some(limit_minutes * MINUTE);
    spec.checkpoint = Some(CheckpointRule { path: "/out".to_string(), every_ms: Some(5 * MINUTE) });
    spec
}

type NextJob = fn(&mut World, &mut Chance) -> (JobId, i64);

/// Minutes from submission to the end, over all jobs of a busy day. Who was displaced goes on where it last saved its
/// work, if it does so every five minutes.
fn time_to_the_end(seed: u64, rules: &Settings, next: NextJob) -> i64 {
    let mut world = cluster(rules.clone());
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut left: BTreeMap<JobId, i64> = BTreeMap::new();
    let mut minutes = 0;
    for minute in 0.. {
        if minute < 600 && chance.one_in(2) {
            let (job, runtime) = next(&mut world, &mut chance);
            left.insert(job, runtime);
        }
        world.plan();
        start_all(&mut world);
        world.tick(MINUTE);
        minutes += world.state.jobs.len() as i64;
        for job in world.state.jobs.values().filter(|job| job.spec.checkpoint.is_some()) {
            let stopped = job.attempt().filter(|attempt| attempt.stopping.is_some());
            let ran = stopped.map_or(0, |attempt| world.now.since(attempt.placed_at));
            *left.get_mut(&job.id).unwrap() -= ran / (5 * MINUTE) * (5 * MINUTE);
        }
        end_stopped(&mut world);
        end_all(&mut world, &left);
        if minute > 600 && world.state.jobs.is_empty() {
            break;
        }
    }
    minutes
}

/// Mostly short ones, and some long ones that save their work.
fn short_or_long(world: &mut World, chance: &mut Chance) -> (JobId, i64) {
    let long = chance.one_in(10);
    let mut spec = spec("line", [1, 1, 2, 4][chance.below(4) as usize]);
    spec.user = if long { "ada" } else { "bob" }.to_string();
    let limit = if long { 240 + chance.below(240) } else { 5 + chance.below(20) };
    spec.time_limit_ms = Some(limit as i64 * MINUTE);
    let every_ms = Some(5 * MINUTE);
    spec.checkpoint = long.then(|| CheckpointRule { path: "/out".to_string(), every_ms });
    let job = accept(world, spec);
    (job, (limit - chance.below(limit / 2)) as i64 * MINUTE)
}

/// Let those go who were told to stop.
fn end_stopped(world: &mut World) -> Vec<JobId> {
    let stopped = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
    let stopped: Vec<&Job> = world.state.jobs.values().filter(stopped).collect();
    let names = stopped.iter().map(|job| job.id).collect();
    let commands: Vec<Command> = stopped.into_iter().flat_map(ends).collect();
    all(world, commands);
    names
}

/// Jobs of all sizes with time limits come and go. Whoever is first in line has a place in the future which only ever
/// comes earlier, and starts by then, whoever else is let past.
#[test]
fn nobody_who_passes_delays_the_first_in_line() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let mut promised = 0;
    let mut passed = 0;
    for seed in 0..seeds {
        let (of_seed, past) = one_line(seed);
        promised += of_seed;
        passed += past;
    }
    assert!(promised > seeds * 10, "only {promised} jobs were promised anything");
    assert!(passed > seeds * 10, "only {passed} jobs passed others");
}

/// Small jobs without limits pass by estimates that are wrong. Whoever they pass starts when that was promised all the
/// same, as long as only they are in the way: what they have on loan is called in.
#[test]
fn nobody_on_loan_delays_the_first_in_line() {
    let (mut kept, mut called_in) = (0, 0);
    for seed in 0..60 {
        let (of_seed, back) = one_line_with_loans(seed);
        kept += of_seed;
        called_in += back;
    }
    assert!(kept > 100, "only {kept} promises were kept");
    assert!(called_in > 30, "only {called_in} loans were called in");
}

/// How many started when it was promised, and how many were asked to leave for it.
fn one_line_with_loans(seed: u64) -> (u64, u64) {
    let rules = Settings {
        default_runtime_ms: 5 * MINUTE,
        fair_share_max: 0,
        aging_per_minute: 0,
        ..Settings::default()
    };
    let mut world = cluster(rules);
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut promises: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let mut runtimes: BTreeMap<JobId, i64> = BTreeMap::new();
    let (mut kept, mut called_in) = (0, 0);
    for _ in 0..240 {
        if chance.one_in(4) {
            let (job, runtime) = random_job(&mut world, &mut chance);
            runtimes.insert(job, runtime);
        }
        if chance.one_in(3) && !world.state.queue.is_empty() {
            let mut small = spec("loan", 1);
            small.user = format!("user-{}", world.state.next_job);
            runtimes.insert(accept(&mut world, small), (1 + chance.below(60) as i64) * MINUTE);
        }
        let planned = world.plan();
        for start in &planned.plan.starts {
            let Some(by) = promises.remove(&start.job) else { continue };
            let late = world.now.since(by);
            assert!(late <= 2 * MINUTE, "seed {seed}: {} starts {late} ms too late", start.job);
            kept += 1;
        }
        let sure =
            |job: &Job| job.attempt().is_none_or(|attempt| attempt.lent || job.spec.time_limit_ms.is_some());
        let head = world.state.jobs.values().filter(|job| job.is_queued()).map(|job| job.id).min();
        if let Some((head, at)) = head.and_then(|head| Some((head, planned.verdicts.reserved_at(head)?)))
            && world.state.jobs.values().all(sure)
        {
            promises.entry(head).or_insert(at);
        }
        start_all(&mut world);
        world.tick(MINUTE);
        called_in += end_stopped(&mut world).len() as u64;
        end_all(&mut world, &runtimes);
    }
    (kept, called_in)
}

/// How many were promised a start, and how many passed someone who came before them.
fn one_line(seed: u64) -> (u64, u64) {
    let rules = Settings { preemption: false, fair_share_max: 0, aging_per_minute: 0, ..Settings::default() };
    let mut world = cluster(rules);
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut promises: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let mut runtimes: BTreeMap<JobId, i64> = BTreeMap::new();
    let mut passed = 0;
    for _ in 0..240 {
        if chance.one_in(3) {
            let (job, runtime) = random_job(&mut world, &mut chance);
            runtimes.insert(job, runtime);
        }
        let first =
            |world: &World| world.state.jobs.values().filter(|job| job.is_queued()).map(|job| job.id).min();
        let planned = world.plan();
        let head = first(&world);
        for start in &planned.plan.starts {
            passed += u64::from(head.is_some_and(|head| head < start.job));
            let late = promises.get(&start.job).filter(|by| world.now > **by);
            assert_eq!(late, None, "seed {seed}: {} starts too late, at {:?}", start.job, world.now);
        }
        if let Some(head) = head {
            let at = planned.verdicts.reserved_at(head);
            let at = at.unwrap_or_else(|| panic!("seed {seed}: {head} is first in line and has no place"));
            let before = promises.insert(head, at).unwrap_or(at);
            assert!(at <= before, "seed {seed}: {head} was promised {before:?} and now {at:?}");
        }
        start_all(&mut world);
        world.tick(MINUTE);
        end_all(&mut world, &runtimes);
    }
    (promises.len() as u64, passed)
}

/// Jobs of all sizes come, with limits and without, and run as long as they please. At least four in five start within
/// the range that was first told.
#[test]
fn four_in_five_start_when_it_was_said() {
    let (mut inside, mut told) = (0, 0);
    for seed in 0..24 {
        let (hits, of) = one_forecast_line(seed);
        inside += hits;
        told += of;
    }
    println!("{inside} of {told} starts were inside their range");
    assert!(told > 1_000, "only {told} starts were foretold");
    assert!(inside * 100 >= told * 80, "{inside} of {told} starts were inside their range");
}

fn one_forecast_line(seed: u64) -> (u64, u64) {
    let rules = Settings { default_runtime_ms: 20 * MINUTE, ..Settings::default() };
    let mut world = cluster(rules);
    let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut runtimes: BTreeMap<JobId, i64> = BTreeMap::new();
    let (mut inside, mut told) = (0, 0);
    for minute in 0..600 {
        // Now busy, now quiet.
        if chance.one_in(if minute / 100 % 2 == 0 { 3 } else { 8 }) {
            let (job, runtime) = random_job(&mut world, &mut chance);
            runtimes.insert(job, runtime);
            if chance.one_in(3) {
                let change = JobChange { time_limit_ms: Some(None), ..JobChange::default() };
                world.ask(Command::ChangeJob { job, change }).unwrap();
            }
        }
        let before: BTreeMap<JobId, Range> =
            world.state.jobs.values().filter_map(|job| Some((job.id, *job.foreseen.clone()?))).collect();
        for start in &world.plan().plan.starts {
            if let Some(range) = before.get(&start.job) {
                inside += u64::from(range.from <= world.now && world.now <= range.to);
                told += 1;
            }
        }
        start_all(&mut world);
        if minute % 2 == 0 {
            // A copy with only some of those who wait can be looked ahead from, too.
            forecast(&world.state.excerpt(2), world.now, 10);
            let ranges = forecast(&world.state, world.now, 100).ranges().collect();
            world.ask(Command::NoteForecast { ranges }).unwrap();
        }
        world.tick(MINUTE);
        end_all(&mut world, &runtimes);
        end_stopped(&mut world);
    }
    (inside, told)
}

/// A gang of any size with a limit, and how long it will really run.
fn random_job(world: &mut World, chance: &mut Chance) -> (JobId, i64) {
    let (tasks, gpus) =
        [(1, 1), (1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (3, 3)][chance.below(8) as usize];
    let mut spec = spec("line", gpus);
    spec.tasks[0].count = tasks;
    spec.tasks[0].each.cpus = 1 + 6 * chance.below(4) as u32;
    let limit = 1 + chance.below(40) as i64;
    spec.time_limit_ms = Some(limit * MINUTE);
    let job = accept(world, spec);
    (job, (1 + chance.below(limit as u64) as i64) * MINUTE)
}

fn start_all(world: &mut World) {
    let new = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.started_at.is_none());
    let reports = |job: &Job| {
        let attempt = job.attempt().unwrap();
        let report =
            |node| Command::ReportTask { node, job: job.id, attempt: attempt.number, said: Said::Started };
        attempt.nodes().into_iter().map(report).collect::<Vec<_>>()
    };
    let started: Vec<Command> = world.state.jobs.values().filter(new).flat_map(reports).collect();
    all(world, started);
}

fn end_all(world: &mut World, runtimes: &BTreeMap<JobId, i64>) {
    let over = |job: &&Job| {
        job.attempt().is_some_and(|attempt| world.now.since(attempt.placed_at) >= runtimes[&job.id])
    };
    let ended: Vec<Command> = world.state.jobs.values().filter(over).flat_map(ends).collect();
    all(world, ended);
}

/// Tell it all.
fn all(world: &mut World, commands: Vec<Command>) {
    for command in commands {
        world.ask(command).unwrap();
    }
}

/// Chance from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

/// Four nodes of four GPUs.
fn cluster(settings: Settings) -> World {
    let mut world = World::new();
    world.ask(Command::Configure { settings: Box::new(settings) }).unwrap();
    for index in 0..4 {
        let node = format!("n{index}").parse().unwrap();
        world.ask(Command::RegisterNode { node, facts: Box::new(facts(4, "H100", 64, 1 << 20)) }).unwrap();
    }
    world
}

fn submit(world: &mut World, gpus: u32, priority: u32) -> JobId {
    submit_gang(world, (1, gpus), priority)
}

fn submit_gang(world: &mut World, (tasks, gpus): (u32, u32), priority: u32) -> JobId {
    let mut spec = spec("waiting", gpus);
    spec.priority = priority;
    spec.tasks[0].count = tasks;
    accept(world, spec)
}

fn accept(world: &mut World, spec: JobSpec) -> JobId {
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

/// Keep at least twenty small jobs waiting.
fn fill(world: &mut World, gpus: u32, priority: u32) {
    while world.state.queue.len() < 20 {
        submit(world, gpus, priority);
    }
}

/// Plan, let a minute pass, and end what has run long enough or was told to stop.
fn minute(world: &mut World) {
    world.plan();
    world.tick(MINUTE);
    let over = |job: &&Job| {
        let long = |attempt: &Attempt| world.now.since(attempt.placed_at) >= RUNTIME;
        job.attempt().is_some_and(|attempt| attempt.stopping.is_some() || long(attempt))
    };
    let over: Vec<Command> = world.state.jobs.values().filter(over).flat_map(ends).collect();
    for command in over {
        world.ask(command).unwrap();
    }
}

/// What every agent says at the end of a job.
fn ends(job: &Job) -> Vec<Command> {
    let Some(attempt) = job.attempt() else { return Vec::new() };
    let stopped = attempt.stopping.is_some();
    let exit = if stopped { Exit::Signal { signal: 15 } } else { Exit::Code { code: 0 } };
    let said = Said::Ended { exit, stopped, ended_ms_ago: None };
    let report =
        |node| Command::ReportTask { node, job: job.id, attempt: attempt.number, said: said.clone() };
    attempt.nodes().into_iter().map(report).collect()
}
