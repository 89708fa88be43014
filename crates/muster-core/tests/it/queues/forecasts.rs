//! The accuracy of forecasts.

use std::collections::BTreeMap;

use muster_core::facts::command::{Command, JobChange};
use muster_core::objects::start_range::StartRange;
use muster_core::planner::forecast;
use muster_core::time::MINUTE;
use muster_core::{JobId, Settings};

use super::{Random, Runtimes, cluster, end_all, end_stopped, random_job, start_all};

/// Jobs of all sizes, with and without time limits and with random runtimes. At least 80 % start within their first
/// range.
#[test]
fn four_in_five_jobs_start_within_their_first_range() {
    let (mut inside, mut forecasts) = (0, 0);
    for seed in 0..24 {
        let counts = queue_with_forecasts(seed);
        inside += counts.0;
        forecasts += counts.1;
    }
    println!("{inside} of {forecasts} starts were inside their range");
    assert!(forecasts > 1_000, "only {forecasts} starts had a forecast");
    assert!(inside * 100 >= forecasts * 80, "{inside} of {forecasts} starts were inside their range");
}

/// The number of starts inside their first range, and of all starts with a range.
fn queue_with_forecasts(seed: u64) -> (u64, u64) {
    let mut world = cluster(Settings { default_runtime_ms: 20 * MINUTE, ..Settings::default() });
    let mut random = Random::new(seed);
    let mut runtimes = Runtimes::new();
    let (mut inside, mut forecasts) = (0, 0);
    for minute in 0..600 {
        // Busy and quiet periods alternate.
        if random.one_in(if minute / 100 % 2 == 0 { 3 } else { 8 }) {
            let (job, runtime) = random_job(&mut world, &mut random);
            runtimes.insert(job, runtime);
            if random.one_in(3) {
                let change = JobChange { time_limit_ms: Some(None), ..JobChange::default() };
                world.run(Command::ChangeJob { job, change }).unwrap();
            }
        }
        let jobs = world.state.jobs.values();
        let ranges: BTreeMap<JobId, StartRange> =
            jobs.filter_map(|job| Some((job.id, *job.first_forecast.clone()?))).collect();
        for start in &world.plan().plan.starts {
            if let Some(range) = ranges.get(&start.job) {
                inside += u64::from(range.from <= world.now && world.now <= range.to);
                forecasts += 1;
            }
        }
        start_all(&mut world);
        if minute % 2 == 0 {
            // An excerpt of the queue is a valid state to forecast from.
            forecast(&world.state.excerpt(2), world.now, 10);
            let ranges = forecast(&world.state, world.now, 100).ranges().collect();
            world.run(Command::NoteForecast { ranges }).unwrap();
        }
        world.tick(MINUTE);
        end_all(&mut world, &runtimes);
        end_stopped(&mut world);
    }
    (inside, forecasts)
}
