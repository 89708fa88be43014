//! When jobs waited and ran: a row for each of some consecutive jobs.

use super::axes::{Axis, Plot};
use crate::figures::{Fate, fates};
use crate::history::{End, History};
use crate::jobs::LoggedJob;

/// Most jobs in the picture.
const JOBS: usize = 200;
const HOUR_MS: f64 = 3_600_000.0;
const WAITS: &str = "#d9d9d9";
const RUNS: &str = "#0072b2";
const GIVES_WAY: &str = "#d55e00";
const RUNS_OUT: &str = "#e69f00";

/// The jobs that came around the longest waits, each in its row.
pub fn gantt(policy: &str, jobs: &[LoggedJob], history: &History) -> String {
    let fates = fates(jobs, history);
    let first = busiest(&fates);
    let last = (first + JOBS).min(jobs.len());
    let from_ms = jobs.get(first).map_or(0, |job| job.submit_ms);
    let to_ms = end_of_picture(jobs, &fates, first..last);
    let hours = |ms: i64| (ms - from_ms) as f64 / HOUR_MS;
    let rows = last - first;
    let x = Axis {
        title: "time (hours)".to_string(),
        from: 0.0,
        to: hours(to_ms).max(1e-3),
        log: false,
        ..Axis::default()
    };
    let title = format!("jobs {} to {last} in the order in which they came", first + 1);
    let y =
        Axis { title: "job".to_string(), from: last as f64, to: first as f64, log: false, ..Axis::default() };
    let mut plot = Plot::of_height(140.0 + 4.0 * rows.max(40) as f64, &format!("{policy}: {title}"), x, y);
    let row = |job: usize| ((job + 1) as f64, job as f64 + 0.15);
    for (job, fate) in fates.iter().enumerate().take(last).skip(first) {
        let Some(fate) = fate else { continue };
        let submit_ms = jobs[job].submit_ms;
        let span = (hours(submit_ms), hours(submit_ms + fate.completion_ms));
        plot.bar(span, row(job), WAITS, &format!("{} waits", jobs[job].name));
    }
    for stretch in history.stretches.iter().filter(|stretch| (first..last).contains(&stretch.job)) {
        let fill = match stretch.end {
            End::Done => RUNS,
            End::Displaced => GIVES_WAY,
            End::TimeLimit => RUNS_OUT,
        };
        let says = format!("{}: {} GPUs", jobs[stretch.job].name, stretch.gpu_milli as f64 / 1e3);
        plot.bar((hours(stretch.from_ms), hours(stretch.to_ms)), row(stretch.job), fill, &says);
    }
    plot.legend(&[
        ("waits", WAITS),
        ("runs", RUNS),
        ("runs and gives way", GIVES_WAY),
        ("runs into its limit", RUNS_OUT),
    ]);
    plot.into_svg()
}

/// The first of the consecutive jobs that waited longest together.
fn busiest(fates: &[Option<Fate>]) -> usize {
    let wait = |fate: &Option<Fate>| fate.map_or(0, |fate| fate.wait_ms);
    let mut sum: i64 = fates.iter().take(JOBS).map(wait).sum();
    let (mut best, mut most) = (0, sum);
    for first in 1..=fates.len().saturating_sub(JOBS) {
        sum += wait(&fates[first + JOBS - 1]) - wait(&fates[first - 1]);
        if sum > most {
            (best, most) = (first, sum);
        }
    }
    best
}

/// Nine of ten have ended by then: one that runs for weeks would make all others a line.
fn end_of_picture(jobs: &[LoggedJob], fates: &[Option<Fate>], places: std::ops::Range<usize>) -> i64 {
    let ends = places.filter_map(|job| Some(jobs[job].submit_ms + fates[job]?.completion_ms));
    let mut ends: Vec<i64> = ends.collect();
    ends.sort_unstable();
    ends.get(ends.len() * 9 / 10).or(ends.last()).copied().unwrap_or(0)
}
