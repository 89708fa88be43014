//! The figures of a trace replay, computed from a run history.

mod distribution;
mod tenants;
mod timeline;

use serde::Serialize;

use crate::job_log::LoggedJob;
use crate::run_history::{IntervalEnd, RunHistory, RunInterval};

pub use distribution::Distribution;
pub use tenants::TenantFigures;
pub use timeline::{UtilisationBin, utilisation_over_time};

/// The least work in the slowdown of a job: waiting a second does not matter to a job of one second.
const SLOWDOWN_WORK_MS_MIN: i64 = 10_000;
/// The number of bins of the utilisation over time.
const UTILISATION_BINS: usize = 240;
/// Millijoules in a kilowatt-hour are 3.6e9; milliwatts × milliseconds are microjoules.
const MICROJOULES_PER_KWH: f64 = 3.6e12;

/// The figures of one policy on one log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    pub policy: String,
    pub jobs: u64,
    /// Jobs that completed their work.
    pub done: u64,
    /// Jobs that their time limit ended.
    pub timed_out: u64,
    /// Jobs that never ran: infeasible, or never placed.
    pub refused: u64,
    /// From submission to the first start, in seconds.
    pub wait_s: Distribution,
    /// From submission to the end, in seconds.
    pub completion_s: Distribution,
    /// The time from submission to the end divided by the work, with at least 10 s of work; at least 1.
    pub slowdown: Distribution,
    /// From the first submission to the last end, in seconds.
    pub makespan_s: f64,
    /// The fraction of the GPU time from the first to the last submission that was held.
    pub utilisation: f64,
    /// The same until the last end; a few long jobs at the end make it small.
    pub utilisation_to_the_end: f64,
    /// The fraction of the GPU time until the last end that was idle while jobs waited.
    pub idle_while_waiting: f64,
    /// The part of it on nodes with fewer free GPUs than the smallest task of any waiting job needs.
    pub fragmentation: Option<f64>,
    /// GPU-hours held.
    pub gpu_hours: f64,
    /// How often a running job was preempted.
    pub preemptions: u64,
    /// GPU-seconds of work lost to preemption.
    pub lost_gpu_s: f64,
    /// An upper bound, from the power limits of held GPUs. `None` if no limit is known.
    pub energy_kwh: Option<f64>,
    /// Jain's fairness index of the tenants' mean slowdowns: 1 if all are equal, 1/n if one of n tenants has all of
    /// it.
    pub fairness: f64,
    /// Planning rounds.
    pub rounds: u64,
    /// The tenants, by name.
    pub tenants: Vec<TenantFigures>,
    pub utilisation_over_time: Vec<UtilisationBin>,
}

/// The wait and completion of a job, in milliseconds from its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobOutcome {
    /// Until the first start.
    pub wait_ms: i64,
    /// Until the end.
    pub completion_ms: i64,
    pub end: IntervalEnd,
}

/// The outcome of each job, by log index; `None` for jobs that never ran.
pub fn job_outcomes(jobs: &[LoggedJob], history: &RunHistory) -> Vec<Option<JobOutcome>> {
    let mut outcomes: Vec<Option<JobOutcome>> = vec![None; jobs.len()];
    for interval in &history.intervals {
        let submit_ms = jobs[interval.log_index].submit_ms;
        let outcome = outcomes[interval.log_index].get_or_insert(JobOutcome {
            wait_ms: interval.from_ms - submit_ms,
            completion_ms: 0,
            end: interval.end,
        });
        outcome.completion_ms = interval.to_ms - submit_ms;
        outcome.end = interval.end;
    }
    outcomes
}

/// The completion time of a job divided by its work.
pub fn slowdown(job: &LoggedJob, outcome: &JobOutcome) -> f64 {
    (outcome.completion_ms as f64 / job.work_ms.max(SLOWDOWN_WORK_MS_MIN) as f64).max(1.0)
}

/// Computes the figures of one policy.
pub fn figures(policy: &str, jobs: &[LoggedJob], history: &RunHistory) -> Figures {
    let outcomes = job_outcomes(jobs, history);
    let known = || jobs.iter().zip(&outcomes).filter_map(|(job, outcome)| Some((job, outcome.as_ref()?)));
    let distribution =
        |value: &dyn Fn((&LoggedJob, &JobOutcome)) -> f64| Distribution::from_values(known().map(value).collect());
    let span = ReplaySpan::of(jobs, history);
    let held = |until_ms| held_gpu_ms(&history.intervals, until_ms);
    let fraction = |gpu_ms: f64, ms: i64| round_to_4_decimals(gpu_ms / (f64::from(history.gpus) * ms.max(1) as f64));
    let count = |end: IntervalEnd| known().filter(|(_, outcome)| outcome.end == end).count() as u64;
    let preempted = || history.intervals.iter().filter(|interval| interval.end == IntervalEnd::Preempted);
    let tenants = tenants::tenant_figures(jobs, &outcomes, history);
    Figures {
        policy: policy.to_string(),
        jobs: jobs.len() as u64,
        done: count(IntervalEnd::Done),
        timed_out: count(IntervalEnd::TimeLimit),
        refused: history.refused.len() as u64,
        wait_s: distribution(&|(_, outcome)| outcome.wait_ms as f64 / 1e3),
        completion_s: distribution(&|(_, outcome)| outcome.completion_ms as f64 / 1e3),
        slowdown: distribution(&|(job, outcome)| slowdown(job, outcome)),
        makespan_s: round_to_4_decimals(span.to_end_ms() as f64 / 1e3),
        utilisation: fraction(held(span.last_submit_ms), span.to_last_submit_ms()),
        utilisation_to_the_end: fraction(held(span.last_end_ms), span.to_end_ms()),
        idle_while_waiting: fraction(history.idle.while_waiting_gpu_ms as f64, span.to_end_ms()),
        fragmentation: history.idle.fragmented_gpu_ms.map(|gpu_ms| fraction(gpu_ms as f64, span.to_end_ms())),
        gpu_hours: round_to_4_decimals(held(span.last_end_ms) / 3.6e6),
        preemptions: preempted().count() as u64,
        lost_gpu_s: round_to_4_decimals(preempted().map(lost_gpu_ms).sum::<f64>() / 1e3),
        energy_kwh: energy_kwh(&history.intervals),
        fairness: round_to_4_decimals(tenants::jain_index(&tenants)),
        rounds: history.rounds,
        tenants,
        utilisation_over_time: utilisation_over_time(jobs, history, UTILISATION_BINS),
    }
}

/// The first submission, the last submission and the last end.
#[derive(Debug, Clone, Copy)]
struct ReplaySpan {
    first_submit_ms: i64,
    last_submit_ms: i64,
    last_end_ms: i64,
}

impl ReplaySpan {
    fn of(jobs: &[LoggedJob], history: &RunHistory) -> ReplaySpan {
        let first_ms = jobs.first().map_or(0, |job| job.submit_ms);
        let last_submit_ms = jobs.last().map_or(first_ms, |job| job.submit_ms);
        let last_end_ms = history.intervals.iter().map(|interval| interval.to_ms).fold(first_ms, i64::max);
        ReplaySpan { first_submit_ms: first_ms, last_submit_ms, last_end_ms }
    }

    fn to_last_submit_ms(self) -> i64 {
        self.last_submit_ms - self.first_submit_ms
    }

    fn to_end_ms(self) -> i64 {
        self.last_end_ms - self.first_submit_ms
    }
}

/// The GPU time held until `until_ms`, in GPUs × milliseconds.
fn held_gpu_ms(intervals: &[RunInterval], until_ms: i64) -> f64 {
    let held = |interval: &RunInterval| {
        let ms = (interval.to_ms.min(until_ms) - interval.from_ms).max(0);
        u128::from(interval.gpu_milli) * u128::from(ms.unsigned_abs())
    };
    intervals.iter().map(held).sum::<u128>() as f64 / 1e3
}

/// The GPU time of lost work, in GPUs × milliseconds.
fn lost_gpu_ms(interval: &RunInterval) -> f64 {
    (interval.duration_ms() - interval.useful_ms) as f64 * interval.gpu_milli as f64 / 1e3
}

fn energy_kwh(intervals: &[RunInterval]) -> Option<f64> {
    let microjoules =
        |interval: &RunInterval| u128::from(interval.milliwatts) * u128::from(interval.duration_ms().unsigned_abs());
    let sum: u128 = intervals.iter().map(microjoules).sum();
    (sum > 0).then(|| round_to_4_decimals(sum as f64 / MICROJOULES_PER_KWH))
}

/// Rounds to four decimals; adding 0.0 turns -0 into 0.
pub(crate) fn round_to_4_decimals(value: f64) -> f64 {
    (value * 1e4).round() / 1e4 + 0.0
}
