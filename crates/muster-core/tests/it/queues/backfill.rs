//! Backfilled jobs never delay the first reservation.

use std::collections::BTreeMap;

use muster_core::objects::job::Job;
use muster_core::time::MINUTE;
use muster_core::{JobId, Settings, Timestamp};

use super::{Random, Runtimes, cluster, end_all, end_stopped, random_job, start_all};
use crate::builders::job;
use crate::world::World;

/// The first queued job, in order of submission.
fn head(world: &World) -> Option<JobId> {
    world.state.jobs.values().filter(|job| job.is_queued()).map(|job| job.id).min()
}

/// Jobs of all sizes with time limits. The reservation of the first queued job only moves earlier, and the job starts
/// by then.
#[test]
fn backfill_never_delays_a_reservation() {
    let seeds = std::env::var("SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let (mut reserved, mut backfilled) = (0, 0);
    for seed in 0..seeds {
        let counts = queue_with_limits(seed);
        reserved += counts.0;
        backfilled += counts.1;
    }
    assert!(reserved > seeds * 10, "only {reserved} jobs had a reservation");
    assert!(backfilled > seeds * 10, "only {backfilled} jobs backfilled");
}

/// The number of jobs with a reservation, and of backfilled jobs.
fn queue_with_limits(seed: u64) -> (u64, u64) {
    let settings = Settings { preemption: false, fair_share_max: 0, aging_per_minute: 0, ..Settings::default() };
    let mut world = cluster(settings);
    let mut random = Random::new(seed);
    let mut reservations: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let mut runtimes = Runtimes::new();
    let mut backfilled = 0;
    for _ in 0..240 {
        if random.one_in(3) {
            let (job, runtime) = random_job(&mut world, &mut random);
            runtimes.insert(job, runtime);
        }
        let planned = world.plan();
        let head = head(&world);
        for start in &planned.plan.starts {
            backfilled += u64::from(head.is_some_and(|head| head < start.job));
            let late = reservations.get(&start.job).filter(|by| world.now > **by);
            assert_eq!(late, None, "seed {seed}: {} starts too late, at {:?}", start.job, world.now);
        }
        if let Some(head) = head {
            let at = planned.verdicts.reserved_at(head);
            let at = at.unwrap_or_else(|| panic!("seed {seed}: {head} has no reservation"));
            let before = reservations.insert(head, at).unwrap_or(at);
            assert!(at <= before, "seed {seed}: the reservation of {head} moved from {before:?} to {at:?}");
        }
        start_all(&mut world);
        world.tick(MINUTE);
        end_all(&mut world, &runtimes);
    }
    (reservations.len() as u64, backfilled)
}

/// Small jobs without time limits backfill on wrong estimates. A reserved job still starts in time if only revocable
/// jobs are in its way: those that overrun are preempted.
#[test]
fn revocable_backfill_never_delays_a_reservation() {
    let (mut kept, mut revoked) = (0, 0);
    for seed in 0..60 {
        let counts = queue_with_revocable_jobs(seed);
        kept += counts.0;
        revoked += counts.1;
    }
    assert!(kept > 100, "only {kept} reservations were kept");
    assert!(revoked > 30, "only {revoked} revocable jobs were preempted");
}

/// The number of reserved jobs that started in time, and of preempted jobs.
fn queue_with_revocable_jobs(seed: u64) -> (u64, u64) {
    let settings =
        Settings { default_runtime_ms: 5 * MINUTE, fair_share_max: 0, aging_per_minute: 0, ..Settings::default() };
    let mut world = cluster(settings);
    let mut random = Random::new(seed);
    let mut reservations: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    let mut runtimes = Runtimes::new();
    let (mut kept, mut preempted) = (0, 0);
    for _ in 0..240 {
        if random.one_in(4) {
            let (job, runtime) = random_job(&mut world, &mut random);
            runtimes.insert(job, runtime);
        }
        if random.one_in(3) && !world.state.queue.is_empty() {
            let small = job().user(&format!("user-{}", world.state.next_job));
            runtimes.insert(world.submit(small), (1 + random.below(60) as i64) * MINUTE);
        }
        let planned = world.plan();
        for start in &planned.plan.starts {
            let Some(by) = reservations.remove(&start.job) else { continue };
            let late = world.now.since(by);
            assert!(late <= 2 * MINUTE, "seed {seed}: {} starts {late} ms too late", start.job);
            kept += 1;
        }
        let is_bounded =
            |job: &Job| job.attempt().is_none_or(|attempt| attempt.revocable || job.spec.time_limit_ms.is_some());
        if let Some((head, at)) = head(&world).and_then(|head| Some((head, planned.verdicts.reserved_at(head)?)))
            && world.state.jobs.values().all(is_bounded)
        {
            reservations.entry(head).or_insert(at);
        }
        start_all(&mut world);
        world.tick(MINUTE);
        preempted += end_stopped(&mut world).len() as u64;
        end_all(&mut world, &runtimes);
    }
    (kept, preempted)
}
