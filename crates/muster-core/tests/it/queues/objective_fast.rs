//! The objective `fast`: shorter completion times, and preemption for a group.

use muster_core::objects::settings::Objective;
use muster_core::time::MINUTE;
use muster_core::{JobId, Settings};

use super::{Random, Runtimes, cluster, end_all, end_stopped, random_job, start_all};
use crate::builders::{JobBuilder, job};
use crate::naive_planner;
use crate::world::World;

/// The interval between checkpoints.
const CHECKPOINT: i64 = 5 * MINUTE;

type NextJob = fn(&mut World, &mut Random) -> (JobId, i64);

/// The same jobs under two settings: the mean time from submission to end is shorter under the objective `fast`.
#[test]
fn the_objective_fast_shortens_completion_times() {
    let percent = |one: &Settings, other: &Settings, next: NextJob| {
        let minutes = |settings| (0..8).map(|seed| minutes_to_completion(seed, settings, next)).sum::<i64>();
        100 * minutes(one) / minutes(other)
    };
    let settings = |objective, preemption| Settings { objective, preemption, ..Settings::default() };
    let (fair, fast) = (settings(Objective::Fair, true), settings(Objective::Fast, true));
    let of_fair = percent(&fast, &fair, random_job);
    let without_preemption = settings(Objective::Fast, false);
    let of_fast = percent(&fast, &without_preemption, short_or_long);
    println!("{of_fair} % of the time of `fair`; {of_fast} % of the time of `fast` without preemption");
    assert!(of_fair < 85, "{of_fair} % of the time of `fair`");
    assert!(of_fast < 90, "{of_fast} % of the time of `fast` without preemption");
}

/// Minutes from submission to end, summed over all jobs of a busy day. A preempted job resumes from its last
/// checkpoint.
fn minutes_to_completion(seed: u64, settings: &Settings, next: NextJob) -> i64 {
    let mut world = cluster(settings.clone());
    let mut random = Random::new(seed);
    let mut left = Runtimes::new();
    let mut minutes = 0;
    for minute in 0.. {
        if minute < 600 && random.one_in(2) {
            let (job, runtime) = next(&mut world, &mut random);
            left.insert(job, runtime);
        }
        world.plan();
        start_all(&mut world);
        world.tick(MINUTE);
        minutes += world.state.jobs.len() as i64;
        for job in world.state.jobs.values().filter(|job| job.spec.checkpoint.is_some()) {
            let stopped = job.attempt().filter(|attempt| attempt.stopping.is_some());
            let ran = stopped.map_or(0, |attempt| world.now.since(attempt.placed_at));
            *left.get_mut(&job.id).unwrap() -= ran / CHECKPOINT * CHECKPOINT;
        }
        end_stopped(&mut world);
        end_all(&mut world, &left);
        if minute > 600 && world.state.jobs.is_empty() {
            break;
        }
    }
    minutes
}

/// Mostly short jobs, and some long jobs with checkpoints.
fn short_or_long(world: &mut World, random: &mut Random) -> (JobId, i64) {
    let long = random.one_in(10);
    let gpus = [1, 1, 2, 4][random.below(4) as usize];
    let limit = if long { 240 + random.below(240) } else { 5 + random.below(20) };
    let job = job().gpus(gpus).limit_ms(limit as i64 * MINUTE);
    let job = if long { job.user("ada").checkpoint_every_ms(CHECKPOINT) } else { job.user("bob") };
    let job = world.submit(job);
    (job, (limit - random.below(limit / 2)) as i64 * MINUTE)
}

/// Long jobs with checkpoints fill a cluster without guarantees, and shorter jobs arrive: a long job yields to a
/// group of them, or no job yields. Stories rarely have such clusters.
#[test]
fn a_naive_planner_agrees_on_preemption_for_a_group() {
    let mut preempted = 0;
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut world = cluster(Settings { objective: Objective::Fast, ..Settings::default() });
        for _ in 0..6 {
            let gpus = 2 + random.below(3) as u32;
            let hours = 4 + random.below(16) as i64;
            world.submit(with_checkpoints(gpus, hours * 60));
        }
        world.plan();
        start_all(&mut world);
        world.tick((10 + random.below(100) as i64) * MINUTE);
        for _ in 0..4 {
            for _ in 0..random.below(6) {
                let gpus = 1 + random.below(2) as u32;
                let minutes = 60 + random.below(1_200) as i64;
                world.submit(with_checkpoints(gpus, minutes));
            }
            naive_planner::compare(&world.state, world.now);
            world.plan();
            start_all(&mut world);
            preempted += end_stopped(&mut world).len();
            world.tick((1 + random.below(30) as i64) * MINUTE);
        }
    }
    assert!(preempted > 50, "only {preempted} jobs were preempted");
}

fn with_checkpoints(gpus: u32, limit_minutes: i64) -> JobBuilder {
    job().gpus(gpus).limit_ms(limit_minutes * MINUTE).checkpoint_every_ms(CHECKPOINT)
}
