//! What a history comes to, in figures.

mod spread;
mod tenants;
mod timeline;

use serde::Serialize;

use crate::history::{End, History, Stretch};
use crate::jobs::LoggedJob;

pub use spread::Spread;
pub use tenants::TenantFigures;
pub use timeline::{Bin, utilisation};

/// Slowdowns of shorter jobs count as if they worked this long: a second of waiting is no disaster for one of a second.
const SLOWDOWN_LEAST_MS: i64 = 10_000;
/// Into how many parts the time is cut to tell utilisation over time.
const BINS: usize = 240;
/// Millijoules in a kilowatt-hour are 3.6e9; milliwatts × milliseconds are microjoules.
const MICROJOULES_PER_KWH: f64 = 3.6e12;

/// The figures of one policy on one log.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Which policy.
    pub policy: String,
    /// Jobs of the log.
    pub jobs: u64,
    /// Jobs whose work was done.
    pub done: u64,
    /// Jobs that their time limit ended.
    pub timed_out: u64,
    /// Jobs that never ran: no node could hold them, or there was never room.
    pub refused: u64,
    /// From submission to the first start, in seconds.
    pub wait_s: Spread,
    /// From submission to the end, in seconds.
    pub completion_s: Spread,
    /// From submission to the end in times the work, of which at least 10 s are counted; at least 1.
    pub slowdown: Spread,
    /// From the first submission to the last end, in seconds.
    pub makespan_s: f64,
    /// GPU-time held from the first submission to the last, of all there was.
    pub utilisation: f64,
    /// The same until the last end: a few long jobs at the end make it small.
    pub utilisation_to_the_end: f64,
    /// GPU-time that was free while someone waited, of all there was until the last end.
    pub idle_while_waiting: f64,
    /// The part of it on nodes with fewer free GPUs than the smallest task of anyone who waited needed.
    pub fragmentation: Option<f64>,
    /// GPU-hours held.
    pub gpu_hours: f64,
    /// How often a running job had to give way.
    pub preemptions: u64,
    /// GPU-seconds of work that were lost by that.
    pub lost_gpu_s: f64,
    /// A bound: the power limits of GPUs while they were held. Nothing where no limit is known.
    pub energy_kwh: Option<f64>,
    /// Jain's index of the tenants' mean slowdowns: 1 if all are alike, one by their number if one alone has all of it.
    pub fairness: f64,
    /// Rounds of planning.
    pub rounds: u64,
    /// The tenants, in order.
    pub tenants: Vec<TenantFigures>,
    /// Utilisation over time.
    pub utilisation_over_time: Vec<Bin>,
}

/// What a job had of it, in milliseconds from its submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// Until its first start.
    pub wait_ms: i64,
    /// Until its end.
    pub completion_ms: i64,
    /// How it ended.
    pub end: End,
}

/// What each job had of it, by its place in the log; nothing for who never ran.
pub fn fates(jobs: &[LoggedJob], history: &History) -> Vec<Option<Fate>> {
    let mut fates: Vec<Option<Fate>> = vec![None; jobs.len()];
    for stretch in &history.stretches {
        let submit_ms = jobs[stretch.job].submit_ms;
        let fate = fates[stretch.job].get_or_insert(Fate {
            wait_ms: stretch.from_ms - submit_ms,
            completion_ms: 0,
            end: stretch.end,
        });
        fate.completion_ms = stretch.to_ms - submit_ms;
        fate.end = stretch.end;
    }
    fates
}

/// A job's time in times its work.
pub fn slowdown(job: &LoggedJob, fate: &Fate) -> f64 {
    (fate.completion_ms as f64 / job.work_ms.max(SLOWDOWN_LEAST_MS) as f64).max(1.0)
}

/// All figures.
pub fn figures(policy: &str, jobs: &[LoggedJob], history: &History) -> Figures {
    let fates = fates(jobs, history);
    let known = || jobs.iter().zip(&fates).filter_map(|(job, fate)| Some((job, fate.as_ref()?)));
    let spread = |of: &dyn Fn((&LoggedJob, &Fate)) -> f64| Spread::of(known().map(of).collect());
    let span = Span::of(jobs, history);
    let held = |until_ms| held_gpu_ms(&history.stretches, until_ms);
    let part = |gpu_ms: f64, ms: i64| rounded(gpu_ms / (f64::from(history.gpus) * ms.max(1) as f64));
    let count = |end: End| known().filter(|(_, fate)| fate.end == end).count() as u64;
    let displaced = || history.stretches.iter().filter(|stretch| stretch.end == End::Displaced);
    let tenants = tenants::of(jobs, &fates, history);
    Figures {
        policy: policy.to_string(),
        jobs: jobs.len() as u64,
        done: count(End::Done),
        timed_out: count(End::TimeLimit),
        refused: history.refused.len() as u64,
        wait_s: spread(&|(_, fate)| fate.wait_ms as f64 / 1e3),
        completion_s: spread(&|(_, fate)| fate.completion_ms as f64 / 1e3),
        slowdown: spread(&|(job, fate)| slowdown(job, fate)),
        makespan_s: rounded(span.to_end_ms() as f64 / 1e3),
        utilisation: part(held(span.last_submit_ms), span.to_last_submit_ms()),
        utilisation_to_the_end: part(held(span.last_end_ms), span.to_end_ms()),
        idle_while_waiting: part(history.free.while_waiting_gpu_ms as f64, span.to_end_ms()),
        fragmentation: history.free.fragments_gpu_ms.map(|gpu_ms| part(gpu_ms as f64, span.to_end_ms())),
        gpu_hours: rounded(held(span.last_end_ms) / 3.6e6),
        preemptions: displaced().count() as u64,
        lost_gpu_s: rounded(displaced().map(lost_gpu_ms).sum::<f64>() / 1e3),
        energy_kwh: energy_kwh(&history.stretches),
        fairness: rounded(tenants::jain(&tenants)),
        rounds: history.rounds,
        tenants,
        utilisation_over_time: utilisation(jobs, history, BINS),
    }
}

/// The moments between which it all happened.
#[derive(Debug, Clone, Copy)]
struct Span {
    first_ms: i64,
    last_submit_ms: i64,
    last_end_ms: i64,
}

impl Span {
    fn of(jobs: &[LoggedJob], history: &History) -> Span {
        let first_ms = jobs.first().map_or(0, |job| job.submit_ms);
        let last_submit_ms = jobs.last().map_or(first_ms, |job| job.submit_ms);
        let last_end_ms = history.stretches.iter().map(|stretch| stretch.to_ms).fold(first_ms, i64::max);
        Span { first_ms, last_submit_ms, last_end_ms }
    }

    fn to_last_submit_ms(self) -> i64 {
        self.last_submit_ms - self.first_ms
    }

    fn to_end_ms(self) -> i64 {
        self.last_end_ms - self.first_ms
    }
}

/// GPUs × milliseconds held until a moment.
fn held_gpu_ms(stretches: &[Stretch], until_ms: i64) -> f64 {
    let held = |stretch: &Stretch| {
        let ms = (stretch.to_ms.min(until_ms) - stretch.from_ms).max(0);
        u128::from(stretch.gpu_milli) * u128::from(ms.unsigned_abs())
    };
    stretches.iter().map(held).sum::<u128>() as f64 / 1e3
}

/// GPUs × milliseconds that brought nothing forward.
fn lost_gpu_ms(stretch: &Stretch) -> f64 {
    (stretch.ms() - stretch.useful_ms) as f64 * stretch.gpu_milli as f64 / 1e3
}

fn energy_kwh(stretches: &[Stretch]) -> Option<f64> {
    let microjoules =
        |stretch: &Stretch| u128::from(stretch.milliwatts) * u128::from(stretch.ms().unsigned_abs());
    let sum: u128 = stretches.iter().map(microjoules).sum();
    (sum > 0).then(|| rounded(sum as f64 / MICROJOULES_PER_KWH))
}

/// To the fourth decimal; a sum of nothing is zero without a minus.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4 + 0.0
}
