//! Small logs with results worked out by hand, and laws that hold for any log.

use muster_core::objects::settings::Objective;
use muster_core::time::SECOND;

use super::*;
use crate::baseline_replay::QueuePolicy;
use crate::baseline_replay::policies::{Easy, Fifo, Las, Sjf, Srsf, Srtf, Tiresias};
use crate::figures::{Figures, figures, job_outcomes};
use crate::job_log::GangShape;
use crate::random::Random;

/// Jobs by GPUs, submission and work, in seconds.
fn jobs(jobs: &[(u32, i64, i64)]) -> Vec<LoggedJob> {
    let job = |(gpus, submit_s, work_s): &(u32, i64, i64)| {
        LoggedJob::new("", submit_s * SECOND, work_s * SECOND, GangShape::Total(*gpus))
    };
    jobs.iter().map(job).collect()
}

fn replay_on_cluster(jobs: &[LoggedJob], spec: &str, assumptions: &ReplayAssumptions) -> RunHistory {
    replay_trace(jobs, &ReplayCluster::parse(spec).unwrap(), assumptions, &mut |_| ())
}

/// Waits and ends of all jobs, in seconds.
fn waits_and_ends_s(jobs: &[LoggedJob], history: &RunHistory) -> Vec<(i64, i64)> {
    let outcomes = job_outcomes(jobs, history);
    let wait_and_end = |(job, outcome): (&LoggedJob, &Option<crate::figures::JobOutcome>)| {
        let outcome = outcome.unwrap();
        (outcome.wait_ms / SECOND, (job.submit_ms + outcome.completion_ms) / SECOND)
    };
    jobs.iter().zip(&outcomes).map(wait_and_end).collect()
}

/// A long job on half of the node, a longer one on all of it, a short one on half and a shorter one on all.
fn four_jobs() -> Vec<LoggedJob> {
    jobs(&[(4, 0, 100), (8, 10, 200), (4, 20, 50), (8, 30, 10)])
}

#[test]
fn waits_and_figures_match_a_hand_computed_schedule() {
    // The second waits for the first; the third backfills because it ends before; the last starts after the second.
    let history = replay_on_cluster(
        &four_jobs(),
        "1x8xV100",
        &ReplayAssumptions { are_durations_known: true, ..ReplayAssumptions::default() },
    );
    assert_eq!(waits_and_ends_s(&four_jobs(), &history), [(0, 100), (90, 300), (0, 70), (270, 310)]);
    let figures = figures("muster", &four_jobs(), &history);
    assert_eq!((figures.done, figures.preemptions, figures.makespan_s), (4, 0, 310.0));
    assert_eq!((figures.wait_s.mean, figures.wait_s.p50, figures.wait_s.max), (90.0, 0.0, 270.0));
    // (100 + 290 + 50 + 280) / 4.
    assert_eq!(figures.completion_s.mean, 180.0);
    // 100 / 100, 290 / 200, 50 / 50, 280 / 10.
    assert_eq!((figures.slowdown.mean, figures.slowdown.max), (7.8625, 28.0));
    // 4 × 30 + 4 × 10 of 8 × 30 until the last submission; 400 + 1,600 + 200 + 80 of 8 × 310 in total.
    assert_eq!((figures.utilisation, figures.utilisation_to_the_end), (0.6667, 0.9194));
    // Four GPUs were idle from 10 to 20 and from 70 to 100 while jobs waited for eight: all of that is fragmentation.
    assert_eq!((figures.idle_while_waiting, figures.fragmentation), (0.0645, Some(0.0645)));
    // 2,280 GPU-seconds at 300 W.
    assert_eq!(figures.energy_kwh, Some(0.19));
}

/// A job of high priority is submitted when the other has run for 50 s.
fn preempted_by_priority(checkpoint_every_ms: Option<i64>) -> (Vec<LoggedJob>, RunHistory) {
    let mut jobs = jobs(&[(8, 0, 100), (8, 50, 10)]);
    jobs[1].priority = Some(5_000);
    let history = replay_on_cluster(
        &jobs,
        "1x8xV100",
        &ReplayAssumptions { checkpoint_every_ms, ..ReplayAssumptions::default() },
    );
    (jobs, history)
}

#[test]
fn a_preempted_job_resumes_from_its_last_checkpoint() {
    let (jobs, history) = preempted_by_priority(Some(20 * SECOND));
    // Its last checkpoint is at 40 s, and it resumes at 60.
    assert_eq!(waits_and_ends_s(&jobs, &history), [(0, 120), (0, 60)]);
    let figures = figures("muster", &jobs, &history);
    assert_eq!((figures.preemptions, figures.lost_gpu_s), (1, 80.0));
}

#[test]
fn a_preempted_job_without_checkpoints_starts_over() {
    let (jobs, history) = preempted_by_priority(None);
    assert_eq!(waits_and_ends_s(&jobs, &history), [(0, 160), (0, 60)]);
    assert_eq!(figures("muster", &jobs, &history).lost_gpu_s, 400.0);
}

#[test]
fn a_time_limit_ends_a_job() {
    let mut jobs = jobs(&[(8, 0, 100), (8, 5, 10)]);
    jobs[0].time_limit_ms = Some(60 * SECOND);
    let history = replay_on_cluster(&jobs, "1x8xV100", &ReplayAssumptions::default());
    assert_eq!(waits_and_ends_s(&jobs, &history), [(0, 60), (55, 70)]);
    let figures = figures("muster", &jobs, &history);
    assert_eq!((figures.done, figures.timed_out, figures.preemptions), (1, 1, 0));
}

#[test]
fn a_job_that_fits_on_no_node_is_refused_and_counted() {
    let mut jobs = jobs(&[(8, 0, 10), (17, 1, 10)]);
    jobs.push(LoggedJob { gpus: GangShape::Tasks { count: 1, each: 9 }, ..jobs[0].clone() });
    let history = replay_on_cluster(&jobs, "2x8xV100", &ReplayAssumptions::default());
    assert_eq!(history.refused.iter().map(|(job, _)| *job).collect::<Vec<_>>(), [1, 2]);
    let figures = figures("muster", &jobs, &history);
    assert_eq!((figures.jobs, figures.done, figures.refused), (3, 1, 2));
}

#[test]
fn a_cluster_is_sized_for_the_log() {
    // The demand is 16 GPUs for 4 and for 6 of the 100 s in which jobs are submitted.
    assert_eq!(ReplayCluster::spec_for_jobs(&jobs(&[(8, 0, 200), (8, 0, 4), (1, 100, 1)])), "1x8xV100");
    assert_eq!(ReplayCluster::spec_for_jobs(&jobs(&[(8, 0, 200), (8, 0, 6), (1, 100, 1)])), "2x8xV100");
    assert_eq!(ReplayCluster::spec_for_jobs(&jobs(&[(40, 0, 1), (1, 10_000, 1)])), "5x8xV100", "the largest job fits");
    assert_eq!(
        ReplayCluster::spec_for_jobs(&jobs(&[(8, 0, 10), (16, 0, 20)])),
        "3x8xV100",
        "all jobs are submitted at once"
    );
    let two_groups = ReplayCluster::parse("2x8xV100, 1x4xH100").unwrap();
    assert_eq!((two_groups.gpus(), two_groups.uniform_node_gpus()), (20, None));
    assert_eq!(ReplayCluster::parse("4xH100"), ReplayCluster::parse("4x8xH100"));
    for spec in ["", "8", "8x", "0x8xV100", "2x65xV100", "x8xV100", "2x8x"] {
        assert!(ReplayCluster::parse(spec).is_err(), "{spec}");
    }
}

/// Random jobs of three tenants, some with a time limit, a priority or checkpoints.
fn random_jobs(random: &mut Random) -> Vec<LoggedJob> {
    let mut submit_ms = 0;
    let mut job = |_| {
        submit_ms += random.between(0, 90) * SECOND;
        let gpus = *random.choose(&[1, 1, 1, 2, 4, 8, 16]);
        let shape =
            if random.chance_per_mille(200) { GangShape::Tasks { count: 2, each: 2 } } else { GangShape::Total(gpus) };
        let mut job = LoggedJob::new("", submit_ms, random.between(1, 900) * SECOND, shape);
        job.tenant = random.choose(&["Red Team", "red-team", "blue"]).to_string();
        job.time_limit_ms = random.chance_per_mille(300).then(|| random.between(60, 1_200) * SECOND);
        job.priority = random.chance_per_mille(200).then(|| random.between(0, 900) as u32);
        job.checkpoint_every_ms = random.chance_per_mille(400).then(|| random.between(10, 300) * SECOND);
        job
    };
    (0..80).map(&mut job).collect()
}

/// Every job ends once, no job starts before its submission, no GPU is held twice, and GPU time is either work or
/// lost.
fn check_history(jobs: &[LoggedJob], history: &RunHistory, figures: &Figures) {
    let mut ends = vec![0; jobs.len()];
    let mut useful_ms = vec![0; jobs.len()];
    history.refused.iter().for_each(|(job, _)| ends[*job] += 1);
    for interval in &history.intervals {
        ends[interval.log_index] += usize::from(interval.end != IntervalEnd::Preempted);
        useful_ms[interval.log_index] += interval.useful_ms;
        assert!(jobs[interval.log_index].submit_ms <= interval.from_ms && interval.from_ms <= interval.to_ms);
        assert!(interval.useful_ms <= interval.duration_ms());
    }
    assert!(ends.iter().all(|ends| *ends == 1), "{ends:?}");
    for (job, outcome) in job_outcomes(jobs, history).iter().enumerate() {
        let done = outcome.is_some_and(|outcome| outcome.end == IntervalEnd::Done);
        assert!(!done || useful_ms[job] == jobs[job].work_ms, "{job}: {} ms", useful_ms[job]);
    }
    let gpus = |job: usize| f64::from(jobs[job].gpus.total());
    let work_gpu_s: f64 = (0..jobs.len()).map(|job| useful_ms[job] as f64 / 1e3 * gpus(job)).sum();
    let held_gpu_s = figures.gpu_hours * 3_600.0;
    assert!((held_gpu_s - work_gpu_s - figures.lost_gpu_s).abs() < 1.0, "{held_gpu_s} {work_gpu_s}");
    let tenant_gpu_hours: f64 = figures.tenants.iter().map(|tenant| tenant.gpu_hours).sum();
    assert!((figures.gpu_hours - tenant_gpu_hours).abs() < 0.01);
    assert_eq!(figures.done + figures.timed_out + figures.refused, figures.jobs);
    let fractions = figures.utilisation_over_time.iter().map(|bin| bin.utilisation);
    let fractions = fractions.chain([figures.utilisation, figures.utilisation_to_the_end]);
    fractions.for_each(|fraction| assert!((0.0..=1.0).contains(&fraction), "{fraction}"));
    let idle = figures.idle_while_waiting;
    assert!(
        figures.fragmentation.is_none_or(|fraction| fraction <= idle) && figures.utilisation_to_the_end + idle <= 1.001
    );
}

#[test]
fn every_job_ends_once_and_gpu_time_adds_up() {
    let mut preemptions = 0;
    for seed in 0..12 {
        let jobs = random_jobs(&mut Random(seed));
        for objective in [Objective::Fair, Objective::Fast] {
            let assumptions =
                ReplayAssumptions { objective, are_durations_known: seed % 3 == 0, ..ReplayAssumptions::default() };
            let history = replay_on_cluster(&jobs, "2x8xV100", &assumptions);
            let figures = figures("muster", &jobs, &history);
            check_history(&jobs, &history, &figures);
            preemptions += figures.preemptions;
        }
    }
    assert!(preemptions > 0, "no job was preempted, so preemption was not tested");
}

#[test]
fn baseline_policies_keep_the_same_laws() {
    let cluster = ReplayCluster::parse("4x4xV100").unwrap();
    for seed in 0..4 {
        let jobs = random_jobs(&mut Random(seed));
        let policies: [(&str, Box<dyn QueuePolicy>); 7] = [
            ("fifo", Box::new(Fifo)),
            ("sjf", Box::new(Sjf)),
            ("srtf", Box::new(Srtf)),
            ("srsf", Box::new(Srsf)),
            ("tiresias", Box::new(Tiresias::default())),
            ("las", Box::new(Las)),
            ("easy", Box::new(Easy)),
        ];
        for (name, mut policy) in policies {
            let history = replay_with_policy(&jobs, &cluster, &mut *policy, &mut |_| ()).unwrap();
            let figures = figures(name, &jobs, &history);
            check_history(&jobs, &history, &figures);
            assert_eq!(figures.fragmentation.is_none(), name == "tiresias", "{name}");
        }
    }
}

#[test]
fn srtf_gives_the_waits_of_the_baseline_replay() {
    let cluster = ReplayCluster::parse("1x8xV100").unwrap();
    let history = replay_with_policy(&four_jobs(), &cluster, &mut Srtf, &mut |_| ()).unwrap();
    assert_eq!(waits_and_ends_s(&four_jobs(), &history), [(0, 110), (100, 310), (0, 80), (0, 40)]);
    assert_eq!(figures("srtf", &four_jobs(), &history).preemptions, 2);
    let two_kinds = ReplayCluster::parse("1x8xV100,1x4xV100").unwrap();
    let refused = replay_with_policy(&four_jobs(), &two_kinds, &mut Srtf, &mut |_| ());
    assert_eq!(refused, Err(BaselineUnsupported::UnequalNodes));
}

#[test]
fn the_same_log_gives_identical_figures() {
    let jobs = random_jobs(&mut Random(7));
    let run = || {
        let history = replay_on_cluster(&jobs, "2x8xV100", &ReplayAssumptions::default());
        muster_json::to_string(&figures("muster", &jobs, &history))
    };
    assert_eq!(run(), run());
}

#[test]
fn idle_gpus_count_only_while_jobs_wait() {
    let cluster = ReplayCluster::parse("2x4xV100").unwrap();
    let (one, other) = (cluster.nodes()[0].0.clone(), cluster.nodes()[1].0.clone());
    let task = |node: &muster_core::NodeId, gpus: &[u8]| PlacedTask {
        rank: 0,
        group: 0,
        node: node.clone(),
        gpus: gpus.to_vec(),
        share: None,
    };
    let mut occupancy = GpuOccupancy::new(&cluster);
    occupancy.allocate(JobId::single(1), &[task(&one, &[0, 1, 2]), task(&other, &[0, 1])]);
    occupancy.record_idle(0);
    occupancy.add_waiting(4);
    occupancy.add_waiting(2);
    // No job waited for 10 s. Then one idle GPU was fragmented, and the smaller job could use two.
    occupancy.record_idle(10 * SECOND);
    occupancy.remove_waiting(2);
    // From 30 to 40 no idle GPU is usable for the job that needs four.
    occupancy.record_idle(30 * SECOND);
    occupancy.release(JobId::single(1));
    occupancy.record_idle(40 * SECOND);
    let gpu_s = |gpu_ms: u128| gpu_ms / SECOND as u128;
    let free = occupancy.idle_gpu_time();
    assert_eq!(gpu_s(free.while_waiting_gpu_ms), 3 * 20 + 3 * 10);
    assert_eq!(free.fragmented_gpu_ms.map(gpu_s), Some(20 + 3 * 10));
    // All GPUs are idle now and usable.
    occupancy.record_idle(50 * SECOND);
    assert_eq!(occupancy.idle_gpu_time().fragmented_gpu_ms.map(gpu_s), Some(50));
}
