//! A Gantt chart: when consecutive jobs waited and ran, one row per job.

use super::axes::{Axis, Plot};
use crate::figures::{JobOutcome, job_outcomes};
use crate::job_log::LoggedJob;
use crate::run_history::{IntervalEnd, RunHistory};

/// The most jobs in a chart.
const JOBS_SHOWN_MAX: usize = 200;
const HOUR_MS: f64 = 3_600_000.0;
const WAITING_COLOUR: &str = "#d9d9d9";
const RUNNING_COLOUR: &str = "#0072b2";
const PREEMPTED_COLOUR: &str = "#d55e00";
const TIMED_OUT_COLOUR: &str = "#e69f00";

/// The chart of the consecutive jobs with the longest waits.
pub fn gantt(policy: &str, jobs: &[LoggedJob], history: &RunHistory) -> String {
    let outcomes = job_outcomes(jobs, history);
    let first = first_of_longest_waits(&outcomes);
    let last = (first + JOBS_SHOWN_MAX).min(jobs.len());
    let from_ms = jobs.get(first).map_or(0, |job| job.submit_ms);
    let to_ms = plot_end_ms(jobs, &outcomes, first..last);
    let hours = |ms: i64| (ms - from_ms) as f64 / HOUR_MS;
    let rows = last - first;
    let x = Axis {
        title: "time (hours)".to_string(),
        from: 0.0,
        to: hours(to_ms).max(1e-3),
        log: false,
        ..Axis::default()
    };
    let title = format!("jobs {} to {last} in the order of submission", first + 1);
    let y = Axis { title: "job".to_string(), from: last as f64, to: first as f64, log: false, ..Axis::default() };
    let mut plot = Plot::with_height(140.0 + 4.0 * rows.max(40) as f64, &format!("{policy}: {title}"), x, y);
    let row = |job: usize| ((job + 1) as f64, job as f64 + 0.15);
    for (job, outcome) in outcomes.iter().enumerate().take(last).skip(first) {
        let Some(outcome) = outcome else { continue };
        let submit_ms = jobs[job].submit_ms;
        let span = (hours(submit_ms), hours(submit_ms + outcome.completion_ms));
        plot.bar(span, row(job), WAITING_COLOUR, &format!("{} waits", jobs[job].name));
    }
    for interval in history.intervals.iter().filter(|interval| (first..last).contains(&interval.log_index)) {
        let fill = match interval.end {
            IntervalEnd::Done => RUNNING_COLOUR,
            IntervalEnd::Preempted => PREEMPTED_COLOUR,
            IntervalEnd::TimeLimit => TIMED_OUT_COLOUR,
        };
        let tooltip = format!("{}: {} GPUs", jobs[interval.log_index].name, interval.gpu_milli as f64 / 1e3);
        plot.bar((hours(interval.from_ms), hours(interval.to_ms)), row(interval.log_index), fill, &tooltip);
    }
    plot.legend(&[
        ("waits", WAITING_COLOUR),
        ("runs", RUNNING_COLOUR),
        ("runs until preempted", PREEMPTED_COLOUR),
        ("runs until its time limit", TIMED_OUT_COLOUR),
    ]);
    plot.into_svg()
}

/// The first of the consecutive jobs with the largest sum of waits.
fn first_of_longest_waits(outcomes: &[Option<JobOutcome>]) -> usize {
    let wait = |outcome: &Option<JobOutcome>| outcome.map_or(0, |outcome| outcome.wait_ms);
    let mut sum: i64 = outcomes.iter().take(JOBS_SHOWN_MAX).map(wait).sum();
    let (mut best, mut longest) = (0, sum);
    for first in 1..=outcomes.len().saturating_sub(JOBS_SHOWN_MAX) {
        sum += wait(&outcomes[first + JOBS_SHOWN_MAX - 1]) - wait(&outcomes[first - 1]);
        if sum > longest {
            (best, longest) = (first, sum);
        }
    }
    best
}

/// The time by which nine of ten jobs have ended: a job that runs for weeks would shrink all others to a line.
fn plot_end_ms(jobs: &[LoggedJob], outcomes: &[Option<JobOutcome>], range: std::ops::Range<usize>) -> i64 {
    let ends = range.filter_map(|job| Some(jobs[job].submit_ms + outcomes[job]?.completion_ms));
    let mut ends: Vec<i64> = ends.collect();
    ends.sort_unstable();
    ends.get(ends.len() * 9 / 10).or(ends.last()).copied().unwrap_or(0)
}
