//! How far a replay is, on a terminal; and how fast it was.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use muster_sim::jobs::LoggedJob;
use muster_sim::rehearsal::Progress;

use crate::units;

/// Letters of the bar.
const WIDTH: usize = 30;
/// Least time between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// A line that is written anew on standard error, if that is a terminal.
pub struct Bar {
    policy: &'static str,
    jobs: usize,
    /// From the first submission to the last.
    span_ms: i64,
    began: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Bar {
    /// At its beginning.
    pub fn new(policy: &'static str, jobs: &[LoggedJob]) -> Bar {
        let ends = jobs.first().zip(jobs.last());
        let span_ms = ends.map_or(0, |(first, last)| last.submit_ms - first.submit_ms);
        let terminal = std::io::stderr().is_terminal();
        Bar { policy, jobs: jobs.len(), span_ms, began: Instant::now(), shown: None, terminal }
    }

    /// Show how far it is.
    pub fn show(&mut self, progress: Progress) {
        let lately = self.shown.is_some_and(|shown| shown.elapsed() < EVERY);
        if !self.terminal || lately {
            return;
        }
        self.shown = Some(Instant::now());
        let full = WIDTH * progress.over / self.jobs.max(1);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(WIDTH.saturating_sub(full)));
        let (percent, time) = (100 * progress.over / self.jobs.max(1), units::span(progress.elapsed_ms));
        // A terminal that has gone is no reason to stop.
        let _ = write!(std::io::stderr(), "\r{}  [{bar}] {percent:3} %  {time:>8}", self.policy);
    }

    /// Take the line away, and say how fast it was.
    pub fn done(self, rounds: u64) -> String {
        if self.terminal && self.shown.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
        let took = self.began.elapsed();
        let times = self.span_ms as f64 / 1e3 / took.as_secs_f64().max(1e-6);
        format!(
            "{}: {} of {} in {:.1} s, {:.0} × real time, {}",
            self.policy,
            units::count(self.jobs as u64, "job"),
            units::span(self.span_ms),
            took.as_secs_f64(),
            times,
            units::count(rounds, "round")
        )
    }
}
