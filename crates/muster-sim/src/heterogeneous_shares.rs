//! Heterogeneity-aware fair shares: equal shares of several kinds of GPUs with and without knowledge of how fast
//! each job is on each kind.
//!
//! The rules are those of the published runs (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling Policies
//! for Deep Learning Workloads", OSDI'20): jobs of one GPU arrive as a Poisson process; on the fastest kind they
//! last 10^1.5 to 10^3 minutes four times in five and 10^3 to 10^4 minutes otherwise. Every six minutes (a round)
//! jobs are assigned again. The result is the mean completion time of jobs 4,000 to 5,000. Every live job accrues
//! the mean of what all jobs receive in a round (its deficit); the jobs with the largest deficits run. The blind
//! policy counts time, the aware policy counts work relative to an average GPU.

mod gavel;

pub use gavel::{GavelTrace, MixedRow};

use crate::random::Random;

/// The number of GPU kinds.
pub const GPU_KINDS: usize = 3;
/// The length of a round in seconds.
const ROUND_S: f64 = 360.0;
/// The jobs whose completion times are measured.
const MEASURED_JOBS: std::ops::Range<usize> = 4_000..5_000;

/// A type of job: its speed on each kind of GPU, relative to the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobType {
    pub speeds: [f64; GPU_KINDS],
}

/// A policy for shares of GPUs of several kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharePolicy {
    /// Equal time, on random kinds.
    HeterogeneityBlind,
    /// Equal relative work; each kind goes to the jobs that gain most from it.
    HeterogeneityAware,
}

struct ArrivedJob {
    arrives_s: f64,
    job_type: JobType,
    remaining_s: f64,
    deficit: f64,
    number: usize,
}

/// The mean completion time in hours, for a number of GPUs of each kind and an arrival rate.
pub fn mean_completion_hours(
    types: &[JobType],
    gpus: [usize; GPU_KINDS],
    jobs_per_hour: f64,
    seed: u64,
    policy: SharePolicy,
) -> f64 {
    let mut random = Random(seed);
    let mut arrivals = arrivals(types, jobs_per_hour, &mut random);
    let (mut live, mut now_s, mut sum_s, mut unfinished) = (Vec::new(), 0.0, 0.0, MEASURED_JOBS.len());
    while unfinished > 0 {
        while let Some(job) = arrivals.pop_if(|job| job.arrives_s <= now_s) {
            live.push(job);
        }
        let kinds = match policy {
            SharePolicy::HeterogeneityBlind => assign_blindly(&mut live, gpus, &mut random),
            SharePolicy::HeterogeneityAware => assign_by_advantage(&mut live, gpus),
        };
        run_round(&mut live, &kinds, policy);
        live.retain(|job| {
            let has_ended = job.remaining_s <= 0.0;
            if has_ended && MEASURED_JOBS.contains(&job.number) {
                // `remaining_s` is now the time from the end of the round to the end of the job, below zero.
                sum_s += now_s + ROUND_S + job.remaining_s - job.arrives_s;
                unfinished -= 1;
            }
            !has_ended
        });
        now_s += ROUND_S;
    }
    sum_s / MEASURED_JOBS.len() as f64 / 3_600.0
}

/// The arrivals, in reverse order of time.
fn arrivals(types: &[JobType], jobs_per_hour: f64, random: &mut Random) -> Vec<ArrivedJob> {
    let mut at_s = 0.0;
    let mut jobs: Vec<ArrivedJob> = (0..MEASURED_JOBS.end + 200)
        .map(|number| {
            at_s += random.exponential(3_600.0 / jobs_per_hour);
            let exponent = match random.below(5) {
                0 => 3.0 + random.unit_interval(),
                _ => 1.5 + 1.5 * random.unit_interval(),
            };
            let left_s = 10f64.powf(exponent) * 60.0;
            ArrivedJob { arrives_s: at_s, job_type: *random.choose(types), remaining_s: left_s, deficit: 0.0, number }
        })
        .collect();
    jobs.reverse();
    jobs
}

/// Sorts the jobs by deficit, largest first, and returns how many run.
fn sort_by_deficit(live: &mut [ArrivedJob], gpus: [usize; GPU_KINDS]) -> usize {
    live.sort_by(|one, other| other.deficit.total_cmp(&one.deficit).then(one.number.cmp(&other.number)));
    live.len().min(gpus.iter().sum())
}

/// A random kind of GPU for each running job.
fn assign_blindly(live: &mut [ArrivedJob], gpus: [usize; GPU_KINDS], random: &mut Random) -> Vec<usize> {
    let running = sort_by_deficit(live, gpus);
    let mut kinds: Vec<usize> = (0..GPU_KINDS).flat_map(|kind| std::iter::repeat_n(kind, gpus[kind])).collect();
    for index in 0..running {
        let other = index + random.below((kinds.len() - index) as u64) as usize;
        kinds.swap(index, other);
    }
    kinds.truncate(running);
    kinds
}

/// A kind of GPU for each running job. The job that would lose most by its second-best kind chooses first.
fn assign_by_advantage(live: &mut [ArrivedJob], gpus: [usize; GPU_KINDS]) -> Vec<usize> {
    let running = sort_by_deficit(live, gpus);
    let mut free = gpus;
    let mut kinds = vec![0; running];
    let mut unassigned: Vec<usize> = (0..running).collect();
    while !unassigned.is_empty() {
        let mut preferences: Vec<(f64, usize, usize)> =
            unassigned.iter().map(|job| best_kind_advantage(&live[*job], &free, *job)).collect();
        preferences.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let before = free;
        unassigned.clear();
        for (_, job, kind) in preferences {
            // When a kind is used up, the preferences of the remaining jobs are computed again.
            let is_unchanged = (0..GPU_KINDS).all(|kind| (free[kind] > 0) == (before[kind] > 0));
            if is_unchanged {
                free[kind] -= 1;
                kinds[job] = kind;
            } else {
                unassigned.push(job);
            }
        }
    }
    kinds
}

/// What a job loses by its second-best free kind, its number, and its best kind.
fn best_kind_advantage(job: &ArrivedJob, free: &[usize; GPU_KINDS], number: usize) -> (f64, usize, usize) {
    let mut kinds: Vec<(f64, usize)> =
        (0..GPU_KINDS).filter(|kind| free[*kind] > 0).map(|kind| (job.job_type.normalised_speed(kind), kind)).collect();
    kinds.sort_by(|one, other| other.0.total_cmp(&one.0));
    let second = kinds.get(1).map_or(0.0, |(speed, _)| *speed);
    kinds.first().map_or((0.0, number, 0), |(speed, kind)| (speed - second, number, *kind))
}

impl JobType {
    /// The speed on a kind, relative to the mean speed.
    fn normalised_speed(&self, kind: usize) -> f64 {
        let mean = self.speeds.iter().sum::<f64>() / GPU_KINDS as f64;
        self.speeds[kind] / mean.max(f64::MIN_POSITIVE)
    }
}

/// Runs one round: running jobs work, and every live job accrues the mean of what they received.
fn run_round(live: &mut [ArrivedJob], kinds: &[usize], policy: SharePolicy) {
    let mut total_received = 0.0;
    for (job, kind) in live.iter_mut().zip(kinds) {
        let received = match policy {
            SharePolicy::HeterogeneityBlind => 1.0,
            SharePolicy::HeterogeneityAware => job.job_type.normalised_speed(*kind),
        };
        job.deficit -= received;
        total_received += received;
        let (speed, left_s) = (job.job_type.speeds[*kind], job.remaining_s);
        job.remaining_s -= speed * ROUND_S;
        if job.remaining_s <= 0.0 {
            // From here on the time from the end of the round to the end of the job, below zero.
            job.remaining_s = left_s / speed.max(f64::MIN_POSITIVE) - ROUND_S;
        }
    }
    let mean = total_received / live.len().max(1) as f64;
    live.iter_mut().for_each(|job| job.deficit += mean);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_unchanged(speed: f64) -> JobType {
        JobType { speeds: [speed; GPU_KINDS] }
    }

    #[test]
    fn blind_and_aware_shares_agree_on_identical_gpus() {
        let run = |policy| mean_completion_hours(&[is_unchanged(1.0)], [36; GPU_KINDS], 3.0, 1, policy);
        let (blind, aware) = (run(SharePolicy::HeterogeneityBlind), run(SharePolicy::HeterogeneityAware));
        assert!((blind / aware - 1.0).abs() < 0.01, "{blind} {aware}");
    }

    #[test]
    fn each_gpu_kind_goes_to_the_job_that_gains_most() {
        let job = |speeds, number| ArrivedJob {
            arrives_s: 0.0,
            job_type: JobType { speeds },
            remaining_s: 1.0,
            deficit: 0.0,
            number,
        };
        let mut live = vec![job([1.0, 0.9, 0.8], 0), job([1.0, 0.2, 0.1], 1), job([1.0, 0.5, 0.1], 2)];
        assert_eq!(assign_by_advantage(&mut live, [1, 1, 1]), [2, 0, 1]);
    }

    #[test]
    fn a_lone_job_finishes_after_its_work() {
        let mut live = vec![ArrivedJob {
            arrives_s: 0.0,
            job_type: is_unchanged(2.0),
            remaining_s: 100.0,
            deficit: 0.0,
            number: 0,
        }];
        let kinds = assign_by_advantage(&mut live, [1, 1, 1]);
        run_round(&mut live, &kinds, SharePolicy::HeterogeneityAware);
        assert_eq!(live[0].remaining_s, 50.0 - ROUND_S);
    }
}
