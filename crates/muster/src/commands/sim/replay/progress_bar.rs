//! Progress of a replay on a terminal, and its speed at the end.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use muster_sim::job_log::LoggedJob;
use muster_sim::trace_replay::ReplayProgress;

use crate::units;

const BAR_CHARS: usize = 30;
const REDRAW_INTERVAL: Duration = Duration::from_millis(100);

/// A line on standard error that is redrawn, if standard error is a terminal.
pub struct ProgressBar {
    policy: &'static str,
    jobs: usize,
    /// From the first submission to the last.
    span_ms: i64,
    started_at: Instant,
    last_drawn_at: Option<Instant>,
    is_terminal: bool,
}

impl ProgressBar {
    pub fn new(policy: &'static str, jobs: &[LoggedJob]) -> ProgressBar {
        let ends = jobs.first().zip(jobs.last());
        let span_ms = ends.map_or(0, |(first, last)| last.submit_ms - first.submit_ms);
        ProgressBar {
            policy,
            jobs: jobs.len(),
            span_ms,
            started_at: Instant::now(),
            last_drawn_at: None,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    pub fn draw(&mut self, progress: ReplayProgress) {
        let too_soon = self.last_drawn_at.is_some_and(|drawn| drawn.elapsed() < REDRAW_INTERVAL);
        if !self.is_terminal || too_soon {
            return;
        }
        self.last_drawn_at = Some(Instant::now());
        let full = BAR_CHARS * progress.finished_jobs / self.jobs.max(1);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR_CHARS.saturating_sub(full)));
        let (percent, time) =
            (100 * progress.finished_jobs / self.jobs.max(1), units::duration_text(progress.elapsed_ms));
        // A closed terminal does not stop the replay.
        let _ = write!(std::io::stderr(), "\r{}  [{bar}] {percent:3} %  {time:>8}", self.policy);
    }

    /// Removes the line, and returns the speed of the replay.
    pub fn finish(self, rounds: u64) -> String {
        if self.is_terminal && self.last_drawn_at.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let took = self.started_at.elapsed();
        let times = self.span_ms as f64 / 1e3 / took.as_secs_f64().max(1e-6);
        format!(
            "{}: {} of {} in {:.1} s, {:.0} × real time, {}",
            self.policy,
            units::count_text(self.jobs as u64, "job"),
            units::duration_text(self.span_ms),
            took.as_secs_f64(),
            times,
            units::count_text(rounds, "round")
        )
    }
}
